"""One task held against each node: whether any could take it if it were empty, and which amount is too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from millpond.model.amounts import count_text, cpus_text, memory_text, milli_text
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, SliceRequest, TaskRequest
from millpond.model.sharing import GPU_SLICES
from millpond.scheduling.explaining.infeasibility import Infeasibility
from millpond.scheduling.placement.shapes import Shape

_WITHOUT_CARDS = (
    "ask for no GPUs; where there should be some, `pond doctor` says on the machine why none was found, and `pond kube "
    "check` why a cluster offers none"
)

_NO_PARTS = Infeasibility(
    "a task asks for a part of a card, and no node has an agent that gives out parts",
    "ask for whole GPUs, or have an admin install the agent (docs/kubernetes/cards.md)",
    "gpus",
    "1",
)


def task_infeasibility(request: TaskRequest, nodes: Sequence[Node], *, exclusive: bool) -> Infeasibility | None:
    """What keeps every one of the nodes from taking such a task even when empty; None if one takes it.

    Args:
        nodes: those of the job's pool; at least one.
        exclusive: the pool gives whole cards only.
    """
    if request.models and not any(device.model in request.models for node in nodes for device in node.devices):
        known = sorted({device.model for node in nodes for device in node.devices})
        near = [model for wanted in request.models for model in get_close_matches(wanted, known, 1, cutoff=0.4)]
        offer = f"this pool has {', '.join(known)}" if known else "this pool has no GPUs"
        wanted = " or ".join(map(repr, request.models))
        return Infeasibility(f"no node has a GPU model {wanted}", offer, "gpu_models", near[0] if near else "")
    if exclusive and request.devices and request.slice.compute_milli < CARD_MILLI:
        part = milli_text(request.gpu_milli) if request.gpu_milli else memory_text(request.slice.memory_mib)
        return Infeasibility(f"{part} of a card in a pool of whole cards", "ask for whole GPUs", "gpus", "1")
    if any(holds(node, request) for node in nodes):
        return None
    return _largest_infeasibility(request, nodes)


def holds(node: Node, request: TaskRequest) -> bool:
    """Whether a task fits onto the node when it is empty."""
    extras = dict(node.extras)
    return (
        node.cpu_milli >= request.cpu_milli
        and node.memory_mib >= request.memory_mib
        and _cards_of(node, request) >= request.devices
        and all(extras.get(name, 0) >= amount for name, amount in request.extras)
    )


def device_memory_mib(node: Node, request: TaskRequest, shape: Shape) -> int:
    """The least device memory that a task takes there, on all its devices."""
    models = (device for device in node.devices if not request.models or device.model in request.models)
    return sum(sorted(shape.memory_on(device.memory_mib) for device in models)[: request.devices])


def can_hold(device: Device, request: TaskRequest) -> bool:
    """Whether a device, if it is free, could hold one device's part of a request."""
    memory = request.slice.memory_mib
    by_memory_alone = request.slice.compute_milli == 0
    return (
        (not request.models or device.model in request.models)
        and (memory == SHARE_OF_CARD or device.memory_mib >= memory or (device.memory_mib == 0 and not by_memory_alone))
        and not _is_too_small(device, request.slice)
    )


def _largest_infeasibility(request: TaskRequest, nodes: Sequence[Node]) -> Infeasibility:
    """No node holds one task: name the amount that is too large, or say that no node has all of it together."""
    return (
        _too_many_cards(request, nodes)
        or _too_much(request, nodes)
        or Infeasibility(
            "no node has this much of GPUs, CPU and memory together",
            "ask for fewer CPUs or less memory a GPU",
            "cpus",
            "",
        )
    )


def _too_many_cards(request: TaskRequest, nodes: Sequence[Node]) -> Infeasibility | None:
    most = max(_cards_of(node, request) for node in nodes)
    if request.devices <= most:
        return None
    if request.devices <= max(_cards_of(node, replace(request, slice=SliceRequest())) for node in nodes):
        return _card_infeasibility(request, nodes)
    wanted = count_text(request.devices, "GPU")
    kind = f" of {' or '.join(request.models)}" if request.models else ""
    return Infeasibility(
        f"a task asks for {wanted}{kind}; the largest node has {most}",
        f"ask for at most {most} a task and use more tasks" if most else _WITHOUT_CARDS,
        "gpus",
        str(most),
        (("asked", request.devices), ("largest", most)),
    )


def _too_much(request: TaskRequest, nodes: Sequence[Node]) -> Infeasibility | None:
    """CPUs, memory, or one of the extra resources."""
    most_milli = max(node.cpu_milli for node in nodes)
    most_mib = max(node.memory_mib for node in nodes)
    for asked, most, text, field in (
        (request.cpu_milli, most_milli, cpus_text, "cpus"),
        (request.memory_mib, most_mib, memory_text, "memory"),
    ):
        if asked > most:
            unit = 1000 if field == "cpus" else 1
            return Infeasibility(
                f"a task asks for {text(asked)}{' of memory' * (field == 'memory')}; the largest node has {text(most)}",
                f"ask for at most {text(most)}",
                field,
                milli_text(most) if field == "cpus" else f"{most}MiB",
                (("asked", asked // unit), ("largest", most // unit)),
            )
    for name, amount in request.extras:
        there = max(dict(node.extras).get(name, 0) for node in nodes)
        if amount > there and name == GPU_SLICES:
            return _NO_PARTS
        if amount > there:
            return Infeasibility(
                f"a task asks for {amount} of {name!r}; the largest node has {there}",
                f"ask for at most {there}",
                "extras",
                "",
            )
    return None


def _card_infeasibility(request: TaskRequest, nodes: Sequence[Node]) -> Infeasibility:
    """There are cards, but none with as much memory as the slice asks for, or such a slice of each is too small."""
    cards = [card for node in nodes for card in node.devices if not request.models or card.model in request.models]
    if any(_is_too_small(card, request.slice) for card in cards):
        least = 1 + min(card.context_mib for card in cards)
        return Infeasibility(
            f"a task asks for a slice in which nothing can run: a program's context alone takes {least - 1} MiB of it",
            f"ask for at least {least} MiB of a card's memory",
            "gpus.memory",
            f"{least}MiB",
            (("least_mib", least),),
        )
    asked, most = request.slice.memory_mib, max(card.memory_mib for card in cards)
    if most == 0:
        return Infeasibility(
            "how much memory the cards have is unknown, so none is cut", "ask for whole cards", "gpus", "1"
        )
    return Infeasibility(
        f"a task asks for {memory_text(asked)} of a card's memory; the largest card has {memory_text(most)}",
        f"ask for at most {memory_text(most)} of memory, or for whole cards",
        "gpus.memory",
        f"{most}MiB",
        (("asked", asked), ("largest", most)),
    )


def _cards_of(node: Node, request: TaskRequest) -> int:
    """Devices of the node that could hold one device's part of the request; of unknown memory nothing can be cut."""
    return sum(can_hold(device, request) for device in node.devices)


def _is_too_small(device: Device, part: SliceRequest) -> bool:
    """Whether a part of a device has no room for anything beside a program's context."""
    if part.compute_milli == CARD_MILLI:
        return False
    of_share = device.memory_mib * part.compute_milli // CARD_MILLI
    memory = of_share if part.memory_mib == SHARE_OF_CARD else part.memory_mib
    return 0 < memory <= device.context_mib
