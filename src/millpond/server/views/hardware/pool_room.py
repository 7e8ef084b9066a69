"""Free cards of the pool by model, and the jobs that hold cards which do not compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from millpond.model.hardware.devices import DeviceHealth
from millpond.model.resources import CARD_MILLI
from millpond.model.states import JobState
from millpond.server.monitoring.idle_cards import IDLE_AFTER_S
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.pool.nodes import NodeInfo
from millpond.specs.api.pool.overview import IdleHolder, ModelRoom

MOST_IDLE: Final = 20


_Sums = dict[str, int]
"""Of the cards of one model on one machine, by the attribute of ``ModelRoom``."""
_SUMMED: Final = ("cards", "held_milli", "usable_milli", "frozen_milli", "whole", "broken", "elsewhere", "closed")


class PoolRooms:
    """The cards of machines by model; what was counted of a machine is kept until there is another look at it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodeInfo, dict[str, _Sums]]] = {}

    def of(self, nodes: Iterable[NodeInfo]) -> list[ModelRoom]:
        """The cards of these machines by model, the most common first."""
        before, known = self._known, dict[str, tuple[NodeInfo, dict[str, _Sums]]]()
        found: dict[str, dict[str, _Sums]] = {}
        for node in nodes:
            counted = before.get(node.name)
            if counted is None or counted[0] is not node:
                counted = node, _sums_on(node)
            known[node.name] = counted
            for model, here in counted[1].items():
                found.setdefault(model, {})[node.name] = here
        self._known = known
        rooms = [_room(model, by_node) for model, by_node in found.items()]
        return sorted(rooms, key=lambda room: (-room.cards, room.model))


def _room(model: str, by_node: Mapping[str, _Sums]) -> ModelRoom:
    """The cards of one model on all machines that have some."""

    def together(name: str) -> int:
        return sum([sums[name] for sums in by_node.values()])

    block_node = max(by_node, key=lambda node: by_node[node]["whole"])  # the first of several
    largest = by_node[block_node]["whole"]
    return ModelRoom(
        model=model,
        cards=together("cards"),
        held_milli=together("held_milli"),
        usable_milli=together("usable_milli"),
        frozen_milli=together("frozen_milli"),
        whole=together("whole"),
        largest_block=largest,
        block_node=block_node if largest else "",
        broken=together("broken"),
        elsewhere=together("elsewhere"),
        closed=together("closed"),
    )


def _sums_on(node: NodeInfo) -> dict[str, _Sums]:
    found: dict[str, _Sums] = {}
    for device in node.devices:
        sums = found.setdefault(device.model, dict.fromkeys(_SUMMED, 0))
        is_healthy = device.health == DeviceHealth.OK
        can_take = is_healthy and node.schedulable and device.closure is None
        sums["cards"] += 1
        sums["held_milli"] += CARD_MILLI - device.free_compute_milli
        if can_take:
            sums["usable_milli"] += device.free_compute_milli
            sums["frozen_milli"] += device.kept_milli
            sums["whole"] += not device.holders
        sums["broken"] += device.health == DeviceHealth.FAULTY
        sums["elsewhere"] += device.health == DeviceHealth.BUSY_ELSEWHERE
        sums["closed"] += is_healthy and not can_take
    return found


def idle_since(job: JobInfo, cards: Mapping[str, float], now: float) -> float:
    """Since when none of a job's cards has computed; now, where one does, or does not say whether it does.

    Args:
        cards: since when cards have not computed, by UUID.
    """
    since = max((cards.get(grant.uuid, now) for task in job.tasks for grant in task.devices), default=now)
    return max(since, job.started_at or now)  # what a card did before was not the job's


def idle_holders(jobs: Iterable[JobInfo], cards: Mapping[str, float], now: float) -> list[IdleHolder]:
    """Running jobs of which no card has computed for ``IDLE_AFTER_S``, those of most cards first.

    Args:
        cards: since when cards have not computed, by UUID; of those that do, and of those that do not say whether they
            do, nothing.
    """
    found = []
    for job in jobs:
        if job.state != JobState.RUNNING or job.started_at is None:
            continue
        since = idle_since(job, cards, now)
        held_milli = sum(grant.compute_milli for task in job.tasks for grant in task.devices)
        if held_milli and now - since >= IDLE_AFTER_S:
            found.append(
                IdleHolder(
                    job=job.id,
                    name=job.name,
                    user=job.user,
                    queue=job.queue,
                    gpus=job.gpus,
                    gpu_milli=held_milli,
                    since=since,
                )
            )
    return sorted(found, key=lambda idle: (-idle.gpu_milli, idle.since, idle.job))[:MOST_IDLE]
