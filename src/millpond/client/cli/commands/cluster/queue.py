"""``pond queue``: queues, what each is promised and may not exceed, and what it holds."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.model.errors import NotFoundError
from millpond.specs.api.queues import QueueInfo, QueueList

_NARROW = (
    Column("QUEUE"),
    Column("GPUS", right=True),
    Column("PROMISED", right=True),
    Column("LIMIT", right=True),
    Column("RUNNING", right=True),
    Column("WAITING", right=True),
    Column("GROUP", gives_way=True),
)
_WIDE = (
    *_NARROW[:-1],
    Column("WEIGHT", right=True),
    Column("BORROWS"),
    Column("CPUS", right=True),
    Column("CPU LIMIT", right=True),
    Column("GIB", right=True),
    Column("GIB LIMIT", right=True),
    Column("JOB LIMIT", right=True),
    _NARROW[-1],
)


@click.group("queue", cls=SuggestingGroup)
def group() -> None:
    """Queues with their guarantee, limit and usage."""


@group.command("show")
@click.argument("queue", default="", metavar="[QUEUE]")
@listing_options
@asks_server
def show_queues(queue: str, output: str, watch: bool, state_dir: Path | None) -> None:
    """List the queues of your groups (admins: all), or QUEUE alone. Each counts those below it."""
    with connect(state_dir) as client:

        def look() -> Listing:
            found = [each for each in client.queues() if queue in ("", each.name)]
            if queue and not found:
                raise NotFoundError(f"no queue {queue!r}", "`pond queue show` lists those that one may see")
            return Listing(QueueList(queues=found), [each.name for each in found], lambda wide: _draw(found, wide))

        show_listing(look, output, watch)


def _draw(found: list[QueueInfo], wide: bool) -> None:
    depths: dict[str, int] = {}
    rows = []
    for each in found:
        depths[each.name] = depths.get(each.parent, -1) + 1
        rows.append(_row(each, "  " * depths[each.name], wide))
    show(_WIDE if wide else _NARROW, rows, fitted=not wide, empty="no queues: one is in no group")


def _row(queue: QueueInfo, indent: str, wide: bool) -> list[str]:
    head = [
        indent + queue.name,
        wording.thousandth(queue.gpu_milli),
        wording.thousandth(queue.guarantee_gpu_milli) if queue.guarantee_gpu_milli else "",
        _limit(queue.limit_gpu_milli),
        str(queue.running),
        str(queue.waiting),
    ]
    if not wide:
        return [*head, queue.group]
    memory_limit = "" if queue.limit_memory_mib is None else wording.gib(queue.limit_memory_mib)
    return [
        *head,
        f"{queue.weight:g}",
        "yes" if queue.borrows else "no",
        wording.thousandth(queue.cpu_milli),
        _limit(queue.limit_cpu_milli),
        wording.gib(queue.memory_mib),
        memory_limit,
        "" if queue.limit_jobs is None else str(queue.limit_jobs),
        queue.group,
    ]


def _limit(milli: int | None) -> str:
    return "" if milli is None else wording.thousandth(milli)
