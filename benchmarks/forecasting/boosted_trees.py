"""Gradient boosted trees as forecasters, to hold Millpond's own against; they need scikit-learn."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Literal

import numpy as np

from millpond.forecasting.forecasters import Learnt, LoadForecaster, Model

_TREES: Final = 150
_RATE: Final = 0.05
_LEAVES: Final = 8
_LEAST_IN_LEAF: Final = 20

Loss = Literal["absolute_error", "squared_error"]


def boosted_trees() -> list[LoadForecaster]:
    """Trees on the median and on the mean."""
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
    )
    with _one_thread():
        trees.fit(features[:, varied], changes)

    def model(asked: np.ndarray) -> np.ndarray:
        with _one_thread():
            return np.asarray(trees.predict(asked[:, varied]))

    return model


def _one_thread() -> AbstractContextManager[object]:
    """So few rows take one thread milliseconds; several wait for each other, and spin for seconds on busy cores."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="openmp")
    return limits


def _known(column: np.ndarray) -> np.ndarray:
    return np.unique(column[~np.isnan(column)])
