"""Gangs whose tasks must lie together, apart or evenly: placed one after another, within what the rules leave open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Final, Protocol

from millpond.scheduling.placement.arrays import NodeMask
from millpond.scheduling.placement.selector import Choice, Selector
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.placement.spacing import Spacing

MOST_STARTS: Final = 64
"""Places in which tasks that must lie together are tried."""
MOST_ROLE_ORDERS: Final = 6


class Transaction(Protocol):
    """The part of the cluster's transaction that a gang needs; ``apply`` must log the node as changed."""

    def apply(self, node: int, shape: Shape, devices: tuple[int, ...]) -> None:
        """Hold the shape on the devices (by index on the node)."""

    def rollback(self) -> None:
        """Undo every ``apply`` since the transaction began or was last rolled back."""


@dataclass(frozen=True, slots=True)
class SpacedMembers:
    """What the members of a gang must keep between them.

    Attributes:
        roles: of each member, by index, in the order in which members are given.
    """

    roles: tuple[int, ...]
    spacing: Spacing

    def in_order(self, order: Sequence[int]) -> SpacedMembers:
        """The same of the members in another order."""
        return SpacedMembers(tuple(self.roles[index] for index in order), self.spacing)


def place_spaced(
    selector: Selector,
    members: Sequence[Shape],
    spaced: SpacedMembers,
    transaction: Transaction,
    mask: NodeMask,
) -> list[Choice] | None:
    """Choices for all members, in their order, within a mask; None, and nothing taken, if none were found."""
    room = selector.member_room(members[0], mask)
    for order in _orders(spaced.roles):
        for _ in islice(spaced.spacing.starts(room), MOST_STARTS):
            found: dict[int, Choice] = {}
            for index in order:
                role, shape = spaced.roles[index], members[index]
                choice = selector.place(shape, spaced.spacing.within(role, mask))
                if choice is None:
                    break
                transaction.apply(choice.node, shape, choice.devices)
                spaced.spacing.take(role, choice.node)
                found[index] = choice
            if len(found) == len(members):
                return [found[index] for index in range(len(members))]
            transaction.rollback()
    return None


def _orders(roles: Sequence[int]) -> Iterator[list[int]]:
    """Orders of the members by role: as they are, then with other roles first."""
    for roles_first in islice(permutations(dict.fromkeys(roles)), MOST_ROLE_ORDERS):
        place = {role: number for number, role in enumerate(roles_first)}
        yield sorted(range(len(roles)), key=lambda index: place[roles[index]])
