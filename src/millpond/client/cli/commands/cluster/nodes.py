"""``pond nodes``: machines, their cards, and what is free. Pretended cards are marked wherever they are shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.commands.cluster.cordon import cordon, drain, maintain, uncordon
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.client.cli.wording import machine_state
from millpond.model.resources import CARD_MILLI
from millpond.specs.api.nodes import DeviceInfo, NodeInfo, NodeList, SliceInfo

_MACHINES = (
    Column("NODE"),
    Column("CARDS", gives_way=True),
    Column("FREE", right=True),
    Column("CPUS FREE", right=True),
    Column("GIB FREE", right=True),
    Column("STATE", gives_way=True),
)
_CARDS = (
    Column("NODE"),
    Column("CARD", right=True),
    Column("MODEL"),
    Column("FREE", right=True),
    Column("GIB FREE", right=True),
    Column("STATE", gives_way=True),
    Column("JOBS", gives_way=True),
)


@click.group("nodes", cls=SuggestingGroup, invoke_without_command=True)
@listing_options
@asks_server
@click.pass_context
def command(context: click.Context, output: str, watch: bool, state_dir: Path | None) -> None:
    """List nodes and their free resources; with -o wide, each card. Cordon, drain and uncordon nodes."""
    if context.invoked_subcommand is not None:
        return
    with connect(state_dir) as client:

        def look() -> Listing:
            nodes = client.nodes()
            return Listing(NodeList(nodes=nodes), [node.name for node in nodes], lambda wide: _draw(nodes, wide))

        show_listing(look, output, watch)


def _draw(nodes: list[NodeInfo], wide: bool) -> None:
    if wide:
        show(_CARDS, [_card_row(node, device) for node in nodes for device in node.devices])
    else:
        show(_MACHINES, [_machine_row(node) for node in nodes])


def _machine_row(node: NodeInfo) -> list[str]:
    usable = [device for device in node.devices if device.health == "ok"]
    return [
        node.name,
        _models(node),
        wording.thousandth(sum(device.free_compute_milli for device in usable)) if node.devices else "",
        f"{wording.thousandth(node.free_cpu_milli)}/{wording.thousandth(node.cpu_capacity_milli or node.cpu_milli)}",
        f"{wording.gib(node.free_memory_mib)}/{wording.gib(node.memory_mib)}",
        machine_state(node),
    ]


def _models(node: NodeInfo) -> str:
    kinds = Counter((device.model, device.memory_mib, _marks(device)) for device in node.devices)
    return ", ".join(
        f"{number} x {model}" + (f" {wording.gib(memory)}GiB" if memory else "") + marks
        for (model, memory, marks), number in kinds.items()
    )


def _card_row(node: NodeInfo, device: DeviceInfo) -> list[str]:
    state = device.health if not device.health_detail else f"{device.health}: {device.health_detail}"
    free_mib = device.free_memory_mib if device.health == "ok" else 0  # nobody is given what is left of such a card
    return [
        node.name,
        wording.card_number(device.index, device.instance),
        device.model + _marks(device),
        wording.thousandth(device.free_compute_milli if device.health == "ok" else 0),
        f"{wording.gib(free_mib)}/{wording.gib(device.memory_mib)}" if device.memory_mib else "",
        state,
        ", ".join(_holding(each) for each in device.slices) or ", ".join(device.holders),
    ]


def _marks(device: DeviceInfo) -> str:
    marks = [mark for mark, holds in (("fake", device.fake), ("experimental", device.experimental)) if holds]
    return f" ({', '.join(marks)})" if marks else ""


def _holding(part: SliceInfo) -> str:
    """Whose a part is, and how large: in percent, or by memory where it has that alone."""
    size = f" {part.compute_milli // 10}%" if part.compute_milli else f" {wording.gib(part.memory_mib)}GiB"
    held = f"{part.job}{'' if part.compute_milli == CARD_MILLI else size}"
    return held if part.state == "running" else f"{held} {part.state}"


for subcommand in (cordon, drain, maintain, uncordon):
    command.add_command(subcommand)
