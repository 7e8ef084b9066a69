"""The same recorded jobs, replayed under several policies, for ``adaptation``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millpond.model.policy_trials import ClusterPolicies
from millpond.scheduling.copies.snapshots import settings_of
from millpond.simulation.adaptation import TriedPolicy, window_figures
from millpond.simulation.queueing import admissible_world
from millpond.simulation.what_if.plays import GoesOn, PastJob, past_world, replay_past

Windows = Sequence[tuple[float, float]]


def replay_choices(
    snapshot: dict[str, Any],
    past: Sequence[PastJob],
    choices: Sequence[ClusterPolicies],
    windows: Windows,
    bound: Callable[[], GoesOn],
) -> list[TriedPolicy]:
    """What becomes of the jobs of each window under each policy.

    Args:
        past: by the instant at which they come.
        snapshot: of the scheduler whose nodes, pools, queues and limits hold.
        bound: makes the bound on work of one replay.

    Raises:
        InvalidInputError: none of the jobs could run on the cluster.
    """
    world = admissible_world(past_world(snapshot, past, ()), skip_bad_rows=True)
    counted = {each.entry.job.id for each in past if each.counts}
    lengths = {entry.job.id: entry.duration_s for entry in world.workload.jobs}
    settings = settings_of(snapshot)
    tried = []
    for choice in choices:
        played = replay_past(world, settings.under(choice), bound())
        jobs = [
            (job.since, job.ended_at, lengths[name])
            for name, job in played.jobs.items()
            if name in counted and job.ended_at is not None
        ]
        figures = () if played.cut else tuple(window_figures(jobs, window) for window in windows)
        tried.append(TriedPolicy(choice, figures))
    return tried
