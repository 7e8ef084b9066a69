"""Tasks that use a device beyond their slices, by the driver's own account of who is on it.

A gate is loaded by a variable of the environment, so a program can come to run without it: started by ``env -i``,
linked statically, with the variable unset or the driver's library opened by its path. The driver sees every process all
the same. What it says is compared with what the gates count: a process on the device that no gate knows, and a task
with more device memory than its slice.

Programs that start are seen by the driver a moment before or after their gate counts them, so only what two looks in a
row find is an escape. Changed words of the gate need no second look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.sharing.overruns import Overruns
from millpond.node.sharing.watched_slices import Escape, EscapeKind, WatchedSlice
from millpond.node.task.records import TaskId

LOOK_EVERY_S = 0.8
"""Two looks, and what is done about it, within two seconds."""

_UNCOUNTED_MIB = 512
"""What the driver may take for each process of a full slice that no call asks for, as code that is loaded late: what it
took before counts against the slice (``SliceEnforcer.match_driver``), so a program is refused before it gets so far."""

_AT_ONCE = (EscapeKind.TAMPERED, EscapeKind.DISTURBED, EscapeKind.OVERRUN, EscapeKind.UNFAIR)
"""What one look makes certain."""


def seen(samples: Iterable[DeviceSample], held: Sequence[WatchedSlice]) -> list[Escape]:
    """What one look at the devices shows; nothing of devices whose driver does not name processes."""
    rows = {sample.device: sample.processes for sample in samples if sample.processes is not None}
    on_device = Counter(each.grant.device for each in held)
    found = []
    for each in held:
        own = [process for process in rows.get(each.grant.device, ()) if process.pid in each.pids]
        ungated = sorted(process.pid for process in own if process.pid not in each.usage.pids)
        if ungated:
            named = ", ".join(map(str, ungated[:3])) + (" …" if len(ungated) > 3 else "")
            text = f"process {named} is on device {each.grant.device} without the gate that its slice stands for"
            found.append(Escape(each.task, EscapeKind.UNGATED, text))
        if each.usage.tampered:
            found.append(Escape(each.task, EscapeKind.TAMPERED, "what its gate goes by was changed, and put right"))
        elif each.usage.disturbed:
            alone = on_device[each.grant.device] == 1
            text = f"what the slices of device {each.grant.device} share was changed by one of them, and put right"
            found.append(Escape(each.task, EscapeKind.TAMPERED if alone else EscapeKind.DISTURBED, text))
        used = sum(process.memory_mib or 0 for process in own)
        if used > each.grant.memory_mib + _UNCOUNTED_MIB * len(own):
            text = f"it has {used} MiB of device {each.grant.device}, and its slice is {each.grant.memory_mib} MiB"
            found.append(Escape(each.task, EscapeKind.OVERDRAWN, text))
    return found


class EscapeHistory:
    """Remembers what was seen, and reports each escape once."""

    def __init__(self) -> None:
        self._suspected: set[tuple[TaskId, EscapeKind]] = set()
        self._reported: set[tuple[TaskId, EscapeKind]] = set()
        self._overruns = Overruns()

    def look(self, samples: Sequence[DeviceSample], held: Sequence[WatchedSlice], now: float) -> list[Escape]:
        """The escapes that this look makes certain.

        Args:
            now: seconds, monotonic.
        """
        escapes = [*seen(samples, held), *self._overruns.look(samples, held, now)]
        by_key: Mapping[tuple[TaskId, EscapeKind], Escape] = {(escape.task, escape.kind): escape for escape in escapes}
        at_once = {key for key in by_key if key[1] in _AT_ONCE}
        certain = ((by_key.keys() & self._suspected) | at_once) - self._reported
        self._suspected = set(by_key)
        self._reported |= certain
        self._reported = {key for key in self._reported if key[0] in {each.task for each in held}}
        return [by_key[key] for key in sorted(certain, key=lambda key: (key[0].job, key[0].task, key[1]))]


def driver_mib(samples: Iterable[DeviceSample], held: Sequence[WatchedSlice]) -> list[tuple[WatchedSlice, int]]:
    """What the driver says that each task has of its device, where it tells of all processes."""
    rows = {sample.device: sample.processes for sample in samples if sample.processes}
    found = []
    for each in held:
        own = [process.memory_mib for process in rows.get(each.grant.device, ()) if process.pid in each.pids]
        if own and None not in own:
            found.append((each, sum(mib or 0 for mib in own)))
    return found
