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
from dataclasses import dataclass
from enum import StrEnum

from millpond.model.decisions import Grant
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.sharing import ShareClass
from millpond.node.sharing.backend import SliceUsage
from millpond.node.task.records import TaskId

LOOK_EVERY_S = 0.8
"""Two looks, and what is done about it, within two seconds."""

_UNCOUNTED_MIB = 512
"""What the driver may take for each process of a full slice that no call asks for, as code that is loaded late: what it
took before counts against the slice (``SliceEnforcer.match_driver``), so a program is refused before it gets so far."""
_MOST_OVERRUN_S = 5.0
"""Device time beyond the limit, or the share. A gate stops no kernel: after a long one a slice rests as long as it
must, and the overrun goes down again."""
_SLACK = 0.1
"""Of the device's time: the driver samples, and neighbours' work is in what it sees of each."""
_WAITS = 0.1
"""Of the time between two looks, for which the gate of a slice must have held launches back."""
_WHOLE_MILLI = 1000
_NS_PER_S = 1e9


class EscapeKind(StrEnum):
    """How a task got out of its slice."""

    UNGATED = "ungated"
    """A process of it is on the device, and no gate counts it."""
    OVERDRAWN = "overdrawn"
    """It has more device memory than its slice."""
    TAMPERED = "tampered"
    """The control words of its gate were changed; the agent has restored them."""
    OVERRUN = "overrun"
    """It has used the device for longer than its limit lets it."""
    UNFAIR = "unfair"
    """It has far more of a device than its share, and others that wait far less; by whose doing is not known."""
    DISTURBED = "disturbed"
    """What the slices of its device share was changed, by which of them is not known; the agent has restored it."""


@dataclass(frozen=True, slots=True)
class Escape:
    """One task beyond its slice.

    Attributes:
        text: what was seen, for people.
    """

    task: TaskId
    kind: EscapeKind
    text: str


@dataclass(frozen=True, slots=True)
class WatchedSlice:
    """A slice under watch.

    Attributes:
        pids: all processes of the task.
        usage: what its hold counts.
    """

    task: TaskId
    grant: Grant
    pids: frozenset[int]
    usage: SliceUsage
    share_class: ShareClass = ShareClass.NORMAL


class Overruns:
    """Adds up device time from look to look.

    A task can write what its gate counts, and what all slices of a device share. So neither is asked: a task that uses
    the device beyond its limit is found by the driver's figures alone. Who has far more than its share, while another
    of its class says that it waits and has far less than its own, is found by them too; but as that other may have
    written what it says, no task is blamed for it.
    """

    def __init__(self) -> None:
        self._beyond_s: dict[tuple[TaskId, EscapeKind], float] = {}
        self._waited_ns: dict[TaskId, int] = {}
        self._looked_at: float | None = None

    def look(self, samples: Sequence[DeviceSample], held: Sequence[WatchedSlice], now: float) -> list[Escape]:
        """Who has used a device for far too long.

        Args:
            now: seconds, monotonic.
        """
        passed_s = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        uses, waits = _uses(samples, held), self._waits(held, passed_s)
        beyond = {(each.task, EscapeKind.OVERRUN): uses[each.task] - _limit(each) for each in held if _limit(each) < 1}
        beyond |= {(each.task, EscapeKind.UNFAIR): _unfair(each, held, uses, waits) for each in held}
        before = self._beyond_s
        self._beyond_s = {
            key: max(0.0, before.get(key, 0.0) + (part - _SLACK) * passed_s) for key, part in beyond.items()
        }
        kinds = (EscapeKind.OVERRUN, EscapeKind.UNFAIR)
        found = [(each, kind, self._beyond_s.get((each.task, kind), 0.0)) for each in held for kind in kinds]
        return [_escape(each, kind, seconds) for each, kind, seconds in found if seconds > _MOST_OVERRUN_S]

    def _waits(self, held: Sequence[WatchedSlice], passed_s: float) -> frozenset[TaskId]:
        """Whose launches were held back since the last look."""
        waited_ns = {each.task: each.usage.waited_ns or 0 for each in held}
        before, self._waited_ns = self._waited_ns, waited_ns
        least_ns = max(passed_s * _WAITS * _NS_PER_S, 1.0)
        return frozenset(task for task, now in waited_ns.items() if now - before.get(task, now) >= least_ns)


def _uses(samples: Sequence[DeviceSample], held: Sequence[WatchedSlice]) -> Mapping[TaskId, float]:
    """Parts of the device's time; what the driver sees of all together is no more than there is."""
    rows = {sample.device: sample.processes or () for sample in samples}
    whole = {device: max(1.0, sum(row.use_milli or 0 for row in seen) / _WHOLE_MILLI) for device, seen in rows.items()}
    return {
        each.task: sum(row.use_milli or 0 for row in rows.get(each.grant.device, ()) if row.pid in each.pids)
        / _WHOLE_MILLI
        / whole.get(each.grant.device, 1.0)
        for each in held
    }


def _limit(part: WatchedSlice) -> float:
    return part.grant.limit_milli / _WHOLE_MILLI


def _unfair(
    part: WatchedSlice, held: Sequence[WatchedSlice], uses: Mapping[TaskId, float], waits: frozenset[TaskId]
) -> float:
    """How much a slice has beyond its share, if another of its class waits and has far less; below 0 where it has not.

    Shares are of what the class has, in proportion to the guarantees of those that use the device or wait for it.
    """
    peers = [
        each
        for each in held
        if (each.grant.device, each.share_class) == (part.grant.device, part.share_class)
        and (each.task in waits or uses[each.task] > _SLACK)
    ]
    all_milli, all_use = sum(each.grant.compute_milli for each in peers), sum(uses[each.task] for each in peers)
    if not all_milli or part not in peers:
        return -1.0

    def lacks(each: WatchedSlice) -> float:
        share = min(all_use * each.grant.compute_milli / all_milli, _limit(each))
        return share - uses[each.task]

    is_harmful = any(each.task in waits and lacks(each) > 2 * _SLACK for each in peers)
    return -lacks(part) if is_harmful else -1.0


def _escape(part: WatchedSlice, kind: EscapeKind, seconds: float) -> Escape:
    device = part.grant.device
    if kind is EscapeKind.OVERRUN:
        text = f"it used device {device} for {seconds:.0f} s more than its limit of {_limit(part):.0%} lets it"
    else:
        text = f"it used device {device} for {seconds:.0f} s more than its share, while another task waited for its own"
    return Escape(part.task, kind, text)


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
