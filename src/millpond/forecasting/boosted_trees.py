"""Gradient boosted trees as forecasters, where scikit-learn is installed (the extra ``learn``)."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Final, Literal

import numpy as np

from millpond.forecasting.forecasters import Learnt, LoadForecaster, Model

_TREES: Final = 150
_RATE: Final = 0.05
_LEAVES: Final = 8
_LEAST_IN_LEAF: Final = 20

Loss = Literal["absolute_error", "squared_error"]


def boosted_trees() -> list[LoadForecaster]:
    """Trees on the median and on the mean; none without the library."""
    if find_spec("sklearn") is None:
        return []
    return [
        Learnt("trees on the median", partial(_fit, "absolute_error")),
        Learnt("trees on the mean", partial(_fit, "squared_error")),
    ]


def _fit(loss: Loss, features: np.ndarray, changes: np.ndarray) -> Model:
    from sklearn.ensemble import HistGradientBoostingRegressor

    varied = [column for column in range(features.shape[1]) if len(_known(features[:, column])) > 1]
    trees = HistGradientBoostingRegressor(
        loss=loss,
        max_iter=_TREES,
        learning_rate=_RATE,
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=_LEAST_IN_LEAF,
        early_stopping=False,
        random_state=0,
    ).fit(features[:, varied], changes)
    return lambda asked: np.asarray(trees.predict(asked[:, varied]))


def _known(column: np.ndarray) -> np.ndarray:
    return np.unique(column[~np.isnan(column)])
