"""What a kWh costs or emits in the hours to come: as its series says, and beyond that as on the days before.

Prices are published a day ahead, carbon intensities as they come. An hour that its series does not know yet is taken to
be as the mean of the same hour on the last ``PATTERN_DAYS`` days, shifted by how far the last known hours lie from
theirs, which fades over a day. Chosen on public series of a year (``docs/measured.md``).

Where the latest value is older than a day, nothing is predicted: a series that has ended says nothing of today.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import numpy as np

from millpond.model.energy import Rate, RateMeasure
from millpond.model.events import EnergyRatePredicted
from millpond.model.units import DAY_S, HOUR_S

AHEAD_HOURS: Final = 8 * 24
PATTERN_DAYS: Final = 14
_BEHIND_HOURS: Final = PATTERN_DAYS * 24
_SHIFT_HOURS: Final = 3
_FADES_HOURS: Final = 24.0
_DIGITS: Final = 6
_NAMES: Final = {RateMeasure.PRICE: "price", RateMeasure.CARBON: "carbon intensity"}


def predict_rate(rate: Rate | None, measure: RateMeasure, now: float) -> EnergyRatePredicted:
    """The hours from the present one on; without values, and with the reason, where nothing is known of it."""
    begin = now // HOUR_S * HOUR_S
    if rate is None:
        return EnergyRatePredicted(now, measure, begin, (), f"no {_NAMES[measure]} of energy is configured")
    known = _known_hours(rate, begin)
    latest = np.flatnonzero(~np.isnan(known[: _BEHIND_HOURS + 1]))
    if not len(latest):
        missing = f"its series has no {_NAMES[measure]} of the last {PATTERN_DAYS} days"
        return EnergyRatePredicted(now, measure, begin, (), missing)
    age_s = (_BEHIND_HOURS - latest[-1]) * HOUR_S
    if age_s > DAY_S:
        missing = f"the latest {_NAMES[measure]} of its series is of {_time(begin - age_s)}"
        return EnergyRatePredicted(now, measure, begin, (), missing)
    ahead = known[_BEHIND_HOURS:]
    said = np.where(np.isnan(ahead), _as_before(known, int(latest[-1])), ahead)
    if np.isnan(said[0]):
        missing = f"its series has no {_NAMES[measure]} for this hour, nor for it on {PATTERN_DAYS} days before"
        return EnergyRatePredicted(now, measure, begin, (), missing)
    values = tuple(None if np.isnan(value) else round(float(value), _DIGITS) for value in said)
    return EnergyRatePredicted(now, measure, begin, values)


def _known_hours(rate: Rate, begin: float) -> np.ndarray:
    """The means of hours behind an instant and ahead of it; NaN where an hour is not known as a whole."""
    first = begin - _BEHIND_HOURS * HOUR_S
    sums = np.zeros(_BEHIND_HOURS + AHEAD_HOURS)
    for since, until, value in rate.steps(first, begin + AHEAD_HOURS * HOUR_S):
        while since < until:
            hour = int((since - first) // HOUR_S)
            end = min(until, first + (hour + 1) * HOUR_S)
            sums[hour] += np.nan if value is None else value * (end - since)
            since = end
    return sums / HOUR_S


def _as_before(known: np.ndarray, latest: int) -> np.ndarray:
    """(hours ahead,) what the days behind say of them.

    Args:
        latest: the index of the last known hour that is not ahead.
    """
    days = known[:_BEHIND_HOURS].reshape(PATTERN_DAYS, 24)
    is_known = ~np.isnan(days)
    counts = is_known.sum(axis=0)
    sums = np.where(is_known, days, 0.0).sum(axis=0)
    pattern = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    recent = np.arange(max(0, latest - _SHIFT_HOURS + 1), latest + 1)
    shifts = known[recent] - pattern[recent % 24]
    shift = float(np.nanmean(shifts)) if not np.isnan(shifts).all() else 0.0
    ahead = np.arange(AHEAD_HOURS)
    fades = np.exp(-(ahead + _BEHIND_HOURS - latest) / _FADES_HOURS)
    found: np.ndarray = pattern[ahead % 24] + shift * fades
    return found


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
