"""Kernels that were made ready: nothing is compiled any more when work arrives."""

from __future__ import annotations

import numba
import pytest

from millpond.model.policies import LEARNED_FIGURES, learned_name
from millpond.scheduling.settings import Settings
from millpond.simulation import kernel_warmup
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.kernel_warmup import kernel_progress, warm_up
from millpond.simulation.synthetic import SyntheticOptions, synthesise

pytestmark = pytest.mark.long


@pytest.mark.parametrize("preempt", [True, False])
@pytest.mark.parametrize("users", [12, 200])
def test_after_warming_up_no_kernel_is_compiled_any_more(users: int, preempt: bool) -> None:
    warm_up(Settings(preempt=True))
    crowd = synthesise(SyntheticOptions(jobs=60 + users, load=5.0, users=users), 8, 4, seed=2)
    world = World(uniform_cluster("2x4"), crowd, "predicted")
    with numba.core.event.install_recorder("numba:compile") as recorder:
        Simulation(world, make_scheduler(Settings(preempt=preempt))).run()
    assert [event for _, event in recorder.buffer] == []


def test_a_process_warms_up_once_for_all_weights_of_an_ordering(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []
    monkeypatch.setattr(kernel_warmup, "_play_crowd", lambda settings, *_: played.append(settings.ordering))
    monkeypatch.setattr(kernel_warmup, "_warmed", set())
    first, second = (learned_name([weight] * len(LEARNED_FIGURES)) for weight in (1.0, 2.0))
    for ordering in (first, second, "fifo", first):
        warm_up(Settings(ordering=ordering))
    assert list(dict.fromkeys(played)) == [first, "fifo"]


def test_each_kernel_that_is_compiled_is_told_and_one_that_is_ready_is_not() -> None:
    told: list[int] = []
    kernel = numba.njit(lambda x: x + 1)
    with kernel_progress(told.append):
        kernel(1)
        first, told[:] = list(told), []
        kernel(2)
    assert first[0] == 0, "said when it begins"
    assert first[-1] >= 1
    assert told == []
