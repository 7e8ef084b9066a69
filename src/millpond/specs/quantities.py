"""Quantities with units as people write them: ``32GiB``, ``500m`` of a CPU, ``25%`` of a card, ``2h``."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any, Final

from millpond.model.resources import CARD_MILLI
from millpond.specs.errors import BadValueError, as_written

LARGEST_MEMORY_MIB: Final = 2**40
LARGEST_CPU_MILLI: Final = 10**9
LONGEST_S: Final = 100 * 365 * 86400

_NUMBER: Final = r"(\d+(?:\.\d+)?)"
_MEMORY: Final = re.compile(rf"{_NUMBER}\s*([kmgtp])(i?)b?", re.IGNORECASE)
_CPU: Final = re.compile(rf"{_NUMBER}\s*(m?)")
_PERCENT: Final = re.compile(rf"{_NUMBER}\s*(%?)")
_PART: Final = re.compile(rf"{_NUMBER}\s*(%|m?)")
_CLOCK: Final = re.compile(r"(\d+):([0-5]\d):([0-5]\d)")
_SPAN: Final = re.compile(rf"{_NUMBER}\s*([a-z]+)\s*", re.IGNORECASE)
_BARE: Final = re.compile(_NUMBER)
_SECONDS: Final[dict[str, int | Fraction]] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), Fraction(1, 1000)),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "week", "weeks"), 604800),
}


def memory_mib(value: Any) -> int:
    """``32GiB``, ``512Mi``, ``1.5TB`` in MiB, rounded up.

    Raises:
        BadValueError: no unit, a negative amount, or not an amount of memory at all.
    """
    hint = "write a number with a unit, such as 512MiB or 32GiB"
    if (bare := _bare(value)) is not None and bare != "0":
        likely = (f"{bare}MiB", f"{bare}GiB") if Fraction(bare) >= 256 else (f"{bare}GiB", f"{bare}MiB")
        raise BadValueError(f"{as_written(value)} has no unit", f"did you mean {likely[0]}, or {likely[1]}?")
    match = _MEMORY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise BadValueError(f"{as_written(value)} is not an amount of memory", hint)
    number, letter, binary = match.groups()
    base = 1024 if binary else 1000
    size = Fraction(number) * base ** ("kmgtp".index(letter.lower()) + 1)
    return _at_most(math.ceil(size / 2**20), LARGEST_MEMORY_MIB, value, hint)


def cpu_milli(value: Any) -> int:
    """``8``, ``0.5``, ``500m`` in milli-cores.

    Raises:
        BadValueError: negative, finer than a milli-core, or not a number.
    """
    return _milli(value, "CPU", "write cores (8, 0.5) or milli-cores (500m)")


def gpu_milli(value: Any) -> int:
    """``2``, ``0.25`` or ``250m`` cards in milli.

    Raises:
        BadValueError: negative, finer than a thousandth of a card, or not a number.
    """
    return _milli(value, "GPU", "write cards (2) or a part of one (0.25)")


def compute_milli(value: Any) -> int:
    """A part of one card, ``25%``, ``0.25`` or ``250m``, in milli; the step is one percent.

    Raises:
        BadValueError: outside 0..100 %, finer than one percent, or not a part.
    """
    hint = "write a part of one card in steps of one percent, such as 25% or 0.25"
    number, unit = _number(value, _PART, f"{as_written(value)} is not a part of a card", hint)
    milli = number * {"%": 10, "m": 1, "": CARD_MILLI}[unit]
    if milli > CARD_MILLI:
        raise BadValueError(f"{as_written(value)} is more than one card", hint)
    if milli % 10:
        raise BadValueError(f"{as_written(value)} is finer than one percent of a card", hint)
    return int(milli)


def slowdown(value: Any) -> float:
    """``5%`` or ``0.05``: by which part something may take longer.

    Raises:
        BadValueError: outside 1..50 %, or not a part.
    """
    hint = "write a part from 0.01 to 0.5, or 5%"
    number, unit = _number(value, _PERCENT, f"{as_written(value)} is not a part", hint)
    part = number / 100 if unit else number
    if not Fraction(1, 100) <= part <= Fraction(1, 2):
        raise BadValueError(f"{as_written(value)} is less than a hundredth or more than a half", hint)
    return float(part)


def seconds(value: Any) -> float:
    """``60s``, ``2h``, ``1h30m``, ``500ms`` or ``1:30:00`` in seconds; 0 needs no unit.

    Raises:
        BadValueError: negative, too long, or not a length of time.
    """
    hint = "write a length of time such as 90s, 30m, 2h, 1d12h or 1:30:00"
    problem = BadValueError(f"{as_written(value)} is not a length of time", hint)
    bare = _bare(value)
    if bare is not None and Fraction(bare) != 0:
        raise BadValueError(f"{as_written(value)} has no unit", f"did you mean {bare}s, {bare}m or {bare}h?")
    if bare is not None:
        total = Fraction(0)
    elif isinstance(value, str) and (clock := _CLOCK.fullmatch(value.strip())):
        hours, minutes, rest = (int(part) for part in clock.groups())
        total = Fraction(hours * 3600 + minutes * 60 + rest)
    elif isinstance(value, str) and value.strip():
        total, text = Fraction(0), value.strip()
        while text:
            match = _SPAN.match(text)
            if match is None or match.group(2).lower() not in _SECONDS:
                raise problem
            total += Fraction(match.group(1)) * _SECONDS[match.group(2).lower()]
            text = text[match.end() :]
    else:
        raise problem
    if not 0 <= total <= LONGEST_S:
        raise BadValueError(f"{as_written(value)} is not between 0 and 100 years", hint)
    return float(total)


def _milli(value: Any, what: str, hint: str) -> int:
    number, unit = _number(value, _CPU, f"{as_written(value)} is not a number of {what}s", hint)
    milli = number if unit == "m" else number * 1000
    if milli.denominator != 1:
        raise BadValueError(f"{as_written(value)} is finer than a thousandth of a {what}", hint)
    return _at_most(int(milli), LARGEST_CPU_MILLI, value, hint)


def _bare(value: Any) -> str | None:
    """A number that was written without a unit, as text; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value).strip()
    return text if _BARE.fullmatch(text) else None


def _number(value: Any, pattern: re.Pattern[str], cause: str, hint: str) -> tuple[Fraction, str]:
    """A non-negative number and its unit, from a number or from text."""
    problem = BadValueError(cause, hint)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = _finite(value, problem)
        if number < 0:
            raise BadValueError(f"{as_written(value)} is negative", hint)
        return number, ""
    match = pattern.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise problem
    return Fraction(match.group(1)), match.group(2)


def _finite(value: float, problem: BadValueError) -> Fraction:
    """The number exactly as it was written (0.1 is a tenth)."""
    if isinstance(value, float) and not math.isfinite(value):
        raise problem
    return Fraction(str(value))


def _at_most(amount: int, largest: int, value: Any, hint: str) -> int:
    if amount > largest:
        raise BadValueError(f"{as_written(value)} is more than any machine has", hint)
    return amount


def size_text(count: int) -> str:
    """An amount of bytes: ``512 B``, ``1.5 KiB``, ``20.0 GiB``."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while round(amount, 1) >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"
