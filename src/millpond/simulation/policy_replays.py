"""The same recorded jobs, replayed under several policies, for ``adaptation``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from millpond.model.policy_trials import ClusterPolicies
from millpond.scheduling.copies.snapshots import settings_of
from millpond.scheduling.settings import Settings
from millpond.simulation.adaptation import TriedPolicy, window_figures
from millpond.simulation.queueing import admissible_world
from millpond.simulation.trace import TraceJob
from millpond.simulation.what_if.plays import GoesOn, past_world, replay_past

Windows = Sequence[tuple[float, float]]


def under(settings: Settings, choice: ClusterPolicies) -> Settings:
    """The settings with other policies."""
    return replace(
        settings,
        ordering=choice.ordering,
        placement=choice.placement,
        preempt=choice.preempt,
        reserve=choice.reserve,
    )


def replay_choices(
    snapshot: dict[str, Any],
    entries: tuple[TraceJob, ...],
    choices: Sequence[ClusterPolicies],
    windows: Windows,
    bound: Callable[[], GoesOn],
) -> list[TriedPolicy]:
    """What becomes of the jobs of each window under each policy, in a cluster that is empty at first.

    Args:
        snapshot: of the scheduler whose nodes, pools, queues and limits hold.
        bound: makes the bound on work of one replay.

    Raises:
        InvalidInputError: none of the jobs could run on the cluster.
    """
    world = admissible_world(past_world(snapshot, entries, ()), skip_bad_rows=True)
    lengths = {entry.job.id: entry.duration_s for entry in world.workload.jobs}
    settings = settings_of(snapshot)
    tried = []
    for choice in choices:
        played = replay_past(world, under(settings, choice), bound())
        jobs = [
            (job.since, job.ended_at, lengths[name]) for name, job in played.jobs.items() if job.ended_at is not None
        ]
        figures = () if played.cut else tuple(window_figures(jobs, window) for window in windows)
        tried.append(TriedPolicy(choice, figures))
    return tried
