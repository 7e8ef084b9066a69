"""How one revision of a service replaces another: what is stored of it, and the next step as a pure function.

The present revision and the one that comes are jobs of their own. Replicas of the coming one are added and those of the
present one taken away, so that there are never too many or too few; a replica counts once it is ready. Source of the
bounds: rolling updates of Deployments in Kubernetes (``maxSurge``, ``maxUnavailable``, ``progressDeadlineSeconds``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from millpond.model.amounts import seconds_text
from millpond.specs.job.serving import Rollout


class Phase(StrEnum):
    """Where a revision is in its life."""

    ROLLING = "rolling"
    """It takes the place of the present one."""
    CANARY = "canary"
    """It gets a part of the requests until it is promoted or withdrawn."""
    UNDOING = "undoing"
    """It is withdrawn, and the present one gets its replicas back."""
    CURRENT = "current"
    """It is the present one."""
    RETIRED = "retired"
    """Another one has taken its place."""
    UNDONE = "undone"
    """It was withdrawn."""

    @property
    def coming(self) -> bool:
        """Whether it has still to become the present one, or to go."""
        return self in (Phase.ROLLING, Phase.CANARY, Phase.UNDOING)


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision of a service.

    Attributes:
        service: id of the service's first job, by which it is reached.
        number: from 1.
        job: the job that runs it.
        document: its job file.
        paused: nothing is to change for now.
        percent: of the requests, while it is a canary; 0 where it never was to be one.
        target: replicas that it is to have when it takes over.
        before: replicas that the present one had when this one came.
        told: why it is where it is.
    """

    service: str
    number: int
    job: str
    document: dict[str, Any]
    user: str
    group: str
    created_at: float
    phase: Phase
    paused: bool = False
    percent: float = 0.0
    target: int = 1
    before: int = 1
    told: str = ""

    @property
    def canary_size(self) -> int:
        """Replicas that it begins with as a canary: as many as its part of the requests asks for."""
        return max(1, math.ceil(self.target * self.percent / 100))


@dataclass(frozen=True, slots=True)
class Side:
    """How the job of a revision stands.

    Attributes:
        desired: replicas that it should have by now; 0 at rest, when it has ended, was not submitted yet, or waits
            for an image or for data.
        ready: replicas that take requests.
        alive: it has not ended.
        submitted: there is such a job, or was.
        waiting: replicas that have no place yet; they are the first to be given up.
    """

    desired: int
    ready: int
    alive: bool = True
    submitted: bool = True
    waiting: int = 0


TO_BE_SUBMITTED = Side(0, 0, submitted=False)
HELD = Side(0, 0)
GONE = Side(0, 0, alive=False)


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """What is to be done next.

    Attributes:
        phase: that the coming revision enters; None: it stays where it is.
        told: why, in a clause.
        coming, present: replicas that the two should have; None: as they have.
    """

    phase: Phase | None = None
    told: str = ""
    coming: int | None = None
    present: int | None = None


def next_step(revision: Revision, rule: Rollout, coming: Side, present: Side, overdue: bool) -> RolloutStep:
    """What is to be done next about a revision that comes.

    Args:
        overdue: none of its replicas has become ready for longer than the rule allows.
    """
    if revision.phase is Phase.UNDOING:
        return _undoing(revision, rule, coming, present)
    if not coming.alive:
        return RolloutStep(Phase.UNDOING if present.alive else Phase.UNDONE, "its job has ended")
    if not present.alive:
        return RolloutStep(Phase.CURRENT, "the revision before it has ended")
    if revision.paused:
        return RolloutStep()
    if overdue:
        return RolloutStep(Phase.UNDOING, f"no further replica was ready within {seconds_text(rule.deadline)}")
    if revision.phase is Phase.CANARY:
        return RolloutStep() if coming.submitted else RolloutStep(coming=revision.canary_size)
    if coming.ready >= revision.target and present.desired == 0:
        return RolloutStep(Phase.CURRENT, f"it took over with {coming.ready} ready")
    more, fewer = sizes(coming, present, revision.target, rule)
    return RolloutStep(coming=more, present=fewer)


def _undoing(revision: Revision, rule: Rollout, coming: Side, present: Side) -> RolloutStep:
    """The same backwards: the present revision is the one that comes, and gets back what it had."""
    if not present.alive:
        return RolloutStep(Phase.CURRENT if coming.alive else Phase.UNDONE, "the revision before it has ended")
    if coming.desired == 0 and present.desired >= revision.before:
        return RolloutStep(Phase.UNDONE)
    more, fewer = sizes(present, coming, revision.before, rule)
    return RolloutStep(coming=fewer, present=more)


def sizes(coming: Side, leaving: Side, target: int, rule: Rollout) -> tuple[int, int]:
    """Replicas that two revisions should have now: one that is to have ``target``, and one that is to have none."""
    more = max(coming.desired, min(target, target + rule.max_surge - leaving.desired))
    needed = max(0, target - rule.max_unavailable - coming.ready)
    return more, min(leaving.desired - leaving.waiting, needed)
