"""What is to be changed, read from a request: events that happen first in the play with the change.

All is checked on a copy of the core, so an unknown name, a value that is refused and a change that is none are errors
of the request, before anything is played.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.model.events import Event, NodeClosed, NodeJoined
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Cordon, Node, amount_of_nodes
from millpond.model.policy_trials import PolicyOverrides
from millpond.model.resources import Amount
from millpond.scheduling.scheduler import Scheduler
from millpond.server.runtime.queue_settings.service import QueueSettings
from millpond.server.runtime.recovery import policy_change
from millpond.simulation.clusters import uniform_cluster
from millpond.specs.api.reports.what_if_request import QueueSetting, WhatIfRequest
from millpond.specs.errors import suggest

MOST_ADDED: Final = 10_000
"""Nodes of one question."""


@dataclass(slots=True)
class Change:
    """A change that is made at an instant, as it is put together: events, and the same in words."""

    at: float
    events: list[Event] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def add(self, event: Event, words: str) -> None:
        """One more event."""
        self.events.append(event)
        self.words.append(words)


def settings_change(request: WhatIfRequest, scheduler: Scheduler, queues: QueueSettings, at: float) -> Change:
    """What a request changes of queues, policies and nodes.

    Args:
        scheduler: a copy of the core, which is not changed.
        queues: what queues say; not changed either.
        at: when it is changed.

    Raises:
        NotFoundError: a queue or a node is not there.
        InvalidInputError: a field, value or policy is none; a guarantee cannot hold; or nothing would be changed.
    """
    change, of_nodes = Change(at), Change(at)
    nodes = scheduler.machines()
    _remove_nodes(request.remove_nodes, nodes, of_nodes)
    if len(set(request.remove_nodes)) == len(nodes) and not request.add_nodes:
        raise InvalidInputError("no node would be left", "leave one, or add others")
    _add_nodes(request.add_nodes, nodes, of_nodes)
    added = [event.node for event in of_nodes.events if isinstance(event, NodeJoined)]
    _change_queues(request.set, queues, amount_of_nodes(added, {}), change)
    _change_policies(request, scheduler, change)
    change.events += of_nodes.events
    change.words += of_nodes.words
    return change


def _change_queues(settings: Sequence[QueueSetting], queues: QueueSettings, added: Amount, change: Change) -> None:
    if settings:
        change.events += queues.tried([(setting.queue, setting.field, setting.value) for setting in settings], added)
        change.words += [f"{setting.queue}.{setting.field} = {_written(setting.value)}" for setting in settings]


def _written(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
    return str(value)


def _change_policies(request: WhatIfRequest, scheduler: Scheduler, change: Change) -> None:
    settings = scheduler.settings
    wanted = PolicyOverrides(request.ordering or "", request.placement or "", request.preempt, request.reserve)
    asked = {
        "ordering": request.ordering,
        "placement": request.placement,
        "preempt": request.preempt,
        "reserve": request.reserve,
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    settings.under(wanted.over(settings.policies))  # refuses what is no policy
    for name, value in asked.items():
        if getattr(settings, name) == value:
            raise InvalidInputError(f"{name} is {_written(value)} already", "leave it out, or give another value")
        change.words.append(f"{name} = {_written(value)}")
    change.events += policy_change(wanted, settings, change.at)


def _remove_nodes(names: Sequence[str], nodes: Sequence[Node], change: Change) -> None:
    known = {node.name for node in nodes}
    for name in dict.fromkeys(names):
        if name not in known:
            raise NotFoundError(f"no node {name!r}", suggest(name, sorted(known)))
        change.add(
            NodeClosed(change.at, name, Cordon(change.at, reason="taken away", drain=True)), f"without node {name}"
        )


def _add_nodes(texts: Sequence[str], nodes: Sequence[Node], change: Change) -> None:
    taken = {node.name for node in nodes}
    added = 0
    for text in texts:
        new = uniform_cluster(text if ":" in text else f"{text}:{_only_model(nodes, text)}")
        added += len(new)
        if added > MOST_ADDED:
            raise InvalidInputError(f"more than {MOST_ADDED:,} new nodes", "add fewer")
        pattern = _like(new[0].devices[0].model, len(new[0].devices), nodes)
        for node in new:
            name = _free_name(taken)
            change.events.append(NodeJoined(change.at, _renamed(pattern or node, name)))
        change.words.append(f"{text} added")


def _only_model(nodes: Iterable[Node], text: str) -> str:
    models = Counter(device.model for node in nodes for device in node.devices)
    if len(models) != 1:
        listed = ", ".join(sorted(models)) or "such as A100"
        raise InvalidInputError(f"new nodes {text}: of which model?", f"write {text}:MODEL; here are {listed}")
    return re.sub(r"[^\w.-]+", "-", next(iter(models)))


def _like(model: str, cards: int, nodes: Iterable[Node]) -> Node | None:
    """A node with so many cards of that model as the cluster would have it; None where it has none of them."""
    for node in nodes:
        alike = [device for device in node.devices if re.sub(r"[^\w.-]+", "-", device.model) == model]
        if len(alike) == len(node.devices) and alike:
            part = cards / len(node.devices)
            return replace(
                node,
                cpu_milli=round(node.cpu_milli * part),
                memory_mib=round(node.memory_mib * part),
                swap_mib=round(node.swap_mib * part),
                devices=_cards(node.devices, cards),
                schedulable=True,
            )
    return None


def _cards(devices: Sequence[Device], count: int) -> tuple[Device, ...]:
    """So many healthy cards like these."""
    chosen = devices if count == len(devices) else [replace(devices[0], index=index) for index in range(count)]
    return tuple(replace(device, health=DeviceHealth.OK, health_detail="") for device in chosen)


def _renamed(node: Node, name: str) -> Node:
    devices: tuple[Device, ...] = tuple(replace(device, uuid=f"{name}/{device.index}") for device in node.devices)
    return replace(node, name=name, devices=devices)


def _free_name(taken: set[str]) -> str:
    number = 1
    while f"added-{number}" in taken:
        number += 1
    taken.add(f"added-{number}")
    return f"added-{number}"
