"""Tasks leave their devices with their memory and come back; here real processes on pretended cards."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest
from local_bench import Bench, eventually

from millpond.model.decisions import Grant, Placement, Resume, Start, Suspend, SuspendMode
from millpond.model.events import Confirmed, Ended, Noted, Refused
from millpond.model.reasons import Cause
from millpond.model.sharing import ShareClass
from millpond.model.states import Outcome
from millpond.node.host import procfs
from millpond.node.task.records import TaskId

pytestmark = pytest.mark.end_to_end

CARD_MIB = 32 * 1024
COUNTING = ("sh", "-c", "echo $$ > pid; while :; do :; done")


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """Every node sets host memory for one card aside."""
    return with_host_memory(bench, CARD_MIB)


def with_host_memory(bench: Bench, mib: int) -> Bench:
    nodes = tuple(dataclasses.replace(node, swap_mib=mib) for node in bench.machine.nodes)
    bench.machine = dataclasses.replace(bench.machine, nodes=nodes)
    bench.restart()
    return bench


def start(bench: Bench, job: str, mib: int = CARD_MIB, share_class: ShareClass = ShareClass.NORMAL) -> Start:
    (bench.workdir / job).mkdir()
    bench.define(job, COUNTING, workdir=bench.workdir / job, share_class=share_class)
    placement = Placement(0, "worker", "fake-1", (Grant("FAKE-fake-1-0", 500, 500, mib),))
    decision = Start(bench.next_id(), job, 1, Cause.FITS, (placement,))
    bench.apply(decision)
    return decision


def running(bench: Bench, job: str, mib: int = CARD_MIB, share_class: ShareClass = ShareClass.NORMAL) -> TaskId:
    """Start it, and wait until it counts."""
    decision = start(bench, job, mib, share_class)
    (confirmed,) = bench.events(1)
    assert isinstance(confirmed, Confirmed)
    pid(bench, job)
    return TaskId(decision.job, decision.attempt, 0)


def swap(bench: Bench, job: str) -> None:
    bench.apply(Suspend(bench.next_id(), job, 1, Cause.SUSPEND_REQUESTED, SuspendMode.SWAP))


def resume(bench: Bench, job: str) -> None:
    bench.apply(Resume(bench.next_id(), job, 1, Cause.RESUME_REQUESTED))


def pid(bench: Bench, job: str) -> int:
    return bench.pid_in(f"{job}/pid")


def test_a_swapped_task_halts_and_another_gets_its_memory(bench: Bench) -> None:
    running(bench, "one")
    swap(bench, "one")
    bench.events(1)
    running(bench, "two")
    assert procfs.is_halted(pid(bench, "one"))
    assert not procfs.is_halted(pid(bench, "two"))


def test_it_goes_on_once_there_is_room_again(bench: Bench) -> None:
    running(bench, "one")
    swap(bench, "one")
    bench.events(1)
    resume(bench, "one")
    (confirmed,) = bench.events(1)
    assert isinstance(confirmed, Confirmed)
    assert not procfs.is_halted(pid(bench, "one"))


def test_host_memory_that_does_not_suffice_is_told_in_numbers(bench: Bench) -> None:
    with_host_memory(bench, 1000)
    running(bench, "one")
    swap(bench, "one")
    (refused,) = bench.events(1)
    assert isinstance(refused, Refused)
    assert refused.reason == (
        "its 32 GiB of device memory do not fit into host memory: node fake-1 sets 1000 MiB aside for swapped "
        "work, and 1000 MiB of it are free"
    )
    assert not procfs.is_halted(pid(bench, "one"))


def test_what_the_engine_was_killed_over_is_settled_by_the_next(bench: Bench) -> None:
    task = running(bench, "one")
    swap(bench, "one")
    bench.events(1)
    bench.restart()
    bench.engine.adopt([task], [])
    resume(bench, "one")
    (confirmed,) = bench.events(1)
    assert isinstance(confirmed, Confirmed)
    assert not procfs.is_halted(pid(bench, "one"))


def test_a_task_halted_by_an_engine_that_was_killed_meanwhile_goes_on(bench: Bench) -> None:
    task = running(bench, "one")
    halted = pid(bench, "one")
    bench.engine.close()
    os.kill(halted, signal.SIGSTOP)
    assert eventually(lambda: procfs.is_halted(halted))
    bench.new_engine().adopt([task], [])
    assert eventually(lambda: not procfs.is_halted(halted))


def test_backfill_makes_room_for_the_online_service_and_returns_after_it(bench: Bench) -> None:
    running(bench, "backfill", share_class=ShareClass.BACKFILL)
    start(bench, "online", share_class=ShareClass.ONLINE)
    made_room, _ = sorted(bench.events(2), key=lambda event: isinstance(event, Confirmed))
    assert isinstance(made_room, Noted)
    assert made_room.text == "task 0 made room on its device for online, and waits on the host"
    assert procfs.is_halted(pid(bench, "backfill"))
    bench.stop("online", grace_s=0)
    bench.events(3)
    assert eventually(lambda: not procfs.is_halted(pid(bench, "backfill")))


def test_whoever_does_not_go_first_is_refused_with_the_numbers(bench: Bench) -> None:
    running(bench, "one")
    start(bench, "two", mib=1024)
    (refused,) = bench.events(1)
    assert isinstance(refused, Refused)
    assert refused.device_fault
    assert "device FAKE-fake-1-0 lacks 1024 MiB: 32768 of its 32768 MiB are in use" in refused.reason


def test_a_swapped_task_that_is_told_to_end_does(bench: Bench) -> None:
    running(bench, "one")
    swap(bench, "one")
    bench.events(1)
    bench.stop("one", grace_s=30)
    warned, _, end = bench.events(3)
    assert isinstance(warned, Noted)
    assert "what it asks of its device waits, and it is killed after 30s" in warned.text
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.STOPPED


def test_a_reading_tells_whose_a_slice_is_and_how_much_of_it_is_away(bench: Bench) -> None:
    running(bench, "one", 1024)
    (there,) = bench.engine.slice_readings()
    assert (there.job, there.device) == ("one", "FAKE-fake-1-0")
    assert (there.swapped_mib, there.busy_ns, there.memory_mib) == (0, None, None)
    swap(bench, "one")
    bench.events(1)
    (away,) = bench.engine.slice_readings()
    assert (away.swapped_mib, away.memory_mib) == (1024, 0)
