"""An idle card gets another layout (MIG): nothing starts on it from the decision to what its node says it came to."""

from __future__ import annotations

from millpond.model.errors import ConflictError, NotFoundError
from millpond.model.events import CardLayoutChanged
from millpond.model.hardware.card_layouts import LayoutChange, LayoutChangeState
from millpond.scheduling.cycle.claims import Claims
from millpond.scheduling.nodes.layout_planner import idle_cards
from millpond.scheduling.state import State


def change_layout(state: State, claims: Claims, event: CardLayoutChanged) -> None:
    """Take a card out of use while it is divided, or back into use as it is now.

    The end of a change that is not under way says nothing and is ignored.

    Raises:
        NotFoundError: there is no such node.
        ConflictError: the card may not have this layout, or anything holds any of it.
    """
    cards = state.card_cordons
    last = cards.layout_changes.get(event.card)
    is_changing = last is not None and last.state is LayoutChangeState.CHANGING
    if event.state is LayoutChangeState.CHANGING:
        _require_idle(state, claims, event)
        if is_changing:
            raise ConflictError(f"card {event.card!r} is being divided already", "wait until that is over")
    elif not is_changing:
        return
    change = LayoutChange(event.state, event.at, event.node, event.layout, event.for_job, event.detail)
    cards.change_layout(event.card, change)


def _require_idle(state: State, claims: Claims, event: CardLayoutChanged) -> None:
    node = state.cluster.node_named(event.node)
    if node is None:
        raise NotFoundError(f"no node {event.node!r}", "`pond nodes` lists them")
    allowed = next((each for each in node.divisible if each.card == event.card), None)
    if allowed is None or all(layout.instances != event.layout for layout in allowed.layouts):
        raise ConflictError(
            f"card {event.card!r} may not be divided so", "list the layout in the configuration (pools: mig)"
        )
    if event.card not in idle_cards(state, claims, node):
        raise ConflictError(f"card {event.card!r} has work", "it is divided once it is idle")
