"""``pond queue``: queues, what each is promised and may not exceed, and what it holds."""

from __future__ import annotations

from functools import partial

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Listing, lists
from millpond.client.cli.printing.tables import Column, ListTable
from millpond.client.sdk import Client
from millpond.model.errors import NotFoundError
from millpond.specs.api.queues import QueueInfo, QueueList


def _milli(amount: int | None) -> str:
    return "" if amount is None else formats.thousandth(amount)


def _memory_limit(queue: QueueInfo) -> str:
    return "" if queue.limit_memory_mib is None else formats.gib(queue.limit_memory_mib)


_COLUMNS = (
    Column("GPUS", lambda queue: _milli(queue.gpu_milli), right=True),
    Column("PROMISED", lambda queue: _milli(queue.guarantee_gpu_milli or None), right=True),
    Column("LIMIT", lambda queue: _milli(queue.limit_gpu_milli), right=True),
    Column("RUNNING", lambda queue: str(queue.running), right=True),
    Column("WAITING", lambda queue: str(queue.waiting), right=True),
    Column("WEIGHT", lambda queue: f"{queue.weight:g}", right=True, wide=True),
    Column("BORROWS", lambda queue: "yes" if queue.borrows else "no", wide=True),
    Column("CPUS", lambda queue: _milli(queue.cpu_milli), right=True, wide=True),
    Column("CPU LIMIT", lambda queue: _milli(queue.limit_cpu_milli), right=True, wide=True),
    Column("GIB", lambda queue: formats.gib(queue.memory_mib), right=True, wide=True),
    Column("GIB LIMIT", _memory_limit, right=True, wide=True),
    Column("JOB LIMIT", lambda queue: "" if queue.limit_jobs is None else str(queue.limit_jobs), right=True, wide=True),
    Column("GROUP", lambda queue: queue.group, gives_way=True),
)


@click.group("queue", cls=SuggestingGroup)
def group() -> None:
    """Queues with their guarantee, limit and usage."""


@group.command("show")
@click.argument("queue", default="", metavar="[QUEUE]")
@lists()
def show_queues(client: Client, queue: str) -> Listing:
    """List the queues of your groups (admins: all), or QUEUE alone. Each counts those below it."""
    found = [each for each in client.queues() if queue in ("", each.name)]
    if queue and not found:
        raise NotFoundError(f"no queue {queue!r}", "`pond queue show` lists those that one may see")
    return Listing(QueueList(queues=found), [each.name for each in found], partial(_draw, found))


def _draw(found: list[QueueInfo], wide: bool) -> None:
    """Draw each queue below its parent and further to the right."""
    depths: dict[str, int] = {}
    for each in found:
        depths[each.name] = depths.get(each.parent, -1) + 1
    name = Column("QUEUE", lambda queue: "  " * depths[queue.name] + queue.name)
    table: ListTable[QueueInfo] = ListTable((name, *_COLUMNS))
    table.show(found, wide, empty="no queues: one is in no group")
