"""A task's container as its supervisor sees it: processes, mostly below itself, in a process namespace of their own.

The first of them is not the task's: it passes signals on and collects orphans. Imported by the supervisor, hence light:
standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from millpond.node.host import procfs
from millpond.node.task.start_plan import ContainerPlan

TIDYING_S = 10.0
"""What a runtime has around a container may take so long to put things in order after the container's end."""

_FIRST = "1"
_OUT_OF_MEMORY = "oom"
"""Podman's monitor leaves this where it was started, and podman may look for it elsewhere."""


def lay_out(plan: ContainerPlan) -> None:
    """The files that the runtime is pointed to.

    Raises:
        OSError: the disk is full.
    """
    with os.fdopen(os.open(plan.variables, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(plan.text)
    Path(plan.scratch).mkdir(exist_ok=True, mode=0o700)


def tidy_up(plan: ContainerPlan) -> None:
    """Remove the files that other users must not read."""
    Path(plan.variables).unlink(missing_ok=True)
    shutil.rmtree(plan.scratch, ignore_errors=True)  # what a runtime protects in it goes with the job


def inside(pids: Iterable[int]) -> list[int]:
    """Those that are in a process namespace other than ours."""
    own = _namespace("self")
    return [pid for pid in pids if _namespace(pid) not in (own, "")]


def of_command(pids: Iterable[int]) -> list[int]:
    """Those that hear what a terminal's keys would send: the process group of what the container was started for."""
    there = inside(pids)
    firsts = {pid for pid in there if _numbers(pid)[-1:] == [_FIRST]}
    command = next((pid for pid in there if int((_status(pid, "PPid") or ["0"])[0]) in firsts), None)
    if command is None:
        return sorted(firsts)
    group = _group(command)
    return [pid for pid in there if pid not in firsts and _group(pid) == group]


def hears(pids: Iterable[int], notice: int) -> bool:
    """Whether what the container was started for is there, and a signal that it is sent is not lost.

    What makes its place ignores signals, so that only the command heeds them.
    """
    return any(_numbers(pid)[-1:] != [_FIRST] and not procfs.ignores(pid, notice) for pid in inside(pids))


def kill(plan: ContainerPlan) -> None:
    """End the container where that does not follow from the end of processes that we can reach."""
    if plan.kill:
        _ask(plan, plan.kill)


def was_out_of_memory(plan: ContainerPlan) -> bool:
    """Whether the kernel ended the container for want of memory, as far as its runtime knows."""
    if Path(plan.scratch, _OUT_OF_MEMORY).exists():
        return True
    return bool(plan.out_of_memory) and _ask(plan, plan.out_of_memory).strip() == "true"


def _ask(plan: ContainerPlan, command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, env=plan.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIDYING_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:  # the task's end must be reported all the same
        print(f"the container's runtime cannot be asked: {error}", file=sys.stderr, flush=True)
        return ""
    return done.stdout


def _namespace(pid: int | str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _numbers(pid: int) -> list[str]:
    """Its number in each namespace, ours first (proc(5), ``NSpid``)."""
    return _status(pid, "NSpid")


def _status(pid: int, field: str) -> list[str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith(f"{field}:")), [])


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1
