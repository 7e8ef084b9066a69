"""The cards of jobs that recur and may take longer are kept at caps that were measured to save energy."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import World, asks, elastic, gang, machine, single

from ledgers import check_everything
from millpond.model.decisions import CapPower
from millpond.model.events import PoolChanged, ProgressMeasured, Refused, ResumeRequested, SuspendRequested
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.reasons import Cause
from millpond.model.sharing import ShareClass
from millpond.model.workloads import Checkpoint, CheckpointMode
from millpond.scheduling.capping.known_caps import KEPT_S, STEPS
from millpond.scheduling.scheduler import Scheduler

RANGE_W = (100.0, 260.0)
EACH_STEP_W = 20.0


def cards(count: int = 2, range_w: tuple[float, float] | None = RANGE_W) -> Node:
    return machine("n", count, cap_range_w=range_w)


def job(id_: str, gpus: float = 1, **fields: Any) -> Any:
    return single(id_, gpus, **{"name": "bert", "user": "ada", "max_slowdown": 0.05, **fields})


class Programs:
    """A world whose programs slow down by caps below 200 W, in proportion, and draw as much as they may up to 250 W."""

    def __init__(self, here: World, slow_below_w: float = 200.0) -> None:
        self.here = here
        self.slow_below_w = slow_below_w

    def measure(self, id_: str, after_s: float = 600.0, **fields: Any) -> float:
        """It is measured where it is; returns the cap that it has then."""
        here, record = self.here, self.here.core.jobs[id_]
        here.now += after_s
        cap_w = record.cap_w
        speed = 10.0 * min(1.0, cap_w / self.slow_below_w) if cap_w else 10.0
        power_w = min(cap_w or 250.0, 250.0)
        said = {"steps_per_s": speed, "gpu_milli": 1_000, "power_w": power_w, "cap_w": cap_w, **fields}
        here.tell(ProgressMeasured(here.now, id_, record.attempt, **said))
        here.settle()
        return record.cap_w

    def run(self, id_: str, rounds: int = 8, **fields: Any) -> list[float]:
        """A job is run and measured so often, and ends; returns the caps that it had in turn."""
        self.here.submit(job(id_, **fields))
        found = [self.here.core.jobs[id_].cap_w] + [self.measure(id_) for _ in range(rounds)]
        self.here.end(id_)
        return found


@pytest.fixture
def programs() -> Programs:
    return Programs(World(cards()))


def caps(here: World, id_: str) -> list[tuple[Cause, float]]:
    return [(each.cause, each.cap_w) for each in here.of_kind(CapPower, id_)]


def test_the_first_of_its_kind_has_no_cap_and_the_next_tries_four_and_keeps_the_best(programs: Programs) -> None:
    assert set(programs.run("a")) == {0.0}
    programs.run("b")
    # 180 W is too slow, 220 W is not, and saves less than 200 W; no step is left between these.
    assert caps(programs.here, "b") == [
        (Cause.CAP_TRIED, 180.0),
        (Cause.CAP_LIFTED, 0.0),
        (Cause.CAP_TRIED, 220.0),
        (Cause.CAP_TRIED, 200.0),
    ]
    assert programs.run("c")[0] == 200.0
    check_everything(programs.here.core)


def test_a_settled_job_begins_at_its_cap_and_says_what_that_saves(programs: Programs) -> None:
    for id_ in "abc":
        programs.run(id_)
    programs.here.submit(job("d"))
    (decision,) = programs.here.of_kind(CapPower, "d")
    assert (decision.cause, decision.cap_w, decision.slowdown) == (Cause.CAP_CHOSEN, 200.0, 0.0)
    assert decision.saved == pytest.approx(1.0 - 200.0 / 250.0)
    assert programs.measure("d") == 200.0


def test_a_cap_that_is_too_slow_is_left_at_once_and_what_it_cost_is_earned_before_the_next_is_tried(
    programs: Programs,
) -> None:
    programs.run("a")
    programs.here.submit(job("b"))
    assert programs.measure("b", 900.0) == 180.0
    assert programs.measure("b", 900.0) == 0.0  # a tenth of it is lost: more than it may have lost by then
    assert programs.measure("b", 900.0) == 0.0
    assert programs.measure("b", 100.0) == 220.0


def test_a_run_that_is_too_short_to_pay_for_a_try_has_none(programs: Programs) -> None:
    programs.run("a")
    programs.here.submit(job("b"))
    assert programs.measure("b", 300.0) == 0.0
    assert not caps(programs.here, "b")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_slowdown": 0.0},
        {"name": ""},
        {"gpus": 0.5},
    ],
)
def test_who_allows_no_slow_down_has_no_name_or_a_part_of_a_card_is_never_capped(fields: dict[str, Any]) -> None:
    programs = Programs(World(cards()))
    for id_ in "abc":
        programs.run(id_, **fields)
    assert not programs.here.of_kind(CapPower)


def test_cards_of_unknown_range_and_elastic_jobs_are_never_capped() -> None:
    for node, kind in ((cards(range_w=None), job), (cards(), _elastic)):
        programs = Programs(World(node))
        for id_ in "ab":
            programs.here.submit(kind(id_))
            for _ in range(4):
                programs.measure(id_)
            programs.here.end(id_)
        assert not programs.here.of_kind(CapPower)


@pytest.mark.parametrize(
    ("node", "asked", "why"),
    [
        (cards(range_w=None), job("a"), "its cards have no power cap, as nothing says which caps they can have"),
        (cards(range_w=(200.0, 200.0)), job("a"), "its cards have no power cap, as one cap does not suit all of them"),
        (cards(), job("a", 0), "a job without cards has no power cap"),
        (cards(), job("a", 0.5), "a part of a card has no power cap of its own"),
        (cards(), job("a", name=""), "only training jobs with a name and a fixed size have a power cap"),
        (cards(), job("a"), ""),
        (cards(range_w=None), job("a", max_slowdown=0.0), ""),
    ],
)
def test_a_job_that_may_take_longer_is_told_why_nothing_caps_its_cards(node: Node, asked: Any, why: str) -> None:
    here = World(node)
    here.submit(asked)
    assert here.why("a").summary == "running on n, run 1" + (f"; {why}" if why else "")


def _elastic(id_: str) -> Any:
    return elastic(id_, (1, 2, 2), asks(1), name="bert", max_slowdown=0.05)


def in_pool(*caps_w: tuple[ShareClass, float]) -> PoolChanged:
    return PoolChanged(0.0, Pool(caps_w=caps_w))


def test_in_a_pool_with_a_cap_of_its_own_lower_ones_are_tried_and_no_others() -> None:
    programs = Programs(World(cards()), slow_below_w=140.0)
    programs.here.tell(in_pool((ShareClass.NORMAL, 180.0)))
    programs.run("a")
    assert {cap_w for cap_w in programs.run("b") if cap_w} == {120.0, 130.0, 140.0}


def test_a_cap_of_the_pool_for_other_work_bounds_no_cap_of_a_job(programs: Programs) -> None:
    programs.here.tell(in_pool((ShareClass.BACKFILL, 120.0)))
    programs.run("a")
    assert 220.0 in programs.run("b")


def test_caps_are_learnt_anew_where_the_pool_has_another_cap(programs: Programs) -> None:
    for id_ in "abc":
        programs.run(id_)
    programs.here.tell(in_pool((ShareClass.NORMAL, 180.0)))
    assert set(programs.run("d")) == {0.0}
    programs.here.tell(in_pool())
    assert programs.run("e")[0] == 200.0


def test_in_a_pool_that_keeps_cards_at_the_least_cap_there_is_none_to_try(programs: Programs) -> None:
    programs.here.tell(in_pool((ShareClass.NORMAL, RANGE_W[0])))
    programs.here.submit(job("a"))
    assert programs.here.why("a").summary.endswith("its cards have no power cap, as one cap does not suit all of them")


def test_all_cards_of_a_gang_have_one_cap_and_other_widths_are_learnt_apart(programs: Programs) -> None:
    here = programs.here
    for id_ in ("a", "b"):
        here.submit(gang(id_, 2, asks(1), name="bert", max_slowdown=0.05))
        for _ in range(2):
            programs.measure(id_, 2_000.0, gpu_milli=2_000)
        here.end(id_)
    assert len(here.of_kind(CapPower, "b")) >= 1
    assert set(programs.run("single", user="")) == {0.0}


@pytest.mark.parametrize(
    "lie",
    [
        {"steps_per_s": None, "ignored": "its steps run back, from 9 to 2"},
        {"steps_per_s": 0.0},
    ],
)
def test_a_reporter_that_lies_or_stalls_at_a_cap_loses_it_until_its_end(
    programs: Programs, lie: dict[str, Any]
) -> None:
    programs.run("a")
    programs.here.submit(job("b"))
    assert programs.measure("b", 2_000.0) == 180.0
    assert programs.measure("b", 60.0, **lie) == 0.0
    assert caps(programs.here, "b")[-1] == (Cause.CAP_LIFTED, 0.0)
    assert {programs.measure("b") for _ in range(5)} == {0.0}


def test_a_cap_that_the_driver_does_not_take_is_given_up_after_a_while_and_nothing_is_learnt(
    programs: Programs,
) -> None:
    programs.run("a")
    programs.here.submit(job("b"))
    assert programs.measure("b", 2_000.0) == 180.0
    assert programs.measure("b", 200.0, cap_w=0.0, steps_per_s=10.0, power_w=250.0) == 180.0
    assert programs.measure("b", 200.0, cap_w=0.0, steps_per_s=10.0, power_w=250.0) == 0.0
    programs.here.end("b")
    programs.here.submit(job("c"))
    assert programs.measure("c", 2_000.0) == 180.0, "it is tried again"


def test_an_engine_that_cannot_cap_is_not_asked_again_in_that_run(programs: Programs) -> None:
    programs.run("a")
    here = programs.here
    here.submit(job("b"))
    here.now += 2_000.0
    here.tell(ProgressMeasured(here.now, "b", 1, 10.0, 1_000, power_w=250.0))
    (decision,) = here.tick()
    here.tell(Refused(here.now, decision.id, "cards in pods are not kept at power caps"))
    here.settle()
    assert here.core.jobs["b"].cap_w == 0.0
    assert programs.measure("b", 2_000.0) == 0.0


@pytest.mark.parametrize("guest_slowdown", [0.0, 0.05])
def test_cards_that_a_second_job_comes_to_share_have_no_cap(guest_slowdown: float) -> None:
    programs = Programs(World(cards(1), pools=[Pool(packs=True)]))
    saves = {"checkpoint": Checkpoint(CheckpointMode.SIGNAL)}
    here = programs.here
    for id_ in "abc":
        here.submit(job(id_, **saves))
        for _ in range(8):
            programs.measure(id_, memory_mib=1_000)
        here.end(id_)
    here.submit(job("host", **saves))
    assert programs.measure("host", memory_mib=1_000) == 200.0
    here.submit(job("guest", max_slowdown=guest_slowdown, **saves))
    assert here.core.jobs["guest"].packed_with == "host"
    assert [here.core.jobs[id_].cap_w for id_ in ("host", "guest")] == [0.0, 0.0]
    is_told = here.why("guest").summary.endswith("; cards that two jobs share have no power cap")
    assert is_told is bool(guest_slowdown)
    here.end("guest")
    assert programs.measure("host") == 0.0
    check_everything(here.core)


def test_a_suspended_run_has_no_cap_and_gets_its_own_again_when_it_goes_on(programs: Programs) -> None:
    for id_ in "abc":
        programs.run(id_)
    here = programs.here
    here.submit(job("d"))
    assert here.core.jobs["d"].cap_w == 200.0
    here.tell(SuspendRequested(here.now, "d"))
    here.settle()
    here.tell(ResumeRequested(here.now, "d"))
    here.settle()
    assert caps(here, "d") == [(Cause.CAP_CHOSEN, 200.0)] * 2


def test_a_job_of_the_same_name_that_became_another_program_is_learnt_anew(programs: Programs) -> None:
    for id_ in "abc":
        programs.run(id_)
    here = programs.here
    here.submit(job("d"))
    assert programs.measure("d", steps_per_s=3.0) == 0.0
    here.end("d")
    here.submit(job("e"))
    assert not here.of_kind(CapPower, "e")


def test_what_is_known_is_forgotten_after_two_weeks(programs: Programs) -> None:
    for id_ in "abc":
        programs.run(id_)
    programs.here.now += KEPT_S
    assert set(programs.run("d")) == {0.0}


def test_a_restored_scheduler_goes_on_alike(programs: Programs) -> None:
    programs.run("a")
    here = programs.here
    here.submit(job("b"))
    programs.measure("b", 2_000.0)
    twin = Scheduler.restore(here.core.snapshot())
    assert twin.jobs["b"].cap_w == 180.0
    told = ProgressMeasured(here.now + 60.0, "b", 1, 9.0, 1_000, power_w=180.0, cap_w=180.0)
    for core in (here.core, twin):
        core.handle(told)
    assert here.core.decide(here.now + 60.0) == twin.decide(here.now + 60.0) != []


def test_steps_are_parts_of_the_range_of_the_cards(programs: Programs) -> None:
    assert (RANGE_W[1] - RANGE_W[0]) / STEPS == EACH_STEP_W
    for id_ in "abc":
        programs.run(id_)
    assert {(RANGE_W[1] - each.cap_w) % EACH_STEP_W for each in programs.here.of_kind(CapPower)} == {0.0}
