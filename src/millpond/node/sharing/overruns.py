"""Tasks that have more of a device's time than they may, by the driver's own account of who computes.

A task can write what its gate counts, and what all slices of a device share. So neither is asked: a task that uses the
device beyond its limit is found by the driver's figures alone. Who has far more than its share, while another of its
class says that it waits and has far less than its own, is found by them too; but as that other may have written what it
says, no task is blamed for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.sharing.watched_slices import Escape, EscapeKind, WatchedSlice
from millpond.node.task.records import TaskId

_MOST_OVERRUN_S = 5.0
"""Device time beyond the limit, or the share. A gate stops no kernel: after a long one a slice rests as long as it
must, and the overrun goes down again."""
_SLACK = 0.1
"""Of the device's time: the driver samples, and neighbours' work is in what it sees of each."""
_WAITS = 0.1
"""Of the time between two looks, for which the gate of a slice must have held launches back."""
_WHOLE_MILLI = 1000
_NS_PER_S = 1e9


class Overruns:
    """Adds up device time from look to look."""

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
