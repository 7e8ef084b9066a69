"""All that the scheduler knows, close together on few cards: it comes to rest, its sums hold, and its twins agree."""

from __future__ import annotations

import pytest
from dense_worlds import DenseWorld

from millpond.scheduling.estimating import estimate
from seeds import few_then_many

STEPS = 40


@pytest.fixture(autouse=True)
def _few_futures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is estimated is not judged here but for its instants."""
    monkeypatch.setattr(estimate, "FUTURES", 2)


@pytest.mark.parametrize("seed", few_then_many([1], [21, *range(2, 6)], [*range(6, 21), *range(22, 30)]))
def test_whatever_comes_together_the_scheduler_comes_to_rest_and_its_twins_agree(seed: int) -> None:
    scene = DenseWorld(seed, share_of_twins=0.03)
    for number in range(STEPS):
        scene.step()
        scene.check()
        if number % 10 == 9:
            scene.ask_why()
