"""Jobs that find no room share the cards of others, where that was measured to pay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from worlds import World, asks, gang, machine, queue, single

from ledgers import check_everything
from millpond.model.decisions import Migrate, Start, Stop
from millpond.model.events import (
    JobSubmitted,
    LimitChanged,
    MigrateRequested,
    NodeClosed,
    NodeLost,
    PoolChanged,
    ProgressMeasured,
    StopRequested,
    SuspendRequested,
)
from millpond.model.hardware.nodes import Cordon, Pool
from millpond.model.reasons import Cause
from millpond.model.sharing import ShareClass
from millpond.model.states import JobState, Outcome
from millpond.model.tenancy.tenants import Limit
from millpond.model.workloads import Checkpoint, CheckpointMode, FailureRule, Job, Kind, Priority
from millpond.scheduling.packing.packing import MEASURED_AFTER_S, UNMEASURED_S
from millpond.scheduling.packing.pair_speeds import RUNS_KEPT
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.settings import Settings

PACKS = Pool(packs=True)
SAVES: dict[str, Any] = {"checkpoint": Checkpoint(CheckpointMode.SIGNAL)}


def job(id_: str, name: str = "", cards: int = 1, **fields: Any) -> Job:
    return single(id_, cards, **{"name": name or id_[0], **SAVES, **fields})


def world(cards: int = 2, nodes: int = 1, pool: Pool = PACKS, **fields: Any) -> World:
    return World(*(machine(f"n{number}", cards) for number in range(nodes)), pools=(pool,), **fields)


def measure(here: World, speeds: Mapping[str, float], memory_mib: int | None = 1_000) -> None:
    """What programs report is measured."""
    for job_id, per_s in speeds.items():
        record = here.core.jobs[job_id]
        told = ProgressMeasured(here.now, job_id, record.attempt, per_s, record.gpu_milli, memory_mib=memory_mib)
        here.tell(told)
    here.settle()


def known(here: World, *names: str, memory_mib: int | None = 1_000, **fields: Any) -> None:
    """Jobs of these names ran alone, and ended."""
    for name in names:
        here.submit(job(f"{name}-before", name, **fields))
        measure(here, {f"{name}-before": 10.0}, memory_mib)
        here.end(f"{name}-before")


def pair(**fields: Any) -> World:
    """One card, which a host and a guest have together."""
    here = world(1, **fields)
    known(here, "a", "b")
    here.submit(job("a1"))
    here.submit(job("b1"))
    assert here.running() == {"a1", "b1"}
    return here


def test_a_job_that_waits_shares_the_card_of_one_that_runs() -> None:
    here = pair()
    start = here.of_kind(Start, "b1")[0]
    assert start.cause is Cause.SHARES
    cards = [here.core.jobs[each].tasks[0].placement for each in ("a1", "b1")]
    assert cards[0] is not None
    assert cards[1] is not None
    assert cards[0].grants == cards[1].grants
    for each, other in (("a1", "b1"), ("b1", "a1")):
        assert here.why(each).summary == f"running on n0, run 1; it shares its cards with {other}"
    check_everything(here.core)


def test_both_count_for_their_whole_cards() -> None:
    here = pair(queues=[queue("default", limit=3)])
    assert here.core._state.queues.by_name["default"].gpu_milli == 2_000
    assert here.core._state.cluster.free_gpu_milli == 0


@pytest.mark.parametrize("pool", [Pool(), Pool(packs=True, suspends=True, turn_s=0.0)])
def test_nobody_shares_where_the_pool_does_not_say_so_or_suspends(pool: Pool) -> None:
    here = world(1, pool=pool)
    known(here, "a", "b")
    here.submit(job("a1"), job("b1"))
    assert here.running() == {"a1"}


def test_jobs_share_no_card_before_both_were_measured_alone() -> None:
    here = world(1)
    known(here, "a")
    here.submit(job("a1"), job("b1"), job("a2"))
    assert here.running() == {"a1", "a2"}
    assert here.core.jobs["a2"].packed_with == "a1"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"checkpoint": Checkpoint()},
        {"preemptible": False},
        {"minimum_run_s": 60.0},
        {"kind": Kind.DEV},
        {"kind": Kind.SERVICE},
        {"priority": Priority.LOW},
        {"queue": "other"},
        {"share_class": ShareClass.ONLINE},
        {"cards": 2},
    ],
    ids=str,
)
def test_work_that_may_not_be_asked_to_leave_or_is_no_equal_waits(fields: dict[str, Any]) -> None:
    cards = fields.get("cards", 1)
    here = world(cards, queues=[queue("default"), queue("other")])
    known(here, "a")
    known(here, "b", cards=cards)
    here.submit(job("a1"))
    here.submit(job("b1", **fields) if fields.get("name") != "" else single("b1", 1, **SAVES))
    assert here.running() == {"a1"}
    check_everything(here.core)


def test_memory_that_both_name_has_to_fit() -> None:
    for mib, fits in ((7_000, True), (8_000, False)):
        here = world(1)
        request = asks(1, card_mib=mib)
        for name in ("a", "b"):
            here.submit(gang(f"{name}-before", 1, request, name=name, **SAVES))
            measure(here, {f"{name}-before": 10.0}, memory_mib=None)
            here.end(f"{name}-before")
        here.submit(gang("a1", 1, request, name="a", **SAVES), gang("b1", 1, request, name="b", **SAVES))
        assert (here.running() == {"a1", "b1"}) == fits


@pytest.mark.parametrize(("host_mib", "guest_mib", "fits"), [(7_000, 7_400, True), (7_000, 7_401, False)])
def test_memory_that_was_measured_alone_has_to_fit(host_mib: int, guest_mib: int, fits: bool) -> None:
    here = world(1)
    for name, mib in (("a", host_mib), ("b", guest_mib)):
        known(here, name, memory_mib=mib)
        here.submit(job(f"{name}-smaller"))
        measure(here, {f"{name}-smaller": 10.0}, memory_mib=100)  # takes nothing back
        here.end(f"{name}-smaller")
    here.submit(job("a1"), job("b1"))
    assert here.running() == ({"a1", "b1"} if fits else {"a1"})


@pytest.mark.parametrize(("smaller", "fits"), [(RUNS_KEPT - 1, False), (RUNS_KEPT, True)])
def test_memory_that_the_last_jobs_of_a_name_took_no_more_is_forgotten(smaller: int, fits: bool) -> None:
    here = world(1)
    known(here, "a")
    known(here, "b", memory_mib=15_500)
    for run in range(smaller):
        here.submit(job(f"b{run}-smaller"))
        measure(here, {f"b{run}-smaller": 10.0})
        here.end(f"b{run}-smaller")
    here.core = Scheduler.restore(here.core.snapshot())
    here.submit(job("a1"), job("b1"))
    assert here.running() == ({"a1", "b1"} if fits else {"a1"})


def test_jobs_of_unknown_memory_share_no_card() -> None:
    here = world(1)
    known(here, "a")
    known(here, "b", memory_mib=None)
    here.submit(job("a1"), job("b1"))
    assert here.running() == {"a1"}
    twin = Scheduler.restore(here.core.snapshot())
    assert twin.snapshot() == here.core.snapshot()


def test_a_job_that_was_measured_to_take_more_than_it_names_counts_with_that() -> None:
    here = world(1)
    known(here, "a")
    known(here, "b", memory_mib=15_500)
    here.submit(job("a1"), gang("b1", 1, asks(1, card_mib=2_000), name="b", **SAVES))
    assert here.running() == {"a1"}


def test_a_pair_that_fills_the_memory_of_its_card_ends_at_once_and_is_not_formed_again() -> None:
    here = pair()
    measure(here, {"b1": 9.0}, memory_mib=15_500)
    assert here.running() == {"a1", "b1"}
    measure(here, {"b1": 9.0}, memory_mib=15_550)
    assert here.running() == {"a1"}
    (stop,) = here.of_kind(Stop)
    assert (stop.job, stop.cause) == ("b1", Cause.CARD_MEMORY_FULL)
    here.go_to(5_000.0)
    assert here.running() == {"a1"}
    assert here.core.jobs["b1"].failures == 0
    check_everything(here.core)


def test_a_guest_needs_cpus_and_memory_of_its_own() -> None:
    here = world(1)
    known(here, "a", "b")
    here.submit(gang("a1", 1, asks(1, cpus=40), name="a", **SAVES), gang("b1", 1, asks(1, cpus=40), name="b", **SAVES))
    assert here.running() == {"a1"}
    check_everything(here.core)


def test_a_pair_that_does_not_pay_ends_after_two_minutes_and_is_not_formed_again() -> None:
    here = pair()
    here.now += 30.0
    measure(here, {"a1": 5.2, "b1": 5.1})
    here.go_to(MEASURED_AFTER_S - 1.0)
    assert here.running() == {"a1", "b1"}
    here.go_to(MEASURED_AFTER_S + 1.0)
    assert here.running() == {"a1"}
    (stop,) = here.of_kind(Stop)
    assert (stop.job, stop.cause) == ("b1", Cause.UNPACKED)
    assert (here.core.jobs["b1"].preemptions, here.core.jobs["b1"].failures) == (0, 0)
    here.go_to(5_000.0)
    assert here.running() == {"a1"}
    here.end("a1")
    assert here.running() == {"b1"}
    check_everything(here.core)


def test_a_pair_of_which_one_falls_below_its_floor_ends() -> None:
    here = pair()
    measure(here, {"a1": 10.0, "b1": 4.0})
    here.go_to(MEASURED_AFTER_S + 1.0)
    assert here.running() == {"a1"}


def test_a_good_pair_that_turns_bad_in_mid_run_ends() -> None:
    here = pair()
    measure(here, {"a1": 9.0, "b1": 8.0})
    here.go_to(4_000.0)
    assert here.running() == {"a1", "b1"}
    measure(here, {"b1": 1.0})
    assert here.running() == {"a1"}


@pytest.mark.parametrize("silent", ["a1", "b1"])
def test_one_that_is_never_measured_beside_another_ends_the_pair(silent: str) -> None:
    here = world(1)
    known(here, "a", "b")
    here.submit(job("a1"))
    measure(here, {"a1": 10.0})  # alone, which says nothing of it beside another
    here.now += 1.0
    here.submit(job("b1"))
    measure(here, {"b1" if silent == "a1" else "a1": 9.0})
    here.go_to(here.now + UNMEASURED_S - 1.0)
    assert here.running() == {"a1", "b1"}
    here.go_to(here.now + 2.0)
    assert here.running() == {"a1"}
    here.go_to(5_000.0)
    assert here.running() == {"a1"}


def test_reports_that_cannot_be_true_count_as_none() -> None:
    here = pair()
    measure(here, {"a1": 10.0})
    here.tell(ProgressMeasured(here.now, "b1", 1, None, 1_000, "its steps run back, from 9 to 0"))
    here.go_to(here.now + UNMEASURED_S + 1.0)
    assert here.running() == {"a1"}


def test_what_was_measured_once_is_formed_again_rather_than_what_is_unknown() -> None:
    here = world(2)
    known(here, "a", "b", "c")
    here.submit(job("a1"), job("c1"))
    here.submit(job("b1"))
    other = here.core.jobs["b1"].packed_with
    measure(here, {other: 9.9, "b1": 9.9})
    here.go_to(MEASURED_AFTER_S + 1.0)
    here.end("b1")
    here.submit(job("b2"))
    assert here.core.jobs["b2"].packed_with == other


def test_the_heaviest_pairs_are_formed_of_all_that_wait() -> None:
    """The best single pair would leave the other two with one that does not pay."""
    here = world(2, pool=Pool(), settings=Settings(reserve=False))
    known(here, "a", "b", "c", "d")
    speeds = here.core._state.pair_speeds
    for host, guest, part in (("a", "c", 0.9), ("a", "d", 0.85), ("b", "c", 0.8), ("b", "d", 0.55)):
        kinds = ("", host, "A100", 1), ("", guest, "A100", 1)
        speeds.note_pair(*kinds, (part, part))
    here.submit(job("a1"), job("b1"))
    here.submit(job("c1"), job("d1"))
    here.tell(PoolChanged(here.now, PACKS))
    here.settle()
    assert (here.core.jobs["d1"].packed_with, here.core.jobs["c1"].packed_with) == ("a1", "b1")


# ---- how a pair ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "last"), [("a1", "b1"), ("b1", "a1")])
def test_when_one_ends_the_other_goes_on_alone(first: str, last: str) -> None:
    here = pair()
    here.end(first)
    assert here.state(last) is JobState.RUNNING
    assert here.core.jobs[last].packed_with == ""
    check_everything(here.core)
    here.submit(job("x", "unknown", 1))
    assert here.state("x") is JobState.QUEUED
    here.end(last)
    assert here.state("x") is JobState.RUNNING
    check_everything(here.core)


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.USER_ERROR])
@pytest.mark.parametrize("failed", ["a1", "b1"])
def test_one_that_fails_beside_another_runs_again_without_it(failed: str, outcome: Outcome) -> None:
    here = pair()
    here.end(failed, outcome)
    (other,) = {"a1", "b1"} - {failed}
    assert (here.running(), here.state(failed)) == ({other}, JobState.QUEUED)
    here.go_to(1_000.0)
    assert here.running() == {other}
    here.end(other)
    assert here.running() == {failed}
    here.end(failed, Outcome.USER_ERROR)
    assert here.state(failed) is JobState.FAILED
    check_everything(here.core)


def test_what_a_job_names_as_its_failure_is_its_failure_beside_another_too() -> None:
    here = world(1)
    known(here, "a", "b")
    here.submit(job("a1"))
    here.submit(job("b1", failures=FailureRule(fail_on=("user-error",))))
    here.end("b1", Outcome.USER_ERROR)
    assert here.state("b1") is JobState.FAILED


@pytest.mark.parametrize("gone", ["a1", "b1"])
def test_a_user_stops_one_of_both(gone: str) -> None:
    here = pair()
    here.lingering = {gone}
    here.tell(StopRequested(here.now, gone))
    here.settle()
    check_everything(here.core)
    here.leave(gone)
    assert len(here.running()) == 1
    check_everything(here.core)


@pytest.mark.parametrize("asked", ["a1", "b1"])
def test_one_that_is_suspended_leaves_the_cards_to_the_other(asked: str) -> None:
    here = pair()
    here.tell(SuspendRequested(here.now, asked))
    here.settle()
    assert {each: here.core.jobs[each].packed_with for each in ("a1", "b1")} == {"a1": "", "b1": ""}
    check_everything(here.core)
    (other,) = here.running()
    here.end(other)
    check_everything(here.core)


def test_a_shared_card_is_not_moved_as_it_runs() -> None:
    here = World(machine("n0", 2, remaps=True), pools=(PACKS,))
    known(here, "a", "b")
    here.submit(single("x"), job("a1"), job("b1"))
    here.end("x")
    assert here.core.jobs["b1"].packed_with == "a1"
    here.tell(MigrateRequested(here.now, "b1"))
    here.settle()
    assert not here.of_kind(Migrate)
    assert here.running() == {"a1", "b1"}
    assert here.core.jobs["b1"].packed_with == ""
    assert here.core.jobs["b1"].attempt == 2
    check_everything(here.core)


def test_a_lost_node_ends_both() -> None:
    here = pair()
    here.tell(NodeLost(here.now, "n0"))
    here.settle()
    assert here.running() == set()
    assert {here.state(each) for each in ("a1", "b1")} == {JobState.QUEUED}
    check_everything(here.core)


def test_a_drained_node_is_left_by_both() -> None:
    here = pair()
    here.tell(NodeClosed(here.now, "n0", Cordon(here.now, drain=True)))
    here.settle()
    assert here.running() == set()
    check_everything(here.core)


def test_a_guest_has_cards_for_itself_once_nobody_waits() -> None:
    here = world(2)
    known(here, "a", "b")
    here.submit(single("x", 1), job("a1"), job("b1"))
    assert here.core.jobs["b1"].packed_with == "a1"
    here.end("x")
    assert here.core.jobs["b1"].packed_with == "a1"
    here.go_to(MEASURED_AFTER_S + 1.0)
    assert here.running() == {"a1", "b1"}
    assert here.core.jobs["b1"].packed_with == ""
    assert here.core.jobs["b1"].attempt == 2
    assert [stop.cause for stop in here.of_kind(Stop)] == [Cause.OWN_CARDS_FREE]
    check_everything(here.core)


@pytest.mark.parametrize(("settings", "host"), [(Settings(preempt=True), ""), (Settings(), "a1")])
def test_a_guest_has_idle_cards_that_are_too_few_for_who_waits_unless_they_are_reserved(
    settings: Settings, host: str
) -> None:
    here = world(2, settings=settings)
    known(here, "a", "b")
    here.submit(single("x", 1), job("a1"), job("b1"), single("wide", 2))
    here.go_to(MEASURED_AFTER_S + 1.0)
    assert here.core.jobs["b1"].packed_with == "a1"
    here.end("x")
    assert here.running() == {"a1", "b1"}
    assert here.core.jobs["b1"].packed_with == host
    check_everything(here.core)


def test_a_guest_stays_where_one_that_waits_takes_the_idle_cards() -> None:
    here = world(2)
    known(here, "a", "b")
    here.submit(single("x", 1), job("a1"), job("b1"), single("next", 1))
    here.go_to(MEASURED_AFTER_S + 1.0)
    here.end("x")
    assert here.running() == {"a1", "b1", "next"}
    assert here.core.jobs["b1"].packed_with == "a1"


# ---- others need the cards ---------------------------------------------------------------------------------------


def test_a_higher_class_takes_the_card_from_both() -> None:
    here = pair()
    here.submit(single("urgent", 1, priority=Priority.HIGH))
    assert here.running() == {"urgent"}
    stops = {stop.job: stop.for_job for stop in here.of_kind(Stop)}
    assert stops == {"a1": "urgent", "b1": "urgent"}
    check_everything(here.core)


def test_a_queue_takes_back_its_guarantee_from_both() -> None:
    here = pair(queues=[queue("default"), queue("owed", guarantee=1)])
    here.submit(single("mine", 1, queue="owed"))
    assert here.running() == {"mine"}
    check_everything(here.core)


def test_what_a_guarantee_covers_of_a_pair_stays() -> None:
    here = World(machine("n0", 1), pools=(PACKS,), queues=[queue("default", guarantee=1), queue("other")])
    known(here, "a", "b")
    here.submit(job("a1"), job("b1"))
    here.submit(single("theirs", 1, queue="other"))
    assert here.running() == {"a1", "b1"}


def test_limits_keep_a_guest_out() -> None:
    here = world(1, queues=[queue("default", limit=1)])
    known(here, "a", "b")
    here.submit(job("a1"), job("b1"))
    assert here.running() == {"a1"}
    here = world(1)
    known(here, "a", "b", user="u")
    here.tell(LimitChanged(here.now, Limit("u", "", jobs=1)))
    here.submit(job("a1", user="u"), job("b1", user="u"))
    assert here.running() == {"a1"}
    check_everything(here.core)


def test_running_jobs_come_together_for_one_that_needs_more_cards() -> None:
    here = world(4)
    known(here, "a", "b")
    here.submit(*(job(f"{name}{number}") for name in "ab" for number in (1, 2)))
    assert not any(here.core.jobs[each].packed_with for each in here.running())
    here.submit(single("wide", 2))
    assert here.running() == {"a1", "a2", "b1", "b2", "wide"}
    assert sorted(stop.for_job for stop in here.of_kind(Stop)) == ["wide", "wide"]
    assert {stop.cause for stop in here.of_kind(Stop)} == {Cause.PACKED}
    assert here.of_kind(Start, "wide")[0].cause is Cause.PACKED
    assert all(here.core.jobs[each].packed_with for each in ("a1", "a2", "b1", "b2"))
    check_everything(here.core)


def test_nobody_comes_together_for_one_that_would_not_fit_all_the_same() -> None:
    here = world(4)
    known(here, "a", "b")
    here.submit(*(job(f"{name}{number}") for name in "ab" for number in (1, 2)))
    here.submit(single("wide", 3))
    assert not here.of_kind(Stop)


# ---- before and behind -------------------------------------------------------------------------------------------


def test_a_guest_is_one_after_a_restart_of_the_server_and_in_a_copy() -> None:
    here = pair()
    measure(here, {"a1": 9.0, "b1": 8.0})
    here.go_to(500.0)
    plain = here.core.snapshot()
    for twin in (Scheduler.restore(plain), here.core.fork()):
        check_everything(twin)
        assert twin.snapshot() == plain
        assert twin.jobs["b1"].packed_with == "a1"


def test_pairs_stay_when_the_pool_packs_no_more() -> None:
    here = pair()
    here.tell(PoolChanged(here.now, Pool()))
    here.tell(JobSubmitted(here.now, job("a2")))
    here.settle()
    assert here.running() == {"a1", "b1"}
    check_everything(here.core)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": Kind.DEV}, "only training jobs with a name and one task of whole cards share cards"),
        (
            {"checkpoint": Checkpoint()},
            "it shares no cards, as it does not save itself on notice, or is protected from being asked to leave",
        ),
        ({"priority": Priority.LOW}, "it shares no cards, as no job of its queue and class has as many for itself"),
        ({"name": "new"}, "it shares no cards, as no job of its name was measured alone on such cards"),
        ({}, "it shares no cards, as those who have them were not measured alone"),
    ],
)
def test_a_job_that_finds_no_room_is_told_why_it_shares_no_cards(fields: dict[str, Any], why: str) -> None:
    here = world(1)
    known(here, "b")
    here.submit(job("host"))
    here.submit(job("b1", **{"name": "b", **fields}))
    assert here.running() == {"host"}
    assert here.why("b1").summary.endswith(f", and no node has room; {why}")


@pytest.mark.parametrize(
    ("memory_mib", "beside", "why"),
    [
        (None, 10.0, "it is not known to fit into their memory beside another"),
        (20_000, 10.0, "it is not known to fit into their memory beside another"),
        (1_000, 1.0, "it is expected to be too slow beside another"),
    ],
)
def test_a_job_that_would_not_fit_or_be_too_slow_beside_another_is_told_so(
    memory_mib: int | None, beside: float, why: str
) -> None:
    here = world(1)
    known(here, "a", "b", memory_mib=memory_mib)
    here.submit(job("a1"))
    here.submit(job("b1"))
    if "b1" in here.running():
        measure(here, {"a1": beside, "b1": beside}, memory_mib)
        here.go_to(here.now + MEASURED_AFTER_S + 1.0)
        measure(here, {"a1": beside, "b1": beside}, memory_mib)
        here.end("b1")
        here.submit(job("b2", "b"))
    waiting = "b2" if "b2" in here.core.jobs else "b1"
    assert here.running() == {"a1"}
    assert here.why(waiting).summary.endswith(f"; it shares no cards, as {why}")
    here.tell(PoolChanged(here.now, Pool()))
    assert "shares" not in here.why(waiting).summary
