"""``pond nodes``: machines, their cards, and what is free. Pretended cards are marked wherever they are shown."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches

import click

from millpond.client.cli.command_suggestions import NamingGroup
from millpond.client.cli.commands.cluster.cordon import cordon, drain, forget, maintain, uncordon
from millpond.client.cli.commands.cluster.join import join
from millpond.client.cli.commands.cluster.roll import roll
from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.formats import machine_state
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.model.amounts import count_text, milli_text
from millpond.model.errors import NotFoundError
from millpond.model.hardware.nodes import DEFAULT_POOL
from millpond.model.resources import CARD_MILLI
from millpond.specs.api.pool.nodes import ContentInfo, DeviceInfo, NodeInfo, NodeList, SliceInfo, SpareInfo


def _models(node: NodeInfo) -> str:
    kinds = Counter((device.model, device.memory_mib, _marks(device)) for device in node.devices)
    return ", ".join(
        f"{number} x {model}" + (f" {formats.gib(memory)}GiB" if memory else "") + marks
        for (model, memory, marks), number in kinds.items()
    )


def _marks(device: DeviceInfo) -> str:
    marks = [mark for mark, holds in (("fake", device.fake), ("experimental", device.experimental)) if holds]
    return f" ({', '.join(marks)})" if marks else ""


def _free_compute(node: NodeInfo, *devices: DeviceInfo) -> str:
    """Cards that a job may get now, as on the overview: none of a closed node, and none that frozen work keeps."""
    usable = [device for device in devices if node.schedulable and _is_usable(device)]
    return milli_text(sum(device.free_compute_milli - device.kept_milli for device in usable))


def _is_usable(device: DeviceInfo) -> bool:
    return device.health == "ok" and device.closure is None


def _free_cpus(node: NodeInfo) -> str:
    return f"{milli_text(node.free_cpu_milli)}/{milli_text(node.cpu_capacity_milli or node.cpu_milli)}"


def _free_memory(node: NodeInfo) -> str:
    return f"{formats.gib(node.free_memory_mib)}/{formats.gib(node.memory_mib)}"


def _free_card_memory(device: DeviceInfo) -> str:
    free_mib = device.free_memory_mib if _is_usable(device) else 0  # an unusable card is given to no job
    return f"{formats.gib(free_mib)}/{formats.gib(device.memory_mib)}" if device.memory_mib else ""


def _holders(device: DeviceInfo) -> str:
    return ", ".join(_holder(each) for each in device.slices) or ", ".join(device.holders)


def _holder(part: SliceInfo) -> str:
    """The job that has a part of a card, and the part's size: in percent, or by memory where it has that alone."""
    size = f" {part.compute_milli // 10}%" if part.compute_milli else f" {formats.gib(part.memory_mib)}GiB"
    held = f"{part.job}{'' if part.compute_milli == CARD_MILLI else size}"
    return held if part.state == "running" else f"{held} {part.state}"


_MACHINES: ListTable[NodeInfo] = ListTable(
    (
        Column("NODE", lambda node: node.name),
        Column("CLUSTER", lambda node: node.cluster, unless_all=""),
        Column("POOL", lambda node: node.pool, unless_all=DEFAULT_POOL),
        Column("CARDS", _models, gives_way=True),
        Column("FREE", lambda node: _free_compute(node, *node.devices) if node.devices else "", right=True),
        Column("CPUS FREE", _free_cpus, right=True),
        Column("GIB FREE", _free_memory, right=True),
        Column("STATE", machine_state, gives_way=True),
    )
)
_CARDS: ListTable[tuple[NodeInfo, DeviceInfo]] = ListTable(
    (
        Column("NODE", lambda card: card[0].name),
        Column("CARD", lambda card: formats.card_number(card[1].index, card[1].instance), right=True),
        Column("MODEL", lambda card: card[1].model + _marks(card[1])),
        Column("FREE", lambda card: _free_compute(*card), right=True),
        Column("GIB FREE", lambda card: _free_card_memory(card[1]), right=True),
        Column("STATE", lambda card: formats.card_state(card[1]), gives_way=True),
        Column("JOBS", lambda card: _holders(card[1]), gives_way=True),
    )
)


_CONTENTS: ListTable[tuple[str, ContentInfo]] = ListTable(
    (
        Column("NODE", lambda held: held[0]),
        Column("GB", lambda held: f"{held[1].bytes / 1e9:.1f}" if held[1].bytes else "", right=True),
        Column("HOLDS", lambda held: held[1].name, gives_way=True),
    )
)


@click.group("nodes", cls=NamingGroup, named="get", invoke_without_command=True)
@lists()
def command(client: Client) -> Listing:
    """List nodes and their free resources; with -o wide, each card. Cordon, drain, roll, uncordon and add nodes."""
    found = client.node_list()
    return Listing(found, [node.name for node in found.nodes], lambda wide: _draw(found, wide))


def _draw(found: NodeList, wide: bool) -> None:
    if wide:
        _CARDS.show([(node, device) for node in found.nodes for device in node.devices], wide=False)
    else:
        _MACHINES.show(found.nodes, wide=False)
    for spare in found.spares:
        say(_spare_text(spare))


def _spare_text(spare: SpareInfo) -> str:
    """How many empty nodes of a pool stay on, and what the forecast behind it is worth."""
    text = f"pool {spare.pool}: {count_text(spare.spare, 'empty node')} to stay on"
    if spare.coverage is not None and spare.cover is not None:
        minutes = round(spare.within_s / 60, 1)
        return (
            f"{text}, for {spare.cover * 100:g}% of the rises within {minutes:g} min; met {spare.coverage:.1%} in "
            f"{count_text(spare.tested_days, 'day')}, skill {spare.skill:.2f}"
        )
    return f"{text}; no forecast: {spare.no_forecast}" if spare.no_forecast else text


@click.command("get")
@click.argument("names", nargs=-1, required=True, metavar="NODE...")
@lists()
def get(client: Client, names: tuple[str, ...]) -> Listing:
    """Show each NODE, its cards and what it holds, as `pond nodes NODE` does."""
    known = {node.name: node for node in client.nodes()}
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            remedy = (
                f"did you mean {near[0]}?" if near else "`pond nodes` lists the nodes, `pond nodes -h` the commands"
            )
            raise NotFoundError(f"no node {name!r}", remedy)
    chosen = [known[name] for name in dict.fromkeys(names)]
    return Listing(NodeList(nodes=chosen), [node.name for node in chosen], lambda _wide: _draw_whole(client, chosen))


def _draw_whole(client: Client, nodes: list[NodeInfo]) -> None:
    """Machines, their cards, and the images and data that they report to hold."""
    _MACHINES.show(nodes, wide=False)
    cards = [(node, device) for node in nodes for device in node.devices]
    if cards:
        click.echo()
        _CARDS.show(cards, wide=False)
    details = [client.node(node.name) for node in nodes]
    held = [(detail.node.name, content) for detail in details for content in detail.contents]
    if held:
        click.echo()
        _CONTENTS.show(held, wide=False)
    for detail in details:
        if detail.fetch_rate:
            say(f"{detail.node.name} fetches what it lacks at {detail.fetch_rate / 1e6:.0f} MB/s")


for subcommand in (cordon, drain, forget, get, join, maintain, roll, uncordon):
    command.add_command(subcommand)
