"""Getting compiled kernels ready before time is taken, as a server has them ready when work arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

from millpond.model.policies import without_weights
from millpond.scheduling.ordering.waiting_lines import FEW
from millpond.scheduling.placement.kernel_warmup import warm
from millpond.scheduling.placement.kernels import compiled
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.synthetic import SyntheticOptions, synthesise

_warmed: set[tuple[object, ...]] = set()
"""Settings for which kernels are ready in this process: the ordering without its weights, and the others."""


@contextmanager
def kernel_progress(on_compiled: Callable[[int], None]) -> Iterator[None]:
    """Within it, report how many kernels have been compiled; those from the cache are not counted.

    Args:
        on_compiled: also called with 0 when the first one begins; on the thread that compiles.
    """
    try:
        compiled()
        from numba.core import event
    except ImportError:
        yield  # there is no compiler
        return

    class WarmupListener(event.Listener):
        begun = compiled = 0

        def on_start(self, _: object) -> None:
            self.begun += 1
            if self.begun == 1:
                on_compiled(0)

        def on_end(self, _: object) -> None:
            self.compiled += 1
            on_compiled(self.compiled)

    with event.install_listener("numba:compile", WarmupListener()):
        yield


def warm_up(settings: Settings) -> None:
    """Play a small crowded workload, in which jobs wait, reserve and are preempted, so that every kernel has run.

    The first time on a machine this compiles them, which takes some tens of seconds; later they come from a cache. In a
    process it is done once for settings that differ in the weights of their ordering at most.
    """
    others = (getattr(settings, field.name) for field in fields(settings) if field.name != "ordering")
    kind = (without_weights(settings.ordering), *others)
    if kind in _warmed:
        return
    try:
        warm()
    except ImportError:
        return  # there is no compiler
    for durations in ("none", "exact"):
        for preempt in (True, False):  # who cannot preempt reserves
            _play_crowd(replace(settings, preempt=preempt), FEW // 4, durations)
    _play_crowd(settings, 4 * FEW, "exact")  # few lines are looked at one by one, many by their table
    _warmed.add(kind)


def _play_crowd(settings: Settings, users: int, durations: str) -> None:
    options = SyntheticOptions(jobs=2 * users + 60, load=10.0, users=users)
    crowd = synthesise(options, total_cards=16, cards_per_node=4, seed=0)
    Simulation(World(uniform_cluster("4x4"), crowd, durations), make_scheduler(settings)).run()


if __name__ == "__main__":
    warm_up(Settings(preempt=True))
