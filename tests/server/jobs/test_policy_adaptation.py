"""A server that chooses among policies at night: what it promotes, takes back, leaves alone, and says of it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import pytest
from api_world import Api
from server_world import Clock

from millpond.model.errors import UnavailableError
from millpond.model.events import PolicyChanged, ReservationMade, SchedulingPaused, SchedulingResumed
from millpond.model.policy_trials import UNCHANGED, ClusterPolicies, PolicyOverrides
from millpond.model.reasons import Cause
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.node.task.records import TaskId
from millpond.scheduling.settings import Settings
from millpond.server.jobs.adaptation import policy_replay
from millpond.server.jobs.adaptation.night_record import FILE, Night, NightRecord
from millpond.server.jobs.adaptation.policy_adaptation import PolicyAdapter
from millpond.server.jobs.what_if.child import ask_child
from millpond.server.wording import local_time
from millpond.simulation.adaptation import WindowFigures
from millpond.specs.api.codec import from_json
from millpond.specs.api.server import AdaptationInfo
from millpond.specs.config.adapting import AdaptFile, CandidateFile
from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError

HOUR_S, DAY_S = 3_600.0, 86_400.0
BEGIN = datetime(2026, 3, 2, 12).astimezone().timestamp()
RULE = AdaptFile(
    hour=3, days=3, margin=0.05, candidates=[CandidateFile(ordering="ssf"), CandidateFile(placement="best-fit")]
)


async def answered_here(module: str, request: str, within_s: float, remedy: str) -> bytes:
    return policy_replay.answer(json.loads(request)).encode()


async def unanswered(module: str, request: str, within_s: float, remedy: str) -> bytes:
    raise UnavailableError("no answer could be found", remedy)


async def second_wins(module: str, request: str, within_s: float, remedy: str) -> bytes:
    """The first candidate is better by half in each window, whatever happened in it."""
    asked = json.loads(request)
    slowdowns = [4.0, 2.0, *[4.0] * (len(asked["choices"]) - 2)]
    return json.dumps(
        [[asdict(WindowFigures(100, slowdown, 10.0)) for _ in asked["windows"]] for slowdown in slowdowns]
    ).encode()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A server of one node of four cards, whose policy is first come, first served."""
    made = Api(tmp_path / "state", clock=Clock(BEGIN))
    made.loop.notify([PolicyChanged(BEGIN, "fifo", "default", preempt=False, reserve=True)])
    yield made
    made.close()


def adapter_of(
    api: Api,
    pinned: PolicyOverrides = UNCHANGED,
    ask: Callable = answered_here,  # type: ignore[type-arg]
    rule: AdaptFile = RULE,
) -> PolicyAdapter:
    """One that has seen the night before."""
    nights = NightRecord(api.state_dir / FILE)
    made = PolicyAdapter(api.loop, api.service.history, lambda: rule, pinned, nights, api.clock, ask)
    api.service.about.policies_by = made.info
    made.look()
    return made


def shown(api: Api) -> AdaptationInfo:
    """What the API says of it."""
    return from_json(AdaptationInfo, api.client.get("/api/v1/adaptation").content)


def settings(api: Api) -> Settings:
    found: Settings = api.loop.query(lambda core: core.scheduler.settings).result(60)
    return found


def burst(api: Api, pause_s: float = 0.0) -> None:
    """A job each second: two of all four cards and an hour, then eight of one card and a minute; all of them end."""
    lengths: dict[str, float] = {}
    if pause_s:
        api.loop.notify([SchedulingPaused(api.clock.now, Cause.DISK_FULL, "no room")])
    for gpus, length_s in [(4, HOUR_S)] * 2 + [(1, 60.0)] * 8:
        lengths[api.submit(gpus=gpus, name="long" if gpus == 4 else "short").id] = length_s
        api.clock.now += 1.0
    if pause_s:
        api.clock.now += pause_s
        api.loop.notify([SchedulingResumed(api.clock.now, Cause.DISK_FULL)])
    ends: dict[str, float] = {}
    while lengths:
        for _ in range(3):
            api.settled()
        running = {name for name in lengths if (job := api.loop.job_cache.get(name)) and job.state == "running"}
        ends.update({name: api.clock.now + lengths[name] for name in running - ends.keys()})
        due = min(ends, key=lambda name: ends[name])
        api.clock.now = ends.pop(due)
        api.engine.finish(TaskId(due, 1, 0))
        del lengths[due]
        api.settled()


def lived(api: Api, days: int, every_s: float = 4 * HOUR_S, pause_s: float = 0.0) -> None:
    """Such bursts, so far apart."""
    for _ in range(round(days * DAY_S / every_s)):
        begin = api.clock.now
        burst(api, pause_s)
        api.clock.now = begin + every_s


def restarted(api: Api) -> Api:
    """The server that goes on where this one ended."""
    api.close()
    return Api(api.state_dir, world=api.world, clock=api.clock)


@pytest.mark.long
def test_a_better_policy_takes_over_is_kept_on_trial_and_given_up_when_the_days_go_worse(api: Api) -> None:
    adapter = adapter_of(api)
    before = shown(api)
    assert (before.chooses, before.looked_at, before.result, before.changed_at) == (True, None, "", None)
    assert local_time(before.next_at or 0.0) == "2026-03-03 03:00 UTC"
    lived(api, 3)
    adapter.look()
    api.settled()
    first = settings(api)
    assert (first.ordering, first.placement) == ("ssf", "default")
    assert first.trial is not None
    assert (first.trial.since, first.trial.rolled_back) == (api.clock.now, False)
    assert first.trial.other == ClusterPolicies("fifo", "default", preempt=False, reserve=True)
    assert "ordering ssf, placement default instead of ordering fifo, placement default: mean slow" in adapter.latest
    events = api.client.get("/api/v1/events?limit=1000").json()["events"]
    (told,) = [each["text"] for each in events if each["what"] == "PolicyChanged" and each["text"].startswith("polic")]
    assert told == f"policies: {adapter.latest.partition(': ')[2]}"
    assert api.client.get("/api/v1/server").json()["ordering"] == "ssf"
    info = shown(api)
    assert (info.policies, info.other) == ("ordering ssf, placement default", "ordering fifo, placement default")
    assert (info.changed_at, info.looked_at, info.trial_until) == (
        api.clock.now,
        api.clock.now,
        api.clock.now + 7 * DAY_S,
    )
    assert f"policies: {info.result}" == told

    again = restarted(api)
    try:
        adapter = adapter_of(again)
        assert settings(again).trial == first.trial
        assert shown(again).result == info.result
        lived(again, 1)
        adapter.look()
        assert settings(again).ordering == "ssf"
        assert "stays, on trial since" in adapter.latest
        assert "mean slowdown measured" in adapter.latest

        lived(again, 2, every_s=12 * HOUR_S, pause_s=6 * HOUR_S)
        adapter.look()
        again.settled()
        back = settings(again)
        assert back.ordering == "fifo", adapter.latest
        assert back.trial is not None
        assert (back.trial.rolled_back, back.trial.other.ordering) == (True, "ssf")
        assert "back to ordering fifo, placement default, as ordering ssf" in adapter.latest
        info = shown(again)
        assert (info.rolled_back, info.other, info.trial_until) == (True, "ordering ssf, placement default", None)

        lived(again, 3)
        adapter.look()
        assert settings(again).ordering == "fifo"
        assert "no candidate is better" in adapter.latest
        assert "placement best-fit" in adapter.latest, "ssf would be better, and was given up lately"
    finally:
        again.close()


def test_policies_that_the_scheduler_refuses_do_not_hold_and_the_night_says_why(api: Api) -> None:
    begin = api.clock.now + 30 * DAY_S
    event = ReservationMade(
        BEGIN, AdvanceReservation("demo", "default", 4, begin, begin + HOUR_S, beyond_guarantee=True)
    )
    api.loop.change_setting(lambda at: replace(event, at=at)).result(60)

    refused = CandidateFile.model_construct(ordering="srtf", placement=None, preempt=True, reserve=None)
    rule = RULE.model_copy(update={"candidates": [refused]})
    adapter = adapter_of(api, ask=second_wins, rule=rule)
    lived(api, 3, every_s=12 * HOUR_S)
    adapter.look()
    assert settings(api).ordering == "fifo"
    assert "the policies stay as they are: reservation 'demo' is agreed upon" in adapter.latest
    assert api.client.get("/api/v1/server").json()["notes"] == [], "a night is no note of the start"


def test_what_the_server_was_started_with_is_never_changed(api: Api) -> None:
    adapter = adapter_of(api, PolicyOverrides(ordering="fifo", placement="default"))
    lived(api, 1, every_s=12 * HOUR_S)
    adapter.look()
    assert adapter.latest.endswith(
        "the policies stay as they are: every candidate holds, is pinned at the start, or was given up lately"
    )
    assert settings(api).ordering == "fifo"


def test_jobs_that_were_withdrawn_before_they_had_cards_keep_nobody_from_judging(api: Api) -> None:
    adapter = adapter_of(api, ask=second_wins)
    lived(api, 3, every_s=12 * HOUR_S)
    api.submit(gpus=4)
    api.settled()
    for mistaken in [api.submit(gpus=4).id for _ in range(40)]:
        api.client.post(f"/api/v1/jobs/{mistaken}/stop")
    api.settled()
    api.clock.now += HOUR_S
    adapter.look()
    assert settings(api).ordering != "fifo", adapter.latest


@pytest.mark.long
def test_a_history_that_is_too_short_has_gaps_or_cannot_be_replayed_changes_nothing(api: Api) -> None:
    adapter = adapter_of(api, ask=unanswered)
    lived(api, 1, every_s=12 * HOUR_S)
    adapter.look()
    assert adapter.latest == (
        "2026-03-03 12:00 UTC: the policies stay as they are: "
        "the history is too short: it begins 2026-03-02 12:00 UTC, 3 days are needed; wait"
    )
    lived(api, 2, every_s=12 * HOUR_S)
    adapter.look()
    assert "the policies stay as they are: no answer could be found; let adapt.days be fewer" in adapter.latest
    for _ in range(16):
        api.submit(gpus=4)
    api.settled()
    api.clock.now += DAY_S
    adapter.look()
    assert "16 of 56 jobs cannot be replayed (16 wait or run still)" in adapter.latest
    assert settings(api).ordering == "fifo"


@pytest.mark.long
def test_the_replay_is_a_child_process_that_gives_the_same_figures(api: Api) -> None:
    lived(api, 1)
    recorded = asyncio.run(api.service.history.recorded_with_present(BEGIN, api.clock.now, DAY_S, 1_000))
    snapshot = api.loop.query(lambda core: json.dumps(core.scheduler.snapshot())).result(60)
    choices = [ClusterPolicies(name, "default", preempt=False, reserve=True) for name in ("fifo", "ssf")]
    text = policy_replay.question_text(snapshot, recorded, choices, [(BEGIN, api.clock.now)])
    answer = asyncio.run(ask_child(policy_replay.__name__, text, 600.0, "wait"))
    assert answer == policy_replay.answer(json.loads(text)).encode()
    fifo, ssf = policy_replay.read_answer(answer, choices)
    assert fifo.windows[0].jobs == 60
    assert fifo.windows[0].slowdown == pytest.approx((1 + 2 + 8 * 121.5) / 10, rel=0.01), "two hours before each minute"

    assert ssf.windows[0].slowdown < fifo.windows[0].slowdown


def test_what_held_cards_or_waited_when_the_days_began_and_what_runs_still_is_in_the_replay(api: Api) -> None:
    """Four cards: one is held all along, three until an hour into the days; a job waits for two of them."""
    service, gang = api.submit(gpus=1).id, api.submit(gpus=3).id
    waiting = api.submit(gpus=2).id
    begin = api.clock.now = BEGIN + HOUR_S
    measured = api.submit(gpus=1).id
    api.clock.now += HOUR_S
    for job in (gang, waiting, measured):
        for _ in range(3):
            api.settled()
        api.engine.finish(TaskId(job, 1, 0))
        api.clock.now += HOUR_S
    for _ in range(3):
        api.settled()

    recorded = asyncio.run(api.service.history.recorded_with_present(begin, api.clock.now, DAY_S, 100))
    assert [job.job.id for job in recorded.jobs] == [measured]
    assert {job.job.id for job in recorded.earlier} == {gang, waiting}
    assert [job.job.id for job in recorded.running] == [service]
    snapshot = api.loop.query(lambda core: json.dumps(core.scheduler.snapshot())).result(60)
    choice = ClusterPolicies("fifo", "default", preempt=False, reserve=True)
    replayed = []
    for known in (recorded, replace(recorded, earlier=[], running=[])):
        text = policy_replay.question_text(snapshot, known, [choice], [(begin, api.clock.now)])
        (tried,) = policy_replay.read_answer(policy_replay.answer(json.loads(text)).encode(), [choice])
        replayed.append(tried.windows[0])
    assert [window.jobs for window in replayed] == [1, 1]
    assert replayed[0].p95_wait_s == pytest.approx(HOUR_S, abs=5.0)
    assert replayed[1].p95_wait_s == 0.0, "without them the cluster is empty at first"


def test_a_forecast_of_the_past_rests_on_what_had_ended_by_then(api: Api) -> None:
    lengths = (60.0, 120.0, 240.0)
    for length_s in lengths:
        job = api.submit(gpus=1, name="nightly").id
        for _ in range(3):
            api.settled()
        api.clock.now += length_s
        api.engine.finish(TaskId(job, 1, 0))
        for _ in range(3):
            api.settled()
        api.clock.now += 1.0
    recorded = asyncio.run(api.service.history.recorded_with_present(BEGIN + 1.0, api.clock.now, DAY_S, 100))
    assert [job.job.name for job in (*recorded.earlier, *recorded.jobs)] == ["nightly"] * 3
    assert recorded.earlier[0].forecast is None
    guesses = [job.forecast.expected_s for job in recorded.jobs if job.forecast is not None]
    assert guesses == pytest.approx([60.0, math.sqrt(60.0 * 120.0)], rel=0.02)


def test_nothing_happens_without_a_section(api: Api) -> None:
    nights = NightRecord(api.state_dir / FILE)
    nights.note(Night(BEGIN - 7 * DAY_S, BEGIN - 7 * DAY_S, "of a time when policies were chosen"))
    off = PolicyAdapter(api.loop, api.service.history, lambda: None, UNCHANGED, nights, api.clock, unanswered)
    off.look()
    api.clock.now += DAY_S
    off.look()
    assert off.latest == ""
    assert shown(api) == AdaptationInfo(chooses=False, policies="ordering fifo, placement default")
    assert NightRecord(api.state_dir / FILE).latest is None


def test_a_server_that_was_down_at_the_hour_looks_when_it_starts_and_none_looks_twice(api: Api) -> None:
    assert adapter_of(api).latest == ""
    api.clock.now += DAY_S
    late = adapter_of(api)
    assert late.latest.startswith("2026-03-03 12:00 UTC: the policies stay as they are: the history is too short")
    api.clock.now += HOUR_S
    assert adapter_of(api).latest == late.latest


@pytest.mark.long
def test_a_night_that_was_broken_off_says_so_and_is_not_tried_again_before_the_next(api: Api) -> None:
    class Killed(BaseException):
        """The end of the process."""

    said: list[str] = []

    async def killed(module: str, request: str, within_s: float, remedy: str) -> bytes:
        said.extend((adapter.latest, adapter.info(settings(api)).result))
        raise Killed

    adapter = adapter_of(api, ask=killed)
    lived(api, 3, every_s=12 * HOUR_S)
    with pytest.raises(Killed):
        adapter.look()
    assert [text.rpartition(": ")[2] for text in said] == ["the replays are under way"] * 2
    again = adapter_of(api, ask=second_wins)
    assert again.latest.endswith(
        "not finished: the server ended meanwhile, or its log says why; the next night tries again"
    )
    assert settings(api).ordering == "fifo"
    lived(api, 1, every_s=12 * HOUR_S)
    again.look()
    api.settled()
    assert settings(api).ordering == "ssf", again.latest


@pytest.mark.parametrize("content", [b"", b"[]", b'{"due_at": 1, "more": 2}', b"\xff"])
def test_a_record_that_cannot_be_read_counts_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    record = NightRecord(tmp_path / FILE)
    assert record.latest is None
    record.note(Night(1.0, 2.0, "nothing"))
    assert NightRecord(tmp_path / FILE).latest == Night(1.0, 2.0, "nothing")


def test_the_section_has_usual_candidates_and_refuses_what_is_none() -> None:
    assert read_cluster("queues: []").adapt is None
    rule = read_cluster("adapt: {hour: 4}").adapt
    assert rule is not None
    assert (rule.hour, rule.days, rule.margin, len(rule.choices)) == (4, 7, 0.05, 5)
    for written, cause in (
        ("{}", "a candidate that changes nothing"),
        ("{ordering: lifo}", "unknown ordering 'lifo'"),
        ("{placement: high}", "unknown placement 'high'"),
        ("{ordering: srtf}", "ordering 'srtf' places all work anew"),
    ):
        with pytest.raises(SpecError, match=cause):
            read_cluster(f"adapt: {{candidates: [{written}]}}")
