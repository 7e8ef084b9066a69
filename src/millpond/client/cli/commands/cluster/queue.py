"""``pond queue``: queues, what each is guaranteed and may not exceed, what it holds, and what is lent."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from functools import partial

import click

from millpond.client.cli.command_suggestions import NamingGroup
from millpond.client.cli.commands.cluster.queue_edits import add, change, delete
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.model.amounts import cards_text, count_text, memory_text, milli_text, seconds_text
from millpond.model.tenancy.cells import CellUsage
from millpond.specs.api.pool.queues import (
    QueueBorrower,
    QueueDetailInfo,
    QueueInfo,
    QueueList,
    QueueModelShare,
    QueueUserInfo,
)

_WIDTH = 80
_LABEL = 11


def _milli(amount: int | None) -> str:
    return "" if amount is None else milli_text(amount)


def _memory_limit(queue: QueueInfo) -> str:
    return "" if queue.limit_memory_mib is None else formats.gib(queue.limit_memory_mib)


_COLUMNS = (
    Column("USED", lambda queue: _milli(queue.gpu_milli), right=True),
    Column("GUARANTEE", lambda queue: _milli(queue.promised_gpu_milli or None), right=True),
    Column("WITHIN", lambda queue: _milli(queue.within_gpu_milli), right=True),
    Column("BORROWED", lambda queue: _milli(queue.borrowed_gpu_milli), right=True),
    Column("LENT", lambda queue: _milli(queue.lent_gpu_milli), right=True),
    Column("LIMIT", lambda queue: _milli(queue.limit_gpu_milli), right=True),
    Column("WAITING", lambda queue: str(queue.waiting), right=True),
    Column("ASKED", lambda queue: _milli(queue.waiting_gpu_milli), right=True),
    Column("FREE", lambda queue: _milli(queue.free_gpu_milli), right=True, wide=True),
    Column("RUNNING", lambda queue: str(queue.running), right=True, wide=True),
    Column("WEIGHT", lambda queue: f"{queue.weight:g}", right=True, wide=True),
    Column("BORROWS", lambda queue: "yes" if queue.borrows else "no", wide=True),
    Column("ORDERING", lambda queue: queue.ordering, wide=True),
    Column("PLACEMENT", lambda queue: queue.placement, wide=True),
    Column("CPUS", lambda queue: _milli(queue.cpu_milli), right=True, wide=True),
    Column("CPU LIMIT", lambda queue: _milli(queue.limit_cpu_milli), right=True, wide=True),
    Column("GIB", lambda queue: formats.gib(queue.memory_mib), right=True, wide=True),
    Column("GIB LIMIT", _memory_limit, right=True, wide=True),
    Column("JOB LIMIT", lambda queue: "" if queue.limit_jobs is None else str(queue.limit_jobs), right=True, wide=True),
    Column("GROUP", lambda queue: queue.group, wide=True),
)

_BACKGROUND = Column("BACKGROUND", lambda queue: _milli(queue.background_gpu_milli or None), right=True)
"""Beside USED, where there is such work."""

_USERS: ListTable[QueueUserInfo] = ListTable(
    (
        Column("USER", lambda each: each.user or "-", gives_way=True),
        Column("GPUS", lambda each: _milli(each.gpu_milli), right=True),
        Column("CPUS", lambda each: _milli(each.cpu_milli), right=True),
        Column("GIB", lambda each: formats.gib(each.memory_mib), right=True),
        Column("RUNNING", lambda each: str(each.running), right=True),
        Column("WAITING", lambda each: str(each.waiting), right=True),
        Column("ASKED", lambda each: _milli(each.waiting_gpu_milli), right=True),
    )
)
_BORROWERS: ListTable[QueueBorrower] = ListTable(
    (
        Column("BORROWER", lambda each: each.queue, gives_way=True),
        Column("BORROWED", lambda each: _milli(each.gpu_milli), right=True),
    )
)


_CELLS: ListTable[CellUsage] = ListTable(
    (
        Column("CELLS", lambda each: f"{each.level}, pinned" if each.pinned else each.level, gives_way=True),
        Column("OWED", lambda each: str(each.owed), right=True),
        Column("IN USE", lambda each: str(each.in_use), right=True),
        Column("FREE", lambda each: str(each.free), right=True),
        Column("LENT", lambda each: str(each.lent), right=True),
        Column("BAD", lambda each: str(each.bad), right=True),
    )
)


def draw_queues(found: list[QueueInfo], wide: bool) -> None:
    """Draw each queue below its parent and further to the right."""
    depths: dict[str, int] = {}
    for each in found:
        depths[each.name] = depths.get(each.parent, -1) + 1
    name = Column("QUEUE", lambda queue: "  " * depths[queue.name] + queue.name, gives_way=True)
    beside = (_BACKGROUND,) if any(each.background_gpu_milli for each in found) else ()
    table: ListTable[QueueInfo] = ListTable((name, _COLUMNS[0], *beside, *_COLUMNS[1:]))
    table.show(found, wide, empty="no queues: one is in no group")


def draw_queue(detail: QueueDetailInfo, wide: bool) -> None:
    """Draw one queue as a page; ``wide``: its tables are not cut."""
    for label, text in _lines(detail):
        blank = " " * _LABEL
        lines = textwrap.wrap(text, _WIDTH - _LABEL, break_on_hyphens=False) or [""]
        click.echo(f"{label:<{_LABEL}}{lines[0]}")
        for line in lines[1:]:
            click.echo(blank + line)
    if detail.cells:
        click.echo()
        _CELLS.show(detail.cells, wide)
    if detail.users:
        click.echo()
        _USERS.show(detail.users, wide)
    if detail.borrowers:
        click.echo()
        _BORROWERS.show(detail.borrowers, wide)


def _lines(detail: QueueDetailInfo) -> list[tuple[str, str]]:
    queue, largest = detail.queue, detail.largest
    below = f", below {queue.parent}" if queue.parent else ""
    owner = f", of group {queue.group}" if queue.group else ""
    borrowing = "it may borrow" if queue.borrows else "it borrows nothing"
    lines = [
        ("queue", f"{queue.name}{below}{owner}"),
        ("cards", cards_of(queue)),
        *_models(queue),
        *_card_memory(queue),
        ("CPUs", _use(milli_text, queue.cpu_milli, queue.guarantee_cpu_milli, queue.limit_cpu_milli)),
        ("memory", _use(memory_text, queue.memory_mib, queue.guarantee_memory_mib, queue.limit_memory_mib)),
        ("rules", ", ".join((f"weight {queue.weight:g}", borrowing, *_rules(queue)))),
        ("running", count_text(queue.running, "job")),
        ("waiting", f"{count_text(queue.waiting, 'job')}, asking for {cards_text(queue.waiting_gpu_milli)}"),
    ]
    if detail.changed_at is not None:
        by = f" by {detail.changed_by}" if detail.changed_by else " by the configuration"
        lines.append(("settings", f"version {detail.version}, changed{by} {formats.instant_text(detail.changed_at)}"))
    if largest is not None:
        lines.append(("largest", f"{largest.job} asks for {cards_text(largest.gpu_milli)}: {largest.reason}"))
    return lines


def _card_memory(queue: QueueInfo) -> Iterator[tuple[str, str]]:
    """The memory of its cards, where some is used, also by parts that count for no card, guaranteed or limited."""
    if queue.card_mib or queue.guarantee_card_mib or queue.limit_card_mib is not None:
        yield "card mem.", _use(memory_text, queue.card_mib, queue.guarantee_card_mib, queue.limit_card_mib)


def _models(queue: QueueInfo) -> Iterator[tuple[str, str]]:
    """Cards by their models, where there are several or one is limited or guaranteed."""
    if queue.model_shares:
        yield from (("by model", _share(queue, each)) for each in queue.model_shares if _concerns(queue, each))
        return
    names = sorted({*queue.models, *queue.limit_models})
    if len(names) > 1 or queue.limit_models:
        uses = (f"{name} {_use(milli_text, queue.models.get(name, 0), 0, queue.limit_models.get(name))}"
                for name in names)  # fmt: skip
        yield "by model", "; ".join(uses)


def _concerns(queue: QueueInfo, share: QueueModelShare) -> bool:
    return bool(share.gpu_milli or share.promised_gpu_milli or share.model in queue.limit_models)


def _share(queue: QueueInfo, share: QueueModelShare) -> str:
    limit = queue.limit_models.get(share.model)
    use = _use(milli_text, share.gpu_milli, share.promised_gpu_milli, limit)
    return f"{share.model or 'others'} {use}; {_whose(share)}"


def _rules(queue: QueueInfo) -> Iterator[str]:
    """What holds for its jobs: what bounds them one by one, or protects them, their order and their places."""
    if queue.limit_jobs is not None:
        yield f"at most {count_text(queue.limit_jobs, 'job')} at once"
    if queue.priorities:
        yield f"priority {' or '.join(queue.priorities)}"
    if queue.longest_dev_s is not None:
        yield f"dev jobs of at most {seconds_text(queue.longest_dev_s)}"
    if queue.minimum_run_s:
        yield f"a run lasts {seconds_text(queue.minimum_run_s)} before it may be asked to leave"
    yield from (
        f"{name} {text}" for name, text in (("ordering", queue.ordering), ("placement", queue.placement)) if text
    )


def cards_of(queue: QueueInfo) -> str:
    """What a queue has and may have of cards, in words."""
    text = _use(milli_text, queue.gpu_milli, queue.promised_gpu_milli, queue.limit_gpu_milli)
    if queue.background_gpu_milli:
        text += f", {milli_text(queue.background_gpu_milli)} by background work"
    if queue.within_gpu_milli is None:
        return text
    return f"{text}; {_whose(queue)}"


def _whose(shown: QueueInfo | QueueModelShare) -> str:
    parts = (
        f"{milli_text(shown.within_gpu_milli or 0)} within guarantees",
        f"{milli_text(shown.borrowed_gpu_milli or 0)} borrowed",
        f"{milli_text(shown.lent_gpu_milli or 0)} lent",
        f"{milli_text(shown.free_gpu_milli or 0)} free",
    )
    return ", ".join(parts)


def _use(write: Callable[[int], str], used: int, guaranteed: int, limit: int | None) -> str:
    text = f"{write(used)} used"
    if guaranteed:
        text += f" of {write(guaranteed)} guaranteed"
    return text if limit is None else f"{text}, limit {write(limit)}"


@click.group("queue", cls=NamingGroup, named="show", invoke_without_command=True)
@lists()
def group(client: Client) -> Listing:
    """Show queues with what each is guaranteed, holds and lends, or QUEUE in detail; add, set and delete them."""
    return _all_queues(client)


for _edit in (add, change, delete):
    group.add_command(_edit)


@group.command("show")
@click.argument("queue", required=False, metavar="[QUEUE]")
@lists()
def show_queues(client: Client, queue: str | None) -> Listing:
    """List the queues of your groups (admins: all), or show QUEUE in detail. Each counts those below it."""
    if queue is not None:
        detail = client.queue(queue)
        return Listing(detail, [detail.queue.name], partial(draw_queue, detail))
    return _all_queues(client)


def _all_queues(client: Client) -> Listing:
    found = client.queues()
    return Listing(QueueList(queues=found), [each.name for each in found], partial(draw_queues, found))
