"""How fast jobs make steps is measured from what they report, shown, and told seldom; what cannot be true is named."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from api_world import Api

from millpond.model.events import PoolChanged, ProgressMeasured
from millpond.model.hardware.nodes import Pool, SharingPolicy
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.jobs.progress.meter import LARGEST_STEP, ProgressMeter
from millpond.server.jobs.progress.watch import LOOK_EVERY_S, UNMEASURED_S, MeasuredCards, ProgressWatch
from millpond.server.monitoring.telemetry.sampling import Sampled
from millpond.server.storage.files.outputs import Reported
from millpond.server.views.events import story
from millpond.specs.api.jobs.jobs import JobInfo


def reported(at: float, step: float | None, *names: str) -> Reported:
    return Reported(at, step, dict.fromkeys(names or ("loss",), 1.0))


def measured(*looks: list[Reported], every_s: float = 10.0) -> ProgressMeter:
    meter = ProgressMeter()
    for number, reports in enumerate(looks, start=1):
        meter.look(reports, number * every_s)
    return meter


def test_a_speed_is_the_steps_between_reports_by_the_time_between_them() -> None:
    meter = measured(*([reported(at, 5.0 * at)] for at in (4.0, 15.0, 28.0, 39.0)))
    assert meter.steps_per_s == pytest.approx(5.0)


def test_no_speed_is_known_before_some_time_has_passed() -> None:
    assert measured([reported(4.0, 1.0)], [reported(14.0, 2.0)]).steps_per_s is None


def test_a_speed_follows_a_program_that_becomes_slower() -> None:
    fast = [[reported(10.0 * look, 100.0 * look)] for look in range(1, 30)]
    slow = [[reported(10.0 * look, 2_900.0 + look)] for look in range(30, 60)]
    assert measured(*fast, *slow).steps_per_s == pytest.approx(0.1)


def test_rare_reports_are_measured_from_one_to_the_next() -> None:
    looks: list[list[Reported]] = [[] for _ in range(1_000)]
    for look in (99, 499, 899):
        looks[look] = [reported(10.0 * look, look)]
    assert measured(*looks).steps_per_s == pytest.approx(0.1)


def test_a_program_that_reports_nothing_for_long_makes_no_steps() -> None:
    looks = [[reported(10.0 * look, look)] for look in range(1, 10)]
    assert measured(*looks, *([] for _ in range(50))).steps_per_s == pytest.approx(0.1)
    assert measured(*looks, *([] for _ in range(61))).steps_per_s == 0.0


def test_of_batches_and_epochs_that_are_counted_in_turn_those_reported_most_count() -> None:
    looks = [
        [
            reported(10.0 * look, 20.0 * look),
            reported(10.0 * look, 20.0 * look + 10),
            reported(10.0 * look, look, "acc"),
        ]
        for look in range(1, 9)
    ]
    meter = measured(*looks)
    assert (meter.steps_per_s, meter.ignored) == (pytest.approx(2.0), "")


def test_processes_that_report_the_same_steps_not_quite_at_once_do_not_run_back() -> None:
    looks = [[reported(10.0 * look, 20.0 * look), reported(10.0 * look, 20.0 * look - 3)] for look in range(1, 9)]
    assert measured(*looks).ignored == ""


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (reported(60.0, 2.0), "its steps run back, from 500 to 2"),
        (reported(60.0, 2 * LARGEST_STEP), "a step of 1.8e+16 is no count"),
        (reported(60.0, -1e300), "a step of -1e+300 is no count"),
        (reported(60.0, LARGEST_STEP / 2), "9.01e+13 steps in a second cannot be"),
        (reported(9_000.0, 600.0), "they are dated 8940 s ahead of the clock"),
    ],
)
def test_a_report_that_cannot_be_true_is_named_and_voids_the_speed_until_it_is_measured_anew(
    report: Reported, why: str
) -> None:
    honest = [[reported(10.0 * look, 100.0 * look)] for look in range(1, 6)]
    meter = measured(*honest, [report])
    assert (meter.steps_per_s, meter.ignored) == (None, why)
    for look in range(7, 12):
        meter.look([reported(10.0 * look, LARGEST_STEP / 2 + 100.0 * look)], 10.0 * look)
    assert (meter.steps_per_s, meter.ignored) == (pytest.approx(10.0), "")


def test_dates_in_reports_make_no_program_faster_than_it_was_seen_to_be() -> None:
    meter = measured(*([reported(look / 1_000, 10.0 * look)] for look in range(1, 12)))
    assert meter.steps_per_s == pytest.approx(100.0 / 90.0)


def test_a_speed_is_measured_anew_when_the_clock_was_set_back() -> None:
    meter = ProgressMeter()
    for begin, steps_per_s in ((90_000.0, 1.0), (0.0, 3.0)):
        for second in range(10, 60, 10):
            meter.look([reported(begin + second, (begin == 0.0) * 1_000.0 + steps_per_s * second)], begin + second)
    assert meter.steps_per_s == pytest.approx(3.0)


def test_reports_without_a_step_that_is_a_number_are_named() -> None:
    assert measured([reported(1.0, None)]).ignored == "they have no step that is a number (report(step=...))"
    assert measured([reported(1.0, 1.0), reported(2.0, None)]).ignored == ""


class Programs:
    """Jobs that report steps while the clock goes on."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._steps: dict[str, float] = {}
        self.caps_w: dict[str, float] = {}
        """At which cards are kept for their jobs."""
        self.held_mib: int | None = 1_000
        """What each card holds."""
        self.pretended: list[str] = []
        self.restart_server()

    def restart_server(self) -> None:
        cards = MeasuredCards(lambda card: self.caps_w.get(card, 0.0), self._samples, self.pretended)
        self._watch = ProgressWatch(self._api.loop, self._api.state_dir, cards, self._api.clock)

    def _samples(self, card: str) -> list[Sampled]:
        drawn_w = self.caps_w.get(card, 0.0) or 600.0
        now = self._api.clock.now
        sample = DeviceSample(card, power_w=drawn_w, memory_used_mib=self.held_mib)
        return [Sampled(now - ago, sample) for ago in (2.0, 1.0, 0.0)]

    def go_on(self, seconds: float, **rates: float) -> None:
        for _ in range(round(seconds / LOOK_EVERY_S)):
            self._api.clock.now += LOOK_EVERY_S
            for job, rate in rates.items():
                self._steps[job] = self._steps.get(job, 0.0) + rate * LOOK_EVERY_S
                self.write(job, json.dumps({"at": self._api.clock.now, "step": self._steps[job], "values": {}}))
            self.look()

    def write(self, job: str, line: str) -> None:
        place = TaskFiles.of(self._api.state_dir, TaskId(job, 1, 0)).metrics
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a") as file:
            file.write(line + "\n")

    def look(self) -> None:
        self._watch.look()
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            self._api.loop.query(lambda core: None).result(60)


def told(api: Api, job: str) -> list[ProgressMeasured]:
    happened, _ = api.store.histories.of_job(job)
    return [entry.event for entry in happened if isinstance(entry.event, ProgressMeasured)]


def test_a_running_job_shows_its_speed_and_that_of_a_card(api: Api) -> None:
    job = api.submit(name="bert", gpus=2)
    Programs(api).go_on(60.0, **{job.id: 3.0})
    shown = api.job(job.id).progress
    assert shown is not None
    assert (shown.steps_per_s, shown.per_card, shown.text) == (3.0, 1.5, "3/s, 1.5/s per card")
    api.engine.finish(TaskId(job.id, 1, 0))
    assert api.job(job.id).progress == shown


def test_a_run_that_cannot_be_measured_keeps_no_other_from_being_measured(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, odd = api.submit(name="plain", gpus=1), api.submit(name="odd", gpus=1)
    programs = Programs(api)
    programs.go_on(10.0, **{odd.id: 1.0, plain.id: 1.0})
    look = ProgressMeter.look
    met: list[ProgressMeter] = []

    def fails_for_the_first(meter: ProgressMeter, reports: Iterable[Reported], now: float) -> None:
        met.append(meter)
        if meter is met[0]:
            raise KeyError("odd")
        look(meter, reports, now)

    monkeypatch.setattr(ProgressMeter, "look", fails_for_the_first)
    for _ in range(6):
        with pytest.raises(KeyError):
            programs.go_on(10.0, **{odd.id: 1.0, plain.id: 1.0})
        programs.settle()
    assert sorted(job.progress is not None for job in (api.job(plain.id), api.job(odd.id))) == [False, True]


def test_a_speed_that_stays_is_told_once_and_one_that_swings_after_longer_and_longer_pauses(api: Api) -> None:
    calm, wild = api.submit(gpus=1), api.submit(gpus=1)
    programs = Programs(api)
    for round_ in range(24):
        programs.go_on(150.0, **{calm.id: 3.0, wild.id: 1.0 + round_ % 2})
    assert len(told(api, calm.id)) == 1
    pauses = [b.at - a.at for a, b in zip(told(api, wild.id), told(api, wild.id)[1:], strict=False)]
    assert len(pauses) >= 5
    assert pauses[0] >= 60.0
    assert min(pauses[4:]) >= 600.0


def test_a_speed_is_told_soon_after_the_clock_was_set_back(api: Api) -> None:
    job = api.submit(gpus=1)
    programs = Programs(api)
    programs.go_on(150.0, **{job.id: 3.0})
    api.clock.now -= 86_400.0
    programs.go_on(150.0, **{job.id: 9.0})
    assert [event.steps_per_s for event in told(api, job.id)] == [3.0, pytest.approx(9.0)]


def test_measuring_goes_on_after_a_restart_of_the_server_without_telling_the_same_again(api: Api) -> None:
    job = api.submit(gpus=1)
    programs = Programs(api)
    programs.go_on(60.0, **{job.id: 3.0})
    programs.restart_server()
    programs.go_on(300.0, **{job.id: 3.0})
    assert [event.steps_per_s for event in told(api, job.id)] == [3.0]


@pytest.mark.parametrize(
    "text", ['{"at": 1e999, "step": NaN, "values": {"a": NaN}}', "[" * 100_000, "\0", "9" * 70_000]
)
def test_a_file_that_a_program_wrote_itself_is_no_trouble(api: Api, text: str) -> None:
    job, other = api.submit(gpus=1), api.submit(gpus=1)
    programs = Programs(api)
    programs.write(job.id, text)
    programs.go_on(60.0, **{job.id: 2.0, other.id: 3.0})
    assert [_rate(api, each.id) for each in (job, other)] == [2.0, 3.0]


def test_a_liar_is_named_in_the_history_and_where_its_speed_would_stand(api: Api) -> None:
    job = api.submit(gpus=1)
    programs = Programs(api)
    programs.go_on(100.0, **{job.id: 5.0})
    programs.write(job.id, json.dumps({"at": api.clock.now, "step": 1, "values": {}}))
    programs.look()
    shown = api.job(job.id).progress
    assert shown is not None
    assert shown.text == "not measured, its reports are ignored: its steps run back, from 500 to 1"
    assert [event.steps_per_s for event in told(api, job.id)] == [5.0, None]


def test_a_lie_is_named_although_honest_reports_follow_before_it_may_be_told(api: Api) -> None:
    job = api.submit(gpus=1)
    programs = Programs(api)
    programs.go_on(40.0, **{job.id: 5.0})
    programs.write(job.id, json.dumps({"at": api.clock.now, "step": -1, "values": {}}))
    programs.go_on(200.0, **{job.id: 5.0})
    assert [event.ignored for event in told(api, job.id)] == ["", "its steps run back, from 200 to -1", ""]


def _rate(api: Api, job: str) -> Any:
    shown = api.job(job).progress
    return None if shown is None else shown.steps_per_s


def test_of_a_run_that_may_have_a_cap_a_speed_that_stays_is_told_too_with_what_its_cards_draw(api: Api) -> None:
    job = api.submit(name="bert", gpus=2, max_slowdown="5%")
    Programs(api).go_on(400.0, **{job.id: 3.0})
    found = told(api, job.id)
    assert len(found) >= 3
    assert {(each.steps_per_s, each.power_w, each.cap_w) for each in found} == {(3.0, 1_200.0, 0.0)}
    other = api.submit(name="other", gpus=1)
    Programs(api).go_on(60.0, **{other.id: 3.0})
    assert told(api, other.id)[0].power_w is None


def run_at_a_cap(api: Api, programs: Programs) -> JobInfo:
    """A job of a name that ran before, whose only card has just been capped."""
    first = api.submit(name="bert", gpus=1, max_slowdown="5%")
    programs.go_on(120.0, **{first.id: 3.0})
    api.engine.finish(TaskId(first.id, 1, 0))
    job = api.submit(name="bert", gpus=1, max_slowdown="5%")
    programs.go_on(1_000.0, **{job.id: 3.0})
    shown = api.job(job.id)
    assert shown.power_cap_w > 0.0
    programs.caps_w[shown.tasks[0].devices[0].uuid] = shown.power_cap_w
    return shown


def test_a_recurring_job_is_measured_at_a_cap_and_its_history_says_why(api: Api) -> None:
    programs = Programs(api)
    shown = run_at_a_cap(api, programs)
    programs.go_on(200.0, **{shown.id: 3.0})
    at_cap = [each for each in told(api, shown.id) if each.cap_w == shown.power_cap_w]
    assert at_cap
    assert (at_cap[0].steps_per_s, at_cap[0].power_w) == (3.0, shown.power_cap_w)
    happened, decided = api.store.histories.of_job(shown.id)
    texts = [line.text for line in story(happened, decided)]
    assert f"keep each of its cards at {shown.power_cap_w:.0f} W (cap-tried)" in texts
    api.engine.finish(TaskId(shown.id, 1, 0))
    assert api.job(shown.id).power_cap_w == 0.0


def test_a_run_at_a_cap_that_is_not_measured_there_loses_it(api: Api) -> None:
    programs = Programs(api)
    job = run_at_a_cap(api, programs)
    programs.go_on(UNMEASURED_S + 60.0)
    assert api.job(job.id).power_cap_w == 0.0
    assert told(api, job.id)[-1].ignored == "none was measured in 300 s at a power cap"


def test_that_the_cards_of_a_run_hold_more_is_told_and_that_they_hold_less_is_not(api: Api) -> None:
    job = api.submit(name="bert", gpus=2)
    programs = Programs(api)
    for held_mib in (1_000, 1_090, 3_000, 500):
        programs.held_mib = held_mib
        programs.go_on(70.0, **{job.id: 3.0})
    assert [event.memory_mib for event in told(api, job.id)] == [1_000, 3_000]


@pytest.mark.parametrize(("held_mib", "is_pretended"), [(None, False), (1_000, True)])
def test_what_a_driver_does_not_say_and_what_pretended_cards_hold_is_not_known(
    api: Api, held_mib: int | None, is_pretended: bool
) -> None:
    job = api.submit(gpus=1)
    programs = Programs(api)
    programs.held_mib = held_mib
    programs.pretended.extend(each.uuid for each in api.job(job.id).tasks[0].devices if is_pretended)
    programs.go_on(60.0, **{job.id: 3.0})
    assert [event.memory_mib for event in told(api, job.id)] == [None]


def _finish(api: Api, job: str) -> None:
    api.engine.finish(TaskId(job, 1, 0))
    api.job(job)


def _pair(api: Api, programs: Programs) -> tuple[str, str]:
    """A job that has all cards, and the one that shares them."""
    pool = Pool("default", SharingPolicy.EXCLUSIVE, packs=True)
    api.loop.notify([PoolChanged(api.clock.now, pool)])
    cards = len(api.world.nodes[0].devices)
    saving = {"gpus": cards, "checkpoint": {"signal": "SIGUSR1"}, "kind": "train"}
    for name in ("one", "other"):  # whose speeds alone are known from then on
        known = api.submit(name=name, **saving)
        programs.go_on(60.0, **{known.id: 4.0})
        _finish(api, known.id)
    host, guest = api.submit(name="one", **saving), api.submit(name="other", **saving)
    assert [api.job(job.id).state for job in (host, guest)] == ["running", "running"]
    assert (api.job(host.id).shares_with, api.job(guest.id).shares_with) == (guest.id, host.id)
    return host.id, guest.id


def test_jobs_that_share_cards_name_each_other_and_are_measured_anew(api: Api) -> None:
    programs = Programs(api)
    host, guest = _pair(api, programs)
    programs.go_on(110.0, **{host: 1.2, guest: 1.2})
    assert api.job(guest).state == "running"
    programs.go_on(60.0, **{host: 1.2, guest: 1.2})
    api.clock.now += 60.0
    programs.settle()
    assert (api.job(guest).state, api.job(host).shares_with) == ("queued", "")


def test_jobs_that_fill_the_memory_of_their_cards_together_part(api: Api) -> None:
    programs = Programs(api)
    host, guest = _pair(api, programs)
    programs.held_mib = api.world.nodes[0].devices[0].memory_mib
    programs.go_on(80.0, **{host: 4.0, guest: 4.0})
    api.clock.now += 60.0
    programs.settle()
    assert (api.job(guest).state, api.job(host).shares_with) == ("queued", "")
