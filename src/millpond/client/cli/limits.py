"""Limits of users and groups as options and as words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from millpond.client.cli import wording
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.accounts import LimitsBody
from millpond.specs.errors import BadValueError

NONE = "none"


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for what an account may hold at once."""
    for option in (
        click.option("--dev-time", metavar="TIME", help="How long one dev job may run, such as 8h."),
        click.option("--cpus", metavar="NUMBER", help="CPU cores held at once."),
        click.option("--gpus", metavar="NUMBER", help="Cards held at once; may be a fraction."),
        click.option("--jobs", metavar="NUMBER", help="Running jobs at once; none lifts the limit, here and below."),
    ):
        command = option(command)
    return command


def limits_from(
    present: LimitsBody, jobs: str | None, gpus: str | None, cpus: str | None, dev_time: str | None
) -> LimitsBody:
    """The present limits, with those changed that were given.

    Raises:
        InvalidInputError: one is no number.
    """
    changes: dict[str, float | None] = {}
    for name, text, read in (
        ("jobs", jobs, _whole),
        ("gpu_milli", gpus, quantities.cpu_milli),
        ("cpu_milli", cpus, quantities.cpu_milli),
        ("dev_s", dev_time, quantities.seconds),
    ):
        if text is not None:
            changes[name] = None if text == NONE else _read(name, text, read)
    return LimitsBody.model_validate(present.model_dump() | changes)


def limits_text(limits: LimitsBody) -> str:
    """Limits in words."""
    parts = [
        text
        for value, text in (
            (limits.jobs, f"{limits.jobs} running jobs"),
            (limits.gpu_milli, f"{wording.thousandth(limits.gpu_milli or 0)} cards"),
            (limits.cpu_milli, f"{wording.thousandth(limits.cpu_milli or 0)} CPUs"),
            (limits.dev_s, f"dev jobs of {wording.span(limits.dev_s or 0)}"),
        )
        if value is not None
    ]
    return f"at most {', '.join(parts)}" if parts else "no limits"


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise BadValueError(f"{text!r} is not a whole number", "write digits")
    return int(text)


def _read(name: str, text: str, read: Callable[[Any], float]) -> float:
    try:
        return read(text)
    except BadValueError as error:
        option = {"jobs": "--jobs", "gpu_milli": "--gpus", "cpu_milli": "--cpus", "dev_s": "--dev-time"}[name]
        raise InvalidInputError(f"{option}: {error.cause}", error.hint) from error
