"""``pond nodes``: machines, their cards, and what is free. Pretended cards are marked wherever they are shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.closing import cordon, drain, maintain, uncordon
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.client.cli.wording import machine_state
from millpond.specs.api import DeviceInfo, NodeInfo, NodeList

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


@click.group("nodes", invoke_without_command=True)
@listing_options
@asks_server
@click.pass_context
def command(context: click.Context, output: str, watch: bool, state_dir: Path | None) -> None:
    """List machines and what is free; with -o wide, card by card. Close and open them."""
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
    kinds = Counter((device.model, device.memory_mib, device.fake) for device in node.devices)
    return ", ".join(
        f"{number} x {model}" + (f" {wording.gib(memory)}GiB" if memory else "") + (" (fake)" if fake else "")
        for (model, memory, fake), number in kinds.items()
    )


def _card_row(node: NodeInfo, device: DeviceInfo) -> list[str]:
    state = device.health if not device.health_detail else f"{device.health}: {device.health_detail}"
    return [
        node.name,
        str(device.index),
        f"{device.model} (fake)" if device.fake else device.model,
        wording.thousandth(device.free_compute_milli),
        f"{wording.gib(device.free_memory_mib)}/{wording.gib(device.memory_mib)}" if device.memory_mib else "",
        state,
        ", ".join(device.holders),
    ]


for subcommand in (cordon, drain, maintain, uncordon):
    command.add_command(subcommand)
