"""Whose turn it is where a queue, or a kind of jobs, has an ordering of its own.

Jobs of one queue that have the same ordering of their own are a *group*. The ordering of the cluster says when the
group has a turn: it has those that its waiting jobs would have by it. Its own ordering says who takes each. So the
first of the group by its own ordering goes where the cluster's puts the first of them, the second where it puts the
second, and so on: of those who wait, nobody outside the group has more of its jobs before them than without it, and
none inside is passed against its own ordering.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from millpond.scheduling.records import Group, JobRecord

Key = tuple[float, ...]


class Turns:
    """Who waits in each group, and the turns that they have."""

    __slots__ = ("_keys", "_turns")

    def __init__(self) -> None:
        self._keys: dict[Group, list[tuple[Key, int]]] = {}
        """By group, those who wait: key of its own ordering and arrival, sorted."""
        self._turns: dict[Group, list[tuple[float, int]]] = {}
        """By group, the keys that the ordering of the cluster gives them, and arrivals, sorted."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, record: JobRecord) -> None:
        """A job waits from now on."""
        if (group := record.group) is not None:
            insort(self._keys.setdefault(group, []), (record.key, record.sequence))
            insort(self._turns.setdefault(group, []), (record.turn, record.sequence))

    def remove(self, record: JobRecord) -> None:
        """A job waits no longer, or is about to have other keys."""
        if (group := record.group) is not None:
            keys, turns = self._keys[group], self._turns[group]
            del keys[bisect_left(keys, (record.key, record.sequence))]
            del turns[bisect_left(turns, (record.turn, record.sequence))]
            if not keys:
                del self._keys[group], self._turns[group]

    def of(self, record: JobRecord) -> tuple[float, int]:
        """The key and, among equals, the arrival by which a job goes among all others.

        Also of one that does not wait, as if it did.
        """
        group, turn = record.group, (record.turn, record.sequence)
        if group is None:
            return turn
        keys, turns = self._keys.get(group, _NOBODY), self._turns.get(group, _NO_TURNS)
        entry = (record.key, record.sequence)
        place = bisect_left(keys, entry)
        if place < len(keys) and keys[place] == entry:
            return turns[place]
        own = bisect_left(turns, turn)
        if place == own:
            return turn
        return turns[place] if place < own else turns[place - 1]

    def copy_from(self, other: Turns) -> None:
        """Become like those of the same jobs elsewhere."""
        self._keys = {group: list(keys) for group, keys in other._keys.items()}
        self._turns = {group: list(turns) for group, turns in other._turns.items()}


_NOBODY: list[tuple[Key, int]] = []
_NO_TURNS: list[tuple[float, int]] = []
