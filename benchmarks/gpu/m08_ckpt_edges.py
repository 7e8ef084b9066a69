"""What the driver says where a move is difficult or not meant to work, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu import guard, mps
from benchmarks.gpu.bench import Bench, Measurement
from benchmarks.gpu.children import Child, ChildError
from benchmarks.gpu.gated import cut
from benchmarks.gpu.results import Verdict, held
from benchmarks.gpu.swapping import attempt, helper, move, state, undone
from benchmarks.gpu.working import Kind
from millpond.model.errors import UnavailableError
from millpond.node.sharing.helper import CheckpointHelper, DriverError, DriverHungError

_LONG_MS, _SHORT_S = 3000, 0.5
_ANSWER_S = 20.0
_HELD_MIB = 64
_KILLED_MIB = 4096
_INTO_IT_S = 0.05
_NOBODY = 65534
_HALTED = "stopped"


def measure(bench: Bench) -> dict[str, Any]:
    """Each case with programs of its own."""
    said: dict[str, Any] = {}
    with helper(bench) as driver:
        for case in _CASES:
            with bench.passing():
                try:
                    said[case.__name__.strip("_")] = case(bench, driver)
                except UnavailableError as error:
                    said[case.__name__.strip("_")] = {"not tried": str(error)}
                except ChildError as error:
                    said[case.__name__.strip("_")] = {"child": error.name}
                bench.journal.case(case.__name__.strip("_"), said[case.__name__.strip("_")])
    with bench.passing():
        afterwards = bench.child().ask("repeat", kind=Kind.TINY, count=1) > 0
    return {"cases": said, "works_afterwards": afterwards}


def judge(figures: Mapping[str, Any]) -> Verdict:
    """No line for what the driver refuses; it has to answer, and the card has to be well afterwards.

    A thread of the driver within the program answers, so of one that is halted there is no answer: the node never asks.
    """
    hung = [name for name, said in figures["cases"].items() if "hung" in said.values() and name != _HALTED]
    return held(
        (not hung, f"the driver hung: {', '.join(hung)}"),
        (figures["works_afterwards"], "the card did not work afterwards"),
    )


def _managed(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    child = bench.child()
    child.ask("managed", mib=min(guard.MANAGED_MIB, bench.free_mib()))
    return _tried(child, driver)


def _exported(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    child = bench.child()
    child.ask("hold", mib=_HELD_MIB)
    child.ask("export")
    return _tried(child, driver)


def _stopped(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    child = bench.child()
    child.signal(signal.SIGSTOP)
    try:
        said = attempt(driver, child.pid)
    finally:
        child.signal(signal.SIGCONT)
    return said | _goes_on(child)


def _busy(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    """A kernel runs longer than the lock may take."""
    child = bench.child()
    child.ask("launch", microseconds=_LONG_MS * 1000)
    return attempt(driver, child.pid, lock_timeout_s=_SHORT_S) | _goes_on(child)


def _forked(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    """A child of the program that never used the card, and the program itself."""
    child = bench.child()
    forked = child.ask("fork")
    return {"fork": state(driver, forked), **_tried(child, driver)}


def _without_cuda(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    return attempt(driver, bench.child(started=False).pid)


def _held_in_the_gate(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    """A thread waits in the gate, as the task is paused; does the driver's lock return?"""
    part = cut(bench, "paused")
    child = bench.child(part.env)
    part.region.set(paused=True)
    child.ask("launch_aside", microseconds=100)
    time.sleep(_INTO_IT_S)
    said = attempt(driver, child.pid)
    part.region.set(paused=False)
    return said | _goes_on(child)


def _killed_in_the_middle(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    child, said = bench.child(), {}
    child.ask("hold", mib=min(_KILLED_MIB, bench.free_mib() // 2))
    move(driver, child.pid, "lock")

    def leave() -> None:
        try:
            move(driver, child.pid, "checkpoint")
            said["checkpoint"] = "ok"
        except DriverError as error:
            said["checkpoint"] = error.name
        except DriverHungError:
            said["checkpoint"] = "hung"

    mover = threading.Thread(target=leave)
    mover.start()
    time.sleep(_INTO_IT_S)
    child.kill()
    mover.join()
    return said | {"state": state(driver, child.pid), "left_mib": bench.mib_of(child.pid)}


def _helper_killed(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    """Who asked the driver to move a program dies in the middle of it; can another bring the program back?"""
    child = bench.child()
    child.ask("hold", mib=min(_KILLED_MIB, bench.free_mib() // 2))
    before = child.ask("checksum")
    with helper(bench) as other:
        move(other, child.pid, "lock")

        def leave() -> None:
            with contextlib.suppress(DriverHungError, DriverError):
                move(other, child.pid, "checkpoint")

        mover = threading.Thread(target=leave)
        mover.start()
        time.sleep(_INTO_IT_S)
        other.close()
        mover.join()
    said = {"state": state(driver, child.pid), "left_mib": bench.mib_of(child.pid)}
    said |= {f"then {step}": answer for step, answer in undone(driver, child.pid).items()}
    said |= _goes_on(child)
    return said | {"equal": said["goes on"] is True and child.ask("checksum") == before}


def _other_user(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    """A program that runs as nobody, moved by root."""
    if os.geteuid() != 0:
        return {"not tried": "only root starts programs of others"}
    try:
        child = bench.child(user=_NOBODY)
    except OSError as error:
        return {"not tried": f"another user cannot start the interpreter: {error}"}
    return _tried(child, driver)


def _gated(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    """A program in a slice that computes."""
    child = bench.child(cut(bench, "gated").env)
    child.ask("repeat", kind=Kind.SMALL, count=10)
    return _tried(child, driver)


def _under_mps(bench: Bench, driver: CheckpointHelper) -> dict[str, Any]:
    with mps.pack(bench) as pack, bench.passing():
        return _tried(bench.child(pack.client()), driver)


def _tried(child: Child, driver: CheckpointHelper) -> dict[str, Any]:
    return attempt(driver, child.pid) | _goes_on(child)


def _goes_on(child: Child) -> dict[str, Any]:
    child.send("repeat", kind=Kind.TINY, count=1)
    try:
        return {"goes on": child.answer(_ANSWER_S) > 0}
    except ChildError as error:
        return {"goes on": error.name}


_CASES = (
    _managed,
    _exported,
    _stopped,
    _busy,
    _forked,
    _without_cuda,
    _gated,
    _held_in_the_gate,
    _other_user,
    _helper_killed,
    _killed_in_the_middle,
    _under_mps,
)

MEASUREMENT = Measurement(
    "m08_ckpt_edges",
    "what the driver says where a move is difficult, and what it leaves",
    "it answers every time, and the card works afterwards",
    45,
    measure,
    judge,
)
