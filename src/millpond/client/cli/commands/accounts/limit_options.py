"""Limits of users and groups as options and as words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from millpond.client.cli.printing import formats
from millpond.model.amounts import count_text, memory_text, milli_text
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.accounts.accounts import LONGEST_LIMIT_S, MOST_RUNNING_JOBS, AccountLimits
from millpond.specs.api.reports.usage import DiskInfo
from millpond.specs.errors import BadValueError

NONE = "none"
_OPTIONS = {
    "jobs": "--jobs",
    "gpu_milli": "--gpus",
    "cpu_milli": "--cpus",
    "card_mib": "--card-memory",
    "dev_s": "--dev-time",
    "disk_bytes": "--disk",
}


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for what an account may hold at once."""
    for option in (
        click.option("--disk", metavar="SIZE", help="What may be held on the server's disk, such as 50GiB."),
        click.option("--dev-time", metavar="TIME", help="How long one dev job may run, such as 8h."),
        click.option(
            "--card-memory", metavar="SIZE", help="Memory of cards held at once; a whole card counts in full."
        ),
        click.option("--cpus", metavar="NUMBER", help="CPU cores held at once."),
        click.option("--gpus", metavar="NUMBER", help="Cards held at once; may be a fraction."),
        click.option("--jobs", metavar="NUMBER", help="Running jobs at once; none lifts the limit, here and below."),
    ):
        command = option(command)
    return command


def limits_from(
    present: AccountLimits,
    jobs: str | None,
    gpus: str | None,
    cpus: str | None,
    card_memory: str | None,
    dev_time: str | None,
    disk: str | None,
) -> AccountLimits:
    """The present limits, with those changed that were given.

    Raises:
        InvalidInputError: one is no number.
    """
    changes: dict[str, float | None] = {}
    for name, text, read in (
        ("jobs", jobs, _whole),
        ("gpu_milli", gpus, quantities.gpu_milli),
        ("cpu_milli", cpus, quantities.cpu_milli),
        ("card_mib", card_memory, quantities.memory_mib),
        ("dev_s", dev_time, _span),
        ("disk_bytes", disk, _bytes),
    ):
        if text is not None:
            changes[name] = None if text == NONE else _read(name, text, read)
    return AccountLimits.model_validate(present.model_dump() | changes)


def limits_text(limits: AccountLimits) -> str:
    """Limits in words."""
    parts = [
        text
        for value, text in (
            (limits.jobs, count_text(limits.jobs or 0, "running job")),
            (limits.gpu_milli, _units(limits.gpu_milli or 0, "card")),
            (limits.cpu_milli, _units(limits.cpu_milli or 0, "CPU")),
            (limits.card_mib, f"{memory_text(limits.card_mib or 0)} of card memory"),
            (limits.dev_s, f"dev jobs of {formats.span(limits.dev_s or 0)}"),
            (limits.disk_bytes, f"{quantities.size_text(limits.disk_bytes or 0)} on disk"),
        )
        if value is not None
    ]
    return f"at most {', '.join(parts)}" if parts else "no limits"


def disk_text(held: DiskInfo) -> str:
    """What a user or a group holds on the server's disk, in words."""
    most = "" if held.limit_bytes is None else f" of at most {quantities.size_text(held.limit_bytes)}"
    return f"{held.kind} {held.name} holds {quantities.size_text(held.used_bytes)}{most} on the server's disk"


def _units(milli: int, noun: str) -> str:
    return f"{milli_text(milli)} {noun}" + ("" if milli == 1_000 else "s")


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise BadValueError(f"{text!r} is not a whole number of 0 or more", "write digits")
    # Their number is looked at first, as Python reads no more than 4,300 digits.
    if len(text) > len(str(MOST_RUNNING_JOBS)) or int(text) > MOST_RUNNING_JOBS:
        raise BadValueError(f"{text:.20} is more than {MOST_RUNNING_JOBS}", f"write a smaller number, or {NONE}")
    return int(text)


def _span(text: str) -> float:
    seconds = quantities.seconds(text)
    if not 0 < seconds <= LONGEST_LIMIT_S:
        raise BadValueError(f"{text!r} is not between 0 and 10 years", f"write a time such as 8h, or {NONE}")
    return seconds


def _bytes(text: str) -> int:
    return quantities.memory_mib(text) * 2**20


def _read(name: str, text: str, read: Callable[[Any], float]) -> float:
    try:
        return read(text)
    except BadValueError as error:
        raise InvalidInputError(f"{_OPTIONS[name]}: {error.cause}", error.hint) from error
