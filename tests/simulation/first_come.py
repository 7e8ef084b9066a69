"""A first-come scheduler of whole cards, simple enough to check by hand: the kernel's tests need no more."""

from __future__ import annotations

from millpond.model.decisions import Decision, Grant, Placement, Start, Stop
from millpond.model.events import Ended, Event, JobSubmitted, NodeJoined
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.model.workloads import Job


class FirstCome:
    """Starts jobs in order of submission while their cards are free; counts cards over the whole cluster.

    With ``smallest_first`` smaller jobs end larger ones that run, which is enough to see preemption.
    """

    def __init__(self, *, smallest_first: bool = False, places_per_card: int = 1) -> None:
        self.smallest_first = smallest_first
        self.places_per_card = places_per_card
        self.users: dict[tuple[str, str], int] = {}
        self.queue: list[Job] = []
        self.running: dict[str, tuple[Job, int, tuple[Placement, ...]]] = {}
        self.attempts: dict[str, int] = {}
        self.last_id = 0
        self.ended: list[Ended] = []
        self.seen: list[Event] = []

    def handle(self, event: Event) -> None:
        self.seen.append(event)
        match event:
            case NodeJoined(node=node):
                self.users.update({(node.name, device.uuid): 0 for device in node.devices})
            case JobSubmitted(job=job):
                self.queue.append(job)
            case Ended(job=job_id, outcome=outcome):
                self.ended.append(event)
                job, _, placements = self.running.pop(job_id)
                for placement in placements:
                    for grant in placement.grants:
                        self.users[placement.node, grant.device] -= 1
                if outcome is not Outcome.SUCCESS:
                    self.queue.append(job)

    def decide(self, now: float) -> list[Decision]:
        if self.smallest_first:
            self.queue.sort(key=lambda job: job.gpu_milli)
        decisions: list[Decision] = []
        while self.queue and (placements := self._placements(self.queue[0])) is not None:
            job = self.queue.pop(0)
            attempt = self.attempts[job.id] = self.attempts.get(job.id, 0) + 1
            self.running[job.id] = (job, attempt, placements)
            decisions.append(Start(self._next_id(), job.id, attempt, Cause.FITS, placements))
        if self.smallest_first and self.queue:
            larger = [run for run in self.running.values() if run[0].gpu_milli > self.queue[0].gpu_milli]
            if larger:
                job, attempt, _ = max(larger, key=lambda run: run[0].gpu_milli)
                decisions.append(Stop(self._next_id(), job.id, attempt, Cause.PREEMPTED))
        return decisions

    def next_wakeup(self, now: float) -> float | None:
        return None

    def forget(self, job_id: str) -> None:
        assert job_id not in self.running

    def _next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def _placements(self, job: Job) -> tuple[Placement, ...] | None:
        free = [card for card, count in self.users.items() if count < self.places_per_card]
        needed = job.gpu_milli // 1000
        if len(free) < needed:
            return None
        chosen = free[:needed]
        for card in chosen:
            self.users[card] += 1
        by_node: dict[str, list[Grant]] = {}
        for node, uuid in chosen:
            by_node.setdefault(node, []).append(Grant(uuid, 1000, 1000, 0))
        return tuple(
            Placement(task, "worker", node, tuple(grants)) for task, (node, grants) in enumerate(by_node.items())
        )
