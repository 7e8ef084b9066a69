"""Amounts as text: exact, and in the units in which people write them, so that what is shown can be written back."""

from __future__ import annotations

import math
from decimal import Decimal

MIB_IN_GIB = 1024
_MILLI = 1000


def decimal_text(number: float) -> str:
    """A number with all its digits and no exponent: ``1048576``, ``0.5``."""
    return f"{Decimal(repr(number)).normalize():f}"


def milli_text(milli: float) -> str:
    """Milli-units as the unit: 250 is ``0.25``."""
    return f"{(Decimal(repr(milli)) / 1000).normalize():f}"


def count_text(number: int, noun: str) -> str:
    """``1 task``, ``3 tasks``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def cards_text(milli: int) -> str:
    """``2 cards``, ``1 card``, ``0.25 cards``."""
    return f"{milli_text(milli)} card{'s' * (milli != _MILLI)}"


def gpus_text(milli: int) -> str:
    """``2 GPUs``, ``1 GPU``."""
    return f"{milli_text(milli)} GPU{'s' * (milli != _MILLI)}"


def cpus_text(milli: int) -> str:
    """``2 CPUs``, ``1 CPU``."""
    return f"{milli_text(milli)} CPU{'s' * (milli != _MILLI)}"


def percent_text(part: float) -> str:
    """A part of 1 in percent: 0.05 is ``5%``."""
    return f"{(Decimal(repr(part)) * 100).normalize():f}%"


def memory_text(mib: int) -> str:
    """``512 MiB``, ``1.5 GiB``, ``1024 GiB``."""
    if mib >= MIB_IN_GIB and mib * 2 % MIB_IN_GIB == 0:
        return f"{decimal_text(mib / MIB_IN_GIB)} GiB"
    return f"{mib} MiB"


def card_memory_text(mib: int) -> str:
    """``8 GiB of card memory``."""
    return f"{memory_text(mib)} of card memory"


def seconds_text(amount_s: float) -> str:
    """A length of time as job files have it: ``90s``, ``30m``, ``8h``, ``1.5s``."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if amount_s and amount_s % length == 0:
            return f"{int(amount_s // length)}{unit}"
    return f"{decimal_text(amount_s)}s"


def pace_text(per_s: float) -> str:
    """How often something happens, to three figures: ``12,300/s``, ``3.45/s``, ``12/min``, ``4.5/h``."""
    for unit, length_s in (("s", 1), ("min", 60), ("h", 3_600)):
        pace = per_s * length_s
        if pace >= 0.5 or unit == "h" or not per_s:
            break
    decimals = 0 if not pace else max(2 - math.floor(math.log10(pace)), 0)
    text = f"{pace:,.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}/{unit}"
