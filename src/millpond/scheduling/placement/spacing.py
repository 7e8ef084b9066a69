"""Which nodes the next task of a gang may have, by what the gang's tasks must keep between them.

A rule is kept by what is left of the node mask: after each task that is taken, the places that it closes are masked out
for those that follow. For equal tasks and one rule, or rules whose places lie within each other, this finds a way
whenever there is one: the place with the fewest is never closed, so a dead end means that it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.scheduling.placement.arrays import Int64Array, NodeMask


@dataclass(frozen=True, slots=True)
class PlaceTable:
    """The places of one label.

    Attributes:
        of: (nodes,) the number of the place of each node; the last number, ``len(names)``, means none.
    """

    names: dict[str, int]
    of: Int64Array


class _RuleState:
    """One rule, and how many tasks of the gang lie where."""

    def __init__(self, rule: SpacingRule, roles: Sequence[str], places: PlaceTable) -> None:
        self.rule, self.places = rule, places
        self.bound = frozenset(index for index, name in enumerate(roles) if name in rule.roles)
        self.others = frozenset(index for index, name in enumerate(roles) if name in rule.others)
        self._counted = np.zeros(len(places.names) + 1, dtype=np.int64)
        self._elsewhere = [count for name, count in rule.counted if name not in places.names]
        for name, count in rule.counted:
            if name in places.names:
                self._counted[places.names[name]] = count
        self.forget()

    def forget(self) -> None:
        """No task lies anywhere."""
        self._of_bound = np.zeros(len(self._counted), dtype=np.int64)
        self._of_others = np.zeros(len(self._counted), dtype=np.int64)

    def take(self, role: int, node: int) -> None:
        """A task of a role lies on a node."""
        place = self.places.of[node]
        self._of_bound[place] += role in self.bound
        self._of_others[place] += role in self.others

    def pin(self, place: int) -> None:
        """Its tasks lie in this place alone, whether or not one does."""
        self._of_bound[place] += 1

    def open_places(self, role: int) -> NDArray[np.bool_] | None:
        """(places + 1,) whether a task of a role may lie there; None: anywhere."""
        match self.rule.kind:
            case SpacingKind.TOGETHER:
                is_open = self._together() if role in self.bound else None
            case SpacingKind.APART:
                is_open = self._apart(role)
            case SpacingKind.EVEN:
                is_open = self._even(role) if role in self.bound else None
        return is_open

    def _together(self) -> NDArray[np.bool_]:
        has_any = self._of_bound > 0
        is_open: NDArray[np.bool_] = has_any if has_any.any() else np.ones(len(has_any), dtype=np.bool_)
        is_open[-1] = False
        return is_open

    def _apart(self, role: int) -> NDArray[np.bool_] | None:
        if role not in self.bound and role not in self.others:
            return None
        is_open = np.ones(len(self._counted), dtype=np.bool_)
        if role in self.bound:
            is_open &= self._of_others == 0
        if role in self.others:
            is_open &= self._of_bound == 0
        is_open[-1] = True
        return is_open

    def _even(self, role: int) -> NDArray[np.bool_]:
        counts = self._counted + self._of_others
        is_open: NDArray[np.bool_] = counts + (role in self.others) - self._least(counts) <= self.rule.most
        is_open[-1] = False
        return is_open

    def _least(self, counts: Int64Array) -> int:
        """What the place with the fewest has."""
        was_empty = (self._counted == 0) & (counts > 0)
        was_empty[-1] = False
        left = self.rule.empty - int(np.count_nonzero(was_empty))
        if left > 0 or len(self.rule.counted) + self.rule.empty < self.rule.least_places:
            return 0
        there = counts[:-1][counts[:-1] > 0]
        return min([*self._elsewhere, *there.tolist()], default=0)


class Spacing:
    """The rules of one gang, for one try to place it at a time.

    Args:
        roles: the names of the job's roles, by index.
        places: the places of a label.
        lying: role and node of each task that lies there already, both by index.
    """

    def __init__(
        self,
        rules: Sequence[SpacingRule],
        roles: Sequence[str],
        places: Callable[[str], PlaceTable],
        lying: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._rules = [_RuleState(rule, roles, places(rule.label)) for rule in rules]
        self._lying = tuple(lying)
        self._pinned: tuple[_RuleState, int] | None = None
        self.forget()

    def forget(self) -> None:
        """Nothing lies anywhere but what lay there before the try."""
        for rule in self._rules:
            rule.forget()
        for role, node in self._lying:
            self.take(role, node)

    def begin_again(self) -> None:
        """Forget what was taken since the try began; it begins in the same place, see ``starts``."""
        self.forget()
        if self._pinned is not None:
            rule, place = self._pinned
            rule.pin(place)

    def take(self, role: int, node: int) -> None:
        """A task lies on a node."""
        for rule in self._rules:
            rule.take(role, node)

    def within(self, role: int, mask: NodeMask | None) -> NodeMask | None:
        """A mask without the nodes that the next task of a role may not have; None keeps nothing out."""
        for rule in self._rules:
            is_open = rule.open_places(role)
            if is_open is not None:
                allowed = is_open[rule.places.of].astype(np.uint8)
                mask = allowed if mask is None else mask[: len(allowed)] & allowed
        return mask

    def starts(self, free: Int64Array, asked: Sequence[tuple[int, int]] = ()) -> Iterable[None]:
        """Each place in which tasks that must lie together may begin, the fullest first; once where nothing must.

        The try is begun anew with each, and goes on in the loop's body.

        Args:
            free: (nodes,) what is free on the nodes that count.
            asked: of each task its role, and what it needs of that at least; places with less are left out.
        """
        first = next((rule for rule in self._rules if rule.rule.kind is SpacingKind.TOGETHER), None)
        if first is None or any(role in first.bound for role, _ in self._lying):
            self.forget()
            yield
            return
        sums = np.bincount(first.places.of, weights=free, minlength=len(first.places.names) + 1)[:-1]
        least = sum(amount for role, amount in asked if role in first.bound)
        for place in np.argsort(sums, kind="stable").tolist():
            if sums[place] >= least and (sums[place] > 0 or not free.any()):
                self._pinned = first, place
                self.begin_again()
                yield
