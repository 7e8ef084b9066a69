"""How good forecasts of series were, by what was said and what came. Steps with a NaN in either do not count."""

from __future__ import annotations

import math

import numpy as np


def pinball(said: np.ndarray, came: np.ndarray, part: float) -> float:
    """Mean pinball loss of forecasts of the quantile ``part`` (Koenker and Bassett, 1978)."""
    short = (came - said)[known_in(said, came)]
    return float(np.maximum(part * short, (part - 1.0) * short).mean())


def coverage(said: np.ndarray, came: np.ndarray) -> float:
    """Part of the steps at which what came was within what was said."""
    return float((came <= said)[known_in(said, came)].mean())


def skill(loss: float, naive_loss: float) -> float:
    """What part of the naive loss is saved: 1 is perfect, 0 is no better, below 0 is worse, at last without bound."""
    if naive_loss > 0.0:
        return 1.0 - loss / naive_loss
    return -math.inf if loss > 0.0 else 0.0


def known_in(*series: np.ndarray) -> np.ndarray:
    """At which steps all are known."""
    known: np.ndarray = ~np.isnan(np.array(series)).any(axis=0)
    return known
