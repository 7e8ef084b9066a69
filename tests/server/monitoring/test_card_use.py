"""What jobs make of their cards: what counts as used, as idle, and as not measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fresh_databases import fresh_sqlite
from server_world import Clock

from job_infos import job_info
from millpond.model.energy import J_PER_KWH, DeclaredPower, EnergyRates, EnergySum, RateSeries
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.vendor import STALE_AFTER_S
from millpond.server.monitoring.card_use import CardUseRecorder, CardUseSources
from millpond.server.monitoring.idle_cards import IdleCards
from millpond.server.monitoring.telemetry.sampling import Sampled
from millpond.server.monitoring.telemetry.slices import SliceKey, SliceUse
from millpond.server.store.statistics.books import UsageFilter
from millpond.server.store.store import Store
from millpond.specs.api.jobs.jobs import DeviceGrant, JobInfo, TaskInfo
from millpond.specs.calendar_spans import day_begin

NOON = day_begin("2026-11-20") + 12 * 3600.0


class Cards:
    """Jobs on cards, and a recorder that looks at them every ten seconds."""

    def __init__(self, store: Store) -> None:
        self.clock = Clock(NOON)
        self.store = store
        self.jobs: list[JobInfo] = []
        self.uses: dict[str, int | None] = {}
        self.power_w: dict[str, float] = {}
        self.rates = EnergyRates()
        self.slices: dict[SliceKey, SliceUse] = {}
        self.samples: dict[str, list[Sampled]] = {}
        sources = CardUseSources(
            lambda: self.jobs, lambda card: self.samples.get(card, []), lambda: self.slices, lambda: self.rates
        )
        self.idle = IdleCards()
        self.recorder = CardUseRecorder(store.card_use, sources, self.idle, self.clock)
        self.recorder.look()

    def run(self, job: str, card: str, milli: int = 1000, **fields: Any) -> JobInfo:
        """A job of ada's runs from now on."""
        grant = DeviceGrant(uuid=card, index=0, model="V100", compute_milli=milli, limit_milli=milli, memory_mib=1)
        task = TaskInfo(task=0, role="worker", state="running", node="n1", devices=[grant])
        begun = {"submitted_at": self.clock.now, "started_at": self.clock.now, "group": "vision"}
        info = job_info(id=job, name=job, tasks=[task], **begun | fields)
        self.jobs.append(info)
        return info

    def go_on(self, seconds: float) -> None:
        """Time passes, with a sample of each card each second and a look every ten."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += 1
            for card, use in self.uses.items():
                sample = DeviceSample(card, use_milli=use, power_w=self.power_w.get(card))
                self.samples.setdefault(card, []).append(Sampled(self.clock.now, sample))
            if self.clock.now % 10 == 0:
                self.recorder.look()
        self.recorder.store()

    def sums(self, since: float = 0.0, until: float = 1e12, **only: str) -> tuple[float, float, float]:
        """Seconds that were measured, used and idle."""
        found = self.store.card_use.sums("user", since, until, UsageFilter(only=only)).get(("ada", "V100"))
        return (0.0, 0.0, 0.0) if found is None else (found.measured_gpu_s, found.busy_gpu_s, found.idle_gpu_s)

    def energy(self, job: str) -> EnergySum:
        """What a job drew."""
        return self.store.card_use.sums("job", 0.0, 1e12)[job, "V100"].energy


@pytest.fixture
def cards(tmp_path: Path) -> Cards:
    return Cards(Store(fresh_sqlite(tmp_path)))


def test_a_card_that_computes_half_of_the_time_is_half_used_and_never_idle(cards: Cards) -> None:
    cards.uses["a"] = 500
    cards.run("one", "a")
    cards.go_on(100)
    assert cards.sums() == pytest.approx((100, 50, 0))


def test_a_card_that_hardly_computes_is_idle_as_is_one_of_frozen_work(cards: Cards) -> None:
    cards.uses |= {"a": 40, "b": 0}
    cards.run("one", "a")
    frozen = cards.run("two", "b")
    cards.jobs[1] = replace(frozen, state="suspended", tasks=[replace(frozen.tasks[0], state="frozen")])
    cards.go_on(50)
    assert cards.sums() == pytest.approx((100, 2, 100))


@pytest.mark.parametrize("state", ["swapped", "starting", "succeeded"])
def test_what_is_not_on_its_cards_is_not_measured(cards: Cards, state: str) -> None:
    cards.uses["a"] = 0
    job = cards.run("one", "a")
    cards.jobs[0] = replace(job, tasks=[replace(job.tasks[0], state=state)])
    cards.go_on(50)
    assert cards.sums() == (0, 0, 0)


def test_a_card_whose_driver_does_not_tell_is_not_measured(cards: Cards) -> None:
    cards.uses["a"] = None
    cards.run("one", "a")
    cards.run("two", "no-samples-at-all")
    cards.go_on(50)
    assert cards.sums() == (0, 0, 0)


def test_who_has_a_part_of_a_card_alone_is_measured_by_that_part(cards: Cards) -> None:
    cards.uses["a"] = 250
    cards.run("one", "a", milli=500)
    cards.go_on(100)
    assert cards.sums() == pytest.approx((50, 25, 0))


def test_of_a_shared_card_that_computes_only_those_are_measured_whose_part_is_known(cards: Cards) -> None:
    cards.uses["a"] = 300
    cards.run("known", "a", milli=500)
    cards.run("unknown", "a", milli=500)
    cards.slices[SliceKey("known", 1, 0, "a")] = SliceUse(use_milli=250)
    cards.go_on(100)
    assert cards.sums() == pytest.approx((50, 25, 0))
    cards.uses["a"] = 0  # then both are idle
    cards.go_on(100)
    assert cards.sums() == pytest.approx((150, 25, 100))


def test_what_ran_for_less_than_the_time_between_two_looks_counts_from_its_start(cards: Cards) -> None:
    cards.uses["a"] = 1000
    cards.go_on(6)
    cards.run("one", "a")
    cards.go_on(4)
    assert cards.sums() == pytest.approx((4, 4, 0))


def test_a_machine_that_slept_measured_nothing(cards: Cards) -> None:
    cards.uses["a"] = 1000
    cards.run("one", "a")
    cards.clock.now += 1_000
    cards.go_on(100)
    assert cards.sums() == pytest.approx((90, 90, 0))


def test_each_day_has_its_own_part_and_a_restart_goes_on_with_it(cards: Cards) -> None:
    cards.clock.now = midnight = day_begin("2026-11-21")
    cards.clock.now -= 50
    cards.recorder.look()
    cards.uses["a"] = 1000
    cards.run("one", "a")
    cards.go_on(100)
    again = CardUseRecorder(cards.store.card_use, cards.recorder._sources, cards.idle, cards.clock)
    again.look()
    cards.recorder = again
    cards.go_on(50)
    assert cards.sums(until=midnight) == pytest.approx((50, 50, 0))
    assert cards.sums(since=midnight) == pytest.approx((100, 100, 0))
    assert cards.sums(since=midnight, until=midnight + 50) == pytest.approx((50, 50, 0))


def test_sums_can_be_asked_for_of_one_group_or_kind(cards: Cards) -> None:
    cards.uses["a"] = 1000
    cards.run("one", "a")
    cards.go_on(10)
    assert cards.sums(group="vision", kind="train") == cards.sums()
    assert cards.sums(group="") == (0, 0, 0)


def test_the_energy_of_a_card_is_what_it_reports_at_the_price_of_that_time(cards: Cards) -> None:
    cards.rates = EnergyRates(RateSeries((NOON, NOON + 50), (0.2, None), NOON + 1_000), RateSeries.constant(400.0))
    cards.uses["a"], cards.power_w["a"] = 1000, 300.0
    cards.run("one", "a")
    cards.go_on(100)
    drawn = cards.energy("one")
    assert (drawn.known_gpu_s, drawn.energy_j, drawn.declared_j) == pytest.approx((100, 30_000, 0))
    assert (drawn.cost, drawn.priced_j) == pytest.approx((0.2 * 15_000 / J_PER_KWH, 15_000))
    assert (drawn.co2_g, drawn.carbon_j) == pytest.approx((400 * 30_000 / J_PER_KWH, 30_000))


def test_those_that_share_a_card_share_all_of_its_energy(cards: Cards) -> None:
    cards.uses["a"], cards.power_w["a"] = 900, 200.0
    cards.run("large", "a", milli=600)
    cards.run("small", "a", milli=200)
    cards.go_on(100)
    assert cards.energy("large").energy_j == pytest.approx(15_000)
    assert cards.energy("small").energy_j == pytest.approx(5_000)


def test_a_card_that_reports_no_power_has_the_declared_one_or_none_at_all(cards: Cards) -> None:
    cards.uses |= {"a": 500, "b": None}
    cards.run("one", "a")
    cards.run("two", "b")
    cards.go_on(10)
    assert cards.energy("one") == EnergySum()
    cards.rates = EnergyRates(cards={"V100": DeclaredPower(50.0, 250.0)})
    cards.go_on(10)
    assert cards.energy("one").energy_j == cards.energy("one").declared_j == pytest.approx(1_500)
    assert cards.energy("two").declared_j == pytest.approx(2_500)  # its use is unknown too: all the time


def test_since_when_a_held_card_is_idle_is_known_for_longer_than_its_samples_are_kept(cards: Cards) -> None:
    cards.uses |= {"a": 900, "b": 0}
    cards.run("one", "a")
    cards.go_on(50)
    assert cards.idle.since == {}, "one computes, the other is not held"
    cards.uses["a"] = 20
    idle_since = cards.clock.now + 1
    cards.go_on(1_000)
    cards.samples["a"] = cards.samples["a"][-5:]
    cards.go_on(1_000)
    assert cards.idle.since == {"a": idle_since}
    cards.uses["a"] = 900
    cards.go_on(10)
    assert cards.idle.since == {}


def test_a_card_that_is_sampled_less_often_than_it_is_looked_at_stays_idle_until_its_samples_are_too_old(
    cards: Cards,
) -> None:
    cards.uses["a"] = 0
    cards.run("one", "a")
    cards.go_on(20)
    known = dict(cards.idle.since)
    assert known
    cards.uses.clear()
    cards.go_on(STALE_AFTER_S)
    assert cards.idle.since == known
    cards.go_on(10)
    assert cards.idle.since == {}


@pytest.mark.parametrize("ends", ["the job", "what the driver says", "the wakefulness of the machine"])
def test_of_a_card_of_which_nothing_is_known_any_more_it_is_not_said_that_it_is_idle(cards: Cards, ends: str) -> None:
    cards.uses["a"] = 0
    cards.run("one", "a")
    cards.go_on(700)
    assert cards.idle.since
    if ends == "the job":
        cards.jobs.clear()
    elif ends == "what the driver says":
        cards.uses["a"] = None
    else:
        cards.clock.now += 1_000
    cards.go_on(10)
    assert cards.idle.since == {}
