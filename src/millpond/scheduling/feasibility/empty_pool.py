"""The empty twin of a pool: whether a gang could be placed if it had the pool for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.hardware.topology import Level
from millpond.model.workloads import Job, Role
from millpond.scheduling.cycle.job_placement import Placer
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.placement.arrays import Int64Array
from millpond.scheduling.placement.gangs import by_place
from millpond.scheduling.placement.kernels import KernelSet
from millpond.scheduling.placement.shapes import Shape
from millpond.scheduling.records import TaskRecord
from millpond.scheduling.settings import Settings
from millpond.scheduling.tenancy.queues import QueueTree

MOST_VERDICTS = 1_000
"""Answers kept about one pool."""


class EmptyPool:
    """The nodes of one pool, empty and healthy."""

    def __init__(
        self, pool: Pool, nodes: tuple[Node, ...], settings: Settings, queues: QueueTree, kernels: KernelSet
    ) -> None:
        self._pool = pool
        self._nodes = nodes
        cluster = Cluster(Journal())
        cluster.set_pool(pool)
        for node in nodes:
            devices = tuple(replace(device, health=DeviceHealth.OK) for device in node.devices)
            cluster.add_node(replace(node, schedulable=True, devices=devices))
        self._placer = Placer(cluster, settings, queues)
        self._placer.use_kernels(kernels)
        self._verdicts: dict[tuple[object, ...], bool] = {}
        self._rooms: dict[Shape, Int64Array] = {}

    def is_of(self, pool: Pool, nodes: tuple[Node, ...]) -> bool:
        """Whether the pool and its nodes are still those it was made of."""
        return pool == self._pool and nodes == self._nodes

    def takes(self, job: Job, counts: Sequence[int]) -> bool:
        """Whether so many tasks of each role can be placed, as near to each other as the job requires."""
        if len(counts) == 1 and not job.spacing:
            return counts[0] <= self.most(job)
        requests = tuple(role.request for role in job.roles)
        key = (requests, tuple(counts), job.together, job.together_required, job.spacing)
        verdict = self._verdicts.get(key)
        if verdict is None:
            if len(self._verdicts) >= MOST_VERDICTS:
                self._verdicts.clear()
            paired = zip(job.roles, counts, strict=True)
            roles = tuple(Role.rigid(role.request, count, role.name) for role, count in paired)
            verdict = self._verdicts[key] = self._place(replace(job, roles=roles))
        return verdict

    def most(self, job: Job) -> int:
        """How many tasks of a job of one role can be placed: equal tasks are placed wherever counting says they fit."""
        cluster = self._placer.cluster
        shape = cluster.words.shape_of(job.roles[0].request, job.pool)
        room = self._rooms.get(shape)
        if room is None:
            if len(self._rooms) >= MOST_VERDICTS:
                self._rooms.clear()
            everywhere = np.ones(cluster.arrays.node_count, dtype=np.uint8)
            room = self._rooms[shape] = self._placer.selector.member_room(shape, everywhere)
        if job.together_required and job.together <= Level.NODE:
            return int(room.max())
        if job.together_required:
            places = cluster.arrays.rack if job.together is Level.RACK else cluster.arrays.zone
            return int(by_place(places[: len(room)], room).max())
        return int(room.sum())

    def _place(self, job: Job) -> bool:
        indices = [index for index, role in enumerate(job.roles) for _ in range(role.desired)]
        tasks = [TaskRecord(number, job.roles[index].name, index) for number, index in enumerate(indices)]
        journal = self._placer.cluster.journal
        self._placer.selector.rounds = 0  # the answer must not depend on what was asked before
        mark = journal.begin()
        placed = self._placer.place_all(job, tasks)
        journal.rollback(mark)
        return placed is not None
