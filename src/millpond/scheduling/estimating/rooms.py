"""How much room each node of a pool has, of one resource alone; kept by level, so that the tightest is found fast."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

LEVELS = 16

Part = tuple[int, int, bytes]
"""How many tasks, how much each of them takes of one node, and (nodes,) 1 for those that will do."""

Taken = list[tuple[int, int]]
"""Nodes with what was taken of them."""


class Rooms:
    """Free room by node.

    Args:
        free: of each node, in any unit; below 0 counts as none.
        unit: nodes with equally many whole units are one level, beyond ``LEVELS`` units all are.

    Attributes:
        given: nodes that have got more room, one after the other.
    """

    __slots__ = ("_levels", "_place", "_unit", "free", "given")

    def __init__(self, free: Sequence[int], unit: int) -> None:
        self.free = list(free)
        self.given: list[int] = []
        self._unit = unit
        self._levels: list[list[int]] = [[] for _ in range(LEVELS + 1)]
        self._place = [0] * len(self.free)
        for node, amount in enumerate(self.free):
            self._enter(node, self._level(amount))

    def copy(self) -> Rooms:
        """The same, to go on by itself."""
        return Rooms(self.free, self._unit)

    def _level(self, amount: int) -> int:
        return min(max(amount, 0) // self._unit, LEVELS)

    def _enter(self, node: int, number: int) -> None:
        level = self._levels[number]
        self._place[node] = len(level)
        level.append(node)

    def change(self, node: int, amount: int) -> None:
        """Give a node so much more room (below 0: less)."""
        if amount > 0:
            self.given.append(node)
        before = self._level(self.free[node])
        self.free[node] += amount
        after = self._level(self.free[node])
        if before != after:
            level, place = self._levels[before], self._place[node]
            last = level.pop()
            if last != node:
                level[place] = last
                self._place[last] = place
            self._enter(node, after)

    def take(self, parts: Sequence[Part], avoided: Collection[int]) -> Taken | None:
        """Take a place for all parts, each on the tightest node; None, and nothing taken, if there is none."""
        taken: Taken = []
        for count, amount, nodes in parts:
            for _ in range(count):
                node = self.tightest(amount, nodes, avoided)
                if node < 0:
                    self.give(taken)
                    return None
                self.change(node, -amount)
                taken.append((node, amount))
        return taken

    def give(self, taken: Taken) -> None:
        """Give back what was taken."""
        for node, amount in taken:
            self.change(node, amount)

    def tightest(self, amount: int, nodes: bytes, avoided: Collection[int]) -> int:
        """The node that is fullest of those with so much room that will do; below 0 if there is none."""
        free = self.free
        for number in range(self._level(amount), LEVELS + 1):
            for node in self._levels[number]:
                if free[node] >= amount and nodes[node] and node not in avoided:
                    return node
        return -1

    def nodes_of(self, parts: Sequence[Part], ends: Iterable[tuple[float, Taken]]) -> tuple[float, set[int]] | None:
        """The nodes that first have room for all parts, and when; None if they never do.

        Args:
            ends: when what is given back, in order of time.
        """
        free = list(self.free)
        needs = [(amount, will_do) for count, amount, will_do in reversed(parts) for _ in range(count)]
        nodes: set[int] = set()

        def settle(node: int) -> None:
            while needs and free[node] >= needs[-1][0] and needs[-1][1][node]:
                free[node] -= needs.pop()[0]
                nodes.add(node)

        for node in range(len(free)):
            settle(node)
        if not needs:
            return 0.0, nodes
        for at, taken in ends:
            for node, amount in taken:
                free[node] += amount
                settle(node)
            if not needs:
                return at, nodes
        return None


class PartsInVain:
    """Parts for which there was no room when a place was sought, and none was given back since where they could lie.

    Only tasks that ask for equally much fit as before while no node has room for one of them that had none: in which
    order others are laid may matter.
    """

    __slots__ = ("_rooms", "_since")

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._since: dict[tuple[Part, ...], int] = {}

    def add(self, parts: tuple[Part, ...]) -> None:
        """There is no room for them."""
        self._since[parts] = len(self._rooms.given)

    def has(self, parts: tuple[Part, ...], avoided: Collection[int] = ()) -> bool:
        """Whether there is no room for them still.

        Args:
            avoided: as when their place was sought.
        """
        since = self._since.get(parts)
        if since is None:
            return False
        given = self._rooms.given
        if since < len(given):
            (_, amount, will_do), *others = parts
            free = self._rooms.free
            for node in given[since:]:
                if others or (free[node] >= amount and will_do[node] and node not in avoided):
                    del self._since[parts]  # else all these nodes were looked at each time
                    return False
            self._since[parts] = len(given)
        return True

    def clear(self) -> None:
        """Others may have room now."""
        self._since.clear()
