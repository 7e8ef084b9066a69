"""Energy and what it costs: prices and carbon intensity over time, what cards draw, and sums of both.

The server's recorder and the simulator's meter charge by the same ``EnergyRates.charge``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final

from millpond.model.units import DAY_S
from millpond.model.windows import Window, shown_spans

J_PER_KWH: Final = 3_600_000.0


class RateMeasure(StrEnum):
    """What jobs that may start later go by."""

    PRICE = "price"
    """What a kWh costs."""
    CARBON = "carbon"
    """Grams of CO2 that a kWh emits."""


@dataclass(frozen=True, slots=True)
class DeclaredPower:
    """What a card of one model draws, as an admin declares it.

    Attributes:
        idle_w: while it does not compute.
        busy_w: while it computes all the time.
    """

    idle_w: float
    busy_w: float

    def drawn_w(self, use: float) -> float:
        """The power at a use from 0 to 1, on the line between both."""
        return self.idle_w + (self.busy_w - self.idle_w) * use


@dataclass(frozen=True, slots=True)
class Rate:
    """What a kWh costs or emits over time."""

    def mean(self, since: float, until: float) -> tuple[float, float]:
        """The mean value over the known part of a span, and how much of the span is known, from 0 to 1."""
        total = known_s = 0.0
        for begin, end, value in self.steps(since, until):
            if value is not None:
                total += value * (end - begin)
                known_s += end - begin
        return (total / known_s, min(known_s / (until - since), 1.0)) if known_s else (0.0, 0.0)

    def gaps(self, since: float, until: float) -> list[tuple[float, float]]:
        """The spans between two instants of which no value is known, adjacent ones as one."""
        found: list[tuple[float, float]] = []
        for begin, end, value in self.steps(since, until):
            if value is not None:
                continue
            if found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, end))
        return found

    def steps(self, since: float, until: float) -> Iterator[tuple[float, float, float | None]]:
        """The steps within a span, as (begin, end, value); None is a gap."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RateHours(Rate):
    """A tariff by the hours of the day and the days of the week.

    Attributes:
        value: at all other hours.
        hours: windows with the value that holds in them; the first that is open counts. In spring, hours of which the
            clock skips all have no part of the day.
    """

    value: float
    hours: tuple[tuple[Window, float], ...]

    def gaps(self, since: float, until: float) -> list[tuple[float, float]]:
        """None: it is known at all times."""
        return []

    def steps(self, since: float, until: float) -> Iterator[tuple[float, float, float | None]]:
        """See ``Rate``."""
        begin = since
        while begin < until:
            value, change = _step_at(self, begin // 60 * 60)
            end = min(change, until)
            yield begin, end, value
            begin = end


@lru_cache(maxsize=10_000)
def _step_at(rate: RateHours, minute: float) -> tuple[float, float]:
    """The value in a minute, as windows open and close with one, and until when it holds at least."""
    found, change = rate.value, minute + DAY_S
    for window, value in reversed(rate.hours):
        for begin, end in shown_spans(window, minute):
            if begin <= minute < end:
                found = value
            change = min([change, *(edge for edge in (begin, end) if edge > minute)])
    return found, change


@dataclass(frozen=True, slots=True)
class RateSeries(Rate):
    """What a kWh costs or emits, as steps over time.

    Attributes:
        begins: instants, rising, in seconds since 1970.
        values: the value from each instant until the next; None is a gap.
        until: the end of the last step.
    """

    begins: tuple[float, ...]
    values: tuple[float | None, ...]
    until: float = float("inf")

    @classmethod
    def constant(cls, value: float) -> RateSeries:
        """The same at all times."""
        return cls((float("-inf"),), (value,))

    def before(self, instant: float) -> RateSeries:
        """The part of it that lies before an instant."""
        count = bisect_left(self.begins, instant)
        return RateSeries(self.begins[:count], self.values[:count], min(self.until, instant))

    def steps(self, since: float, until: float) -> Iterator[tuple[float, float, float | None]]:
        """See ``Rate``; what lies before the first step and behind the last is a gap."""
        count = len(self.begins)
        index = count if since >= self.until else bisect_right(self.begins, since) - 1
        begin = since
        while begin < until:
            value = self.values[index] if 0 <= index < count else None
            following = self.begins[index + 1] if index + 1 < count else self.until
            end = until if index >= count else min(following, until)
            yield begin, end, value
            begin, index = end, index + 1


@dataclass(frozen=True, slots=True)
class EnergySum:
    """Energy, and what it cost and emitted as far as that is known.

    Attributes:
        known_gpu_s: seconds of whole cards whose energy is known.
        energy_j: what was drawn in these.
        declared_j: the part of it that follows from a declared power; the rest was measured.
        cost, priced_j: the price of the energy of which one is known, and that energy.
        co2_g, carbon_j: the same of its emissions.
    """

    known_gpu_s: float = 0.0
    energy_j: float = 0.0
    declared_j: float = 0.0
    cost: float = 0.0
    priced_j: float = 0.0
    co2_g: float = 0.0
    carbon_j: float = 0.0

    def __add__(self, other: EnergySum) -> EnergySum:
        return EnergySum(*(getattr(self, name) + getattr(other, name) for name in ENERGY_FIELDS))


ENERGY_FIELDS: Final = tuple(each.name for each in fields(EnergySum))
NO_ENERGY: Final = EnergySum()
_REGULAR: Final = 0.9


@dataclass(frozen=True, slots=True)
class EnergyRates:
    """By what energy is charged.

    Attributes:
        price: of a kWh; None: none is known.
        carbon: grams of CO2 for a kWh; None: unknown.
        cards: by model, for those that do not report their power.
        flexible_by: by which of both jobs go that may start later; None: by the price where there is one.
    """

    price: Rate | None = None
    carbon: Rate | None = None
    cards: Mapping[str, DeclaredPower] = field(default_factory=dict)
    flexible_by: RateMeasure | None = None

    @property
    def flexible_rate(self) -> tuple[RateMeasure, Rate | None]:
        """What jobs go by that may start later."""
        measure = self.flexible_by or (RateMeasure.CARBON if self.price is None else RateMeasure.PRICE)
        return measure, self.price if measure is RateMeasure.PRICE else self.carbon

    def charge(self, span: tuple[float, float], gpu_s: float, measured_j: float, declared_j: float = 0.0) -> EnergySum:
        """What was drawn evenly over a span, priced.

        Args:
            gpu_s: the seconds of whole cards that drew it.
        """
        energy_j = measured_j + declared_j
        price, priced = self.price.mean(*span) if self.price is not None else (0.0, 0.0)
        carbon, carbon_known = self.carbon.mean(*span) if self.carbon is not None else (0.0, 0.0)
        priced_j, carbon_j = energy_j * priced, energy_j * carbon_known
        return EnergySum(
            gpu_s, energy_j, declared_j, price * priced_j / J_PER_KWH, priced_j, carbon * carbon_j / J_PER_KWH, carbon_j
        )


def regular_steps(begins: Sequence[float], values: Sequence[float | None]) -> RateSeries:
    """A series from its lines. Each holds until the next one, and the last as long as the line before it.

    If nine of ten lines are as far apart as the most frequent distance says, a longer distance is a missing line, so a
    gap begins where that line should stand. Lines at other distances are a tariff with hours of its own.
    """
    distances = [later - earlier for earlier, later in pairwise(begins)]
    if not distances:
        return RateSeries(tuple(begins), tuple(values))
    usual = max(set(distances), key=distances.count)
    is_regular = distances.count(usual) >= _REGULAR * len(distances)
    stepped: list[tuple[float, float | None]] = []
    for begin, value, distance in zip(begins, values, [*distances, usual], strict=True):
        stepped.append((begin, value))
        if is_regular and distance > usual:
            stepped.append((begin + usual, None))
    last = usual if is_regular else distances[-1]
    return RateSeries(tuple(at for at, _ in stepped), tuple(value for _, value in stepped), begins[-1] + last)
