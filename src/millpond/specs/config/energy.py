"""The section ``energy`` of the configuration: what a kWh costs and emits, and what cards are said to draw."""

from __future__ import annotations

import csv
import io
import math
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from millpond.model.energy import (
    DeclaredPower,
    EnergyRates,
    Rate,
    RateHours,
    RateMeasure,
    RateSeries,
    regular_steps,
)
from millpond.specs.config.files import bounded_text
from millpond.specs.errors import BadValueError, Problem, as_written
from millpond.specs.job.mounts import HostPath
from millpond.specs.job.windows import MOST_WINDOWS, WindowFile
from millpond.specs.source_positions import Located
from millpond.specs.validation import Shortened, Strict, or_short

_TITLES: Final = ["at", "value"]
_MOST_LINES: Final = 1_000_000
_SHAPE: Final = "write a line at,value and below it lines such as 2026-11-26T18:00+01:00,0.31"

_MOST: Final = 1_000_000
_Value = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
_Watts = Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]


class RateHoursFile(Strict):
    """Hours that have a rate of their own.

    Attributes:
        window: the hours.
        value: the rate in them.
    """

    window: WindowFile
    value: _Value


class RateFile(Shortened):
    """What a kWh costs or emits: a number, or one for some hours and one for all others.

    Attributes:
        value: at all other hours.
        hours: hours with rates of their own; where several hold, the first counts.
    """

    model_config = or_short({"type": "number"})

    value: _Value
    hours: Annotated[list[RateHoursFile], Field(max_length=MOST_WINDOWS)] = Field(default=[])

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """A number as the long form."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadValueError(f"{as_written(value)} is no rate", "write a number, or {value: 0.31, hours: [...]}")
        return {"value": value}

    def rate(self) -> Rate:
        """The model's form."""
        hours = tuple((each.window.window(), each.value) for each in self.hours)
        return RateHours(self.value, hours) if hours else RateSeries.constant(self.value)


class DeclaredPowerFile(Strict):
    """What a card of a model draws, where its driver does not report it.

    Attributes:
        idle_w: while it does not compute.
        busy_w: while it computes all the time.
    """

    idle_w: _Watts
    busy_w: _Watts

    @model_validator(mode="after")
    def _rising(self) -> DeclaredPowerFile:
        if self.busy_w < self.idle_w:
            raise BadValueError(f"busy_w: {self.busy_w:g} is less than idle_w: {self.idle_w:g}", "exchange them")
        return self


class EnergyFile(Strict):
    """What energy costs and emits, for usage reports and for jobs that may start later (``flexible``).

    Attributes:
        price: of a kWh, in the currency of ``prices``.
        price_file: a file with prices over time, instead (lines of ``at,value``).
        carbon: grams of CO2 that a kWh emits, 0 or more.
        carbon_file: a file with intensities over time, instead.
        cards: by model, what cards draw that do not report it; left out: their energy is unknown.
        flexible_by: what jobs with ``flexible`` wait for: hours that cost less, or that emit less; left out: the price
            where there is one, else carbon.
    """

    price: RateFile | None = None
    price_file: HostPath | None = None
    carbon: RateFile | None = None
    carbon_file: HostPath | None = None
    cards: dict[str, DeclaredPowerFile] = Field(default={})
    flexible_by: Literal["price", "carbon"] | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> EnergyFile:
        for name in ("price", "carbon"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise BadValueError(f"both {name} and {name}_file", "leave one of them out")
        if self.carbon is not None:
            _refuse_negative(self.carbon.value, *(each.value for each in self.carbon.hours))
        by = self.flexible_by
        if by is not None and getattr(self, by) is None and getattr(self, f"{by}_file") is None:
            raise BadValueError(f"flexible_by: {by}, and no {by} is given", f"add {by} or {by}_file")
        return self

    def rates(self, located: Located, problems: list[Problem]) -> EnergyRates:
        """What the section says.

        Args:
            problems: gets what is wrong with the files that it names; their rates are then unknown.
        """
        cards = {model: DeclaredPower(card.idle_w, card.busy_w) for model, card in self.cards.items()}
        price = _series(self.price, self.price_file, "price_file", located, problems)
        carbon = _series(self.carbon, self.carbon_file, "carbon_file", located, problems)
        by = None if self.flexible_by is None else RateMeasure(self.flexible_by)
        return EnergyRates(price, carbon, cards, by)


def _series(
    value: RateFile | None, file: str | None, name: str, located: Located, problems: list[Problem]
) -> Rate | None:
    if file is None:
        return None if value is None else value.rate()
    try:
        read = read_series(bounded_text(Path(file).expanduser()))
        if name == "carbon_file":
            _refuse_negative(*(each for each in read.values if each is not None))
        return read
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read ({getattr(error, 'strerror', None) or 'it is no UTF-8 text'})"
        problems.append(located.problem(("energy", name), message, "name a file that the server's account may read"))
    except BadValueError as error:
        problems.append(located.problem(("energy", name), f"{file}: {error.cause}", error.hint))
    return None


def _refuse_negative(*grams: float) -> None:
    if min(grams, default=0.0) < 0:
        raise BadValueError(f"{min(grams):g} g of carbon", "write 0 or more: only prices may be negative")


def read_series(text: str) -> RateSeries:
    """A series from lines of ``at,value``; an empty value is a gap, as is a missing line of a regular series.

    Raises:
        BadValueError: a line is wrong, with its number, or the instants do not rise.
    """
    try:
        lines = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:  # as of a quote that is never closed
        raise BadValueError(f"its lines cannot be told apart ({error})", _SHAPE) from error
    if not lines or [title.strip() for title in lines[0]] != _TITLES:
        raise BadValueError("the first line is not at,value", _SHAPE)
    if len(lines) > _MOST_LINES:
        raise BadValueError(f"{len(lines)} lines", f"keep it to {_MOST_LINES:,}: the years that reports are made of")
    begins: list[float] = []
    values: list[float | None] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        if len(line) != len(_TITLES):
            raise BadValueError(f"line {number} has {len(line)} fields", _SHAPE)
        begin = _instant(line[0].strip(), number)
        if begins and begin <= begins[-1]:
            raise BadValueError(f"line {number} is not later than the one before it", "sort the lines by their instant")
        begins.append(begin)
        values.append(_value(line[1].strip(), number))
    if not begins:
        raise BadValueError("no line has a value", _SHAPE)
    return regular_steps(begins, values)


def _instant(text: str, number: int) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadValueError(f"line {number}: {text[:40]!r} is no instant", _SHAPE) from error
    if at.tzinfo is None:
        raise BadValueError(
            f"line {number}: {text[:40]!r} has no time zone", f"write {text[:40]}Z, or +01:00 behind it"
        )
    return at.timestamp()


def _value(text: str, number: int) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= _MOST:  # nor where it is no number
        raise BadValueError(
            f"line {number}: {text[:40]!r} is no number of at most {_MOST:,}",
            "write a number, or nothing where none is known",
        )
    return value
