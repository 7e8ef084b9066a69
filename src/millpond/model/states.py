"""Where tasks and jobs are in their lives, and how tasks end: words alone, for those who need no more of a job."""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """Where one task is in its life; ``scheduling.lifecycle`` holds the allowed transitions."""

    QUEUED = "queued"
    """Waits for a place; holds nothing."""
    STARTING = "starting"
    """A start was decided and not confirmed; holds its whole slice."""
    RUNNING = "running"
    """Its processes run; holds its whole slice."""
    FROZEN = "frozen"
    """Suspended; holds device memory and host memory, no compute."""
    SWAPPED = "swapped"
    """Suspended; its device memory lies in host memory; holds no device."""
    STOPPING = "stopping"
    """An end was decided; holds everything until the engine says that it ended."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether this is a final state."""
        return self in _ENDED


_ENDED = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})


class JobState(StrEnum):
    """A job's state, derived from its tasks."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """Shown by a copy of a server for what the original may still run; never a state in the scheduler."""

    @property
    def ended(self) -> bool:
        """Whether this is a final state."""
        return self in ENDED_JOBS


ENDED_JOBS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class Outcome(StrEnum):
    """How a task ended, as the engine saw it. The class of a failure decides about a retry."""

    SUCCESS = "success"
    USER_ERROR = "user-error"
    """The program returned a non-zero code or died by its own signal."""
    OUT_OF_MEMORY = "out-of-memory"
    NODE_LOST = "node-lost"
    DEVICE_LOST = "device-lost"
    START_FAILED = "start-failed"
    """The engine could not start it (no such directory, no such image)."""
    TIME_LIMIT = "time-limit"
    STOPPED = "stopped"
    """It ended by a decision (preempted, stopped, its gang ended)."""
