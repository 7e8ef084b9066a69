"""Scenes: small situations as data. A cluster, what runs on it, what arrives; and what must come of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from worlds import World

from millpond.model.decisions import Start, Stop
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.reasons import Cause
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job
from millpond.scheduling.settings import Settings

APART_S = 10.0
"""Seconds between the submissions of the jobs that run before."""


@dataclass(frozen=True)
class Scene:
    """One situation and its outcome.

    Attributes:
        name: the behaviour, as a sentence.
        before: jobs that are there first, one every ``APART_S``; they run until they are ended.
        arriving: jobs that come together afterwards.
        runs: ids of those that run in the end; all others wait.
        stopped: ids of those that were asked to leave.
        cause: why they were.
    """

    name: str
    nodes: tuple[Node, ...]
    arriving: tuple[Job, ...]
    runs: str
    before: tuple[Job, ...] = ()
    stopped: str = ""
    cause: Cause = Cause.PREEMPTED
    queues: tuple[Queue, ...] = ()
    pools: tuple[Pool, ...] = ()
    settings: Settings = Settings()

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def play(scene: Scene) -> World:
    """Bring the scene about and check its outcome."""
    world = World(*scene.nodes, settings=scene.settings, pools=scene.pools, queues=scene.queues)
    for job in scene.before:
        world.submit(job)
        world.go_to(world.now + APART_S)
    world.submit(*scene.arriving)
    stops = world.of_kind(Stop)
    assert world.running() == set(scene.runs.split())
    assert sorted(stop.job for stop in stops) == sorted(scene.stopped.split())
    assert all(stop.cause is scene.cause for stop in stops)
    return world


def started_tasks(world: World, job: str) -> list[tuple[int, ...]]:
    """Task numbers of every start of a job, in order."""
    return [tuple(placement.task for placement in start.placements) for start in world.of_kind(Start, job)]


def racks(**sizes: int) -> Iterable[tuple[str, str]]:
    """Pairs of rack and node name: ``racks(r=2)`` gives r/r0 and r/r1."""
    for rack, size in sizes.items():
        for number in range(size):
            yield rack, f"{rack}{number}"
