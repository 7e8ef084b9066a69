"""What more cards are worth to a gang, by the speeds that were measured at the sizes which it has had.

Between and beyond these sizes the speed follows Amdahl's law, fitted to them: the time of a step is a part that stays
and a part that shrinks with the cards. A gang that was measured at one size counts as one that gets faster with each
card; the next size tells. How large the next job of the same user and name starts, the last run of them says.

Source: Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", 1967.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

from millpond.model.events import ProgressMeasured
from millpond.model.resources import CARD_MILLI
from millpond.model.states import TaskState
from millpond.scheduling.elastic.gang_sizes import spare_tasks
from millpond.scheduling.records import JobRecord, TaskRecord

WORTH: Final = 0.5
"""A card is worth having that adds so much of the speed which each has at the smallest size that was measured."""
LEAST_PER_S: Final = 1e-9
"""A run that makes fewer steps makes none."""
MOST_NAMES: Final = 1_000
"""Of so many names the speeds are kept: those that were measured last."""

Speeds = tuple[tuple[int, float], ...]
"""Steps a second by the compute of the cards in milli, ascending."""


class KnownSpeeds:
    """What the runs of each user's jobs of each name have shown."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Speeds] = {}

    def of(self, record: JobRecord) -> Speeds:
        """That of the jobs of a job's name; nothing where it has none."""
        return self._by_name.get((record.job.user, record.job.name), ()) if record.job.name else ()

    def note(self, record: JobRecord, event: ProgressMeasured) -> None:
        """A run was measured."""
        if record.progress is None or record.progress.attempt != event.attempt:
            record.speeds = ()
        record.progress = event
        milli, per_s = event.gpu_milli, event.steps_per_s
        if per_s is None or per_s < LEAST_PER_S or not milli or not record.elastic:
            return
        record.speeds = tuple(sorted({**dict(record.speeds), milli: per_s}.items()))
        if record.job.name and (len(record.speeds) > 1 or not self.of(record)):
            key = record.job.user, record.job.name
            self._by_name.pop(key, None)
            self._by_name[key] = record.speeds
            if len(self._by_name) > MOST_NAMES:
                del self._by_name[next(iter(self._by_name))]

    def copy_from(self, other: KnownSpeeds) -> None:
        """Know the same."""
        self._by_name = dict(other._by_name)

    def snapshot(self) -> list[Any]:
        """As plain data, those measured longest ago first."""
        return [[user, name, [list(each) for each in speeds]] for (user, name), speeds in self._by_name.items()]

    def restore(self, plain: Iterable[Any]) -> None:
        """What ``snapshot`` wrote."""
        self._by_name = {(user, name): speeds_of(speeds) for user, name, speeds in plain}


def speeds_of(plain: Iterable[Sequence[float]]) -> Speeds:
    """Speeds from plain data."""
    return tuple((int(milli), float(per_s)) for milli, per_s in plain)


def held_milli(record: JobRecord) -> int:
    """Compute of the cards that a run has."""
    return sum(_milli_of(record, task) for task in record.tasks if task.holding is not None)


def is_measured(record: JobRecord) -> bool:
    """Whether the speed of a running gang was measured last at the size that it has now."""
    last = record.progress
    if last is None or last.attempt != record.attempt or not record.speeds:
        return False
    is_whole = all(task.state is TaskState.RUNNING for task in record.tasks if task.holding is not None)
    return is_whole and held_milli(record) == last.gpu_milli


def worth_at_start(record: JobRecord, tasks: Sequence[TaskRecord], known: Speeds) -> list[TaskRecord]:
    """Those of the tasks with which a gang may start that are worth it by its like; at least what it needs."""
    if not known:
        return list(tasks)
    spare = {task.number for task in spare_tasks(record.job, tasks)}
    chosen = [task for task in tasks if task.number not in spare]
    size = sum(_milli_of(record, task) for task in chosen)
    for task in (task for task in tasks if task.number in spare):
        more = _milli_of(record, task)
        if more and size and worth(known, size, more) < WORTH:
            break
        chosen.append(task)
        size += more
    return chosen


def worth(speeds: Speeds, gpu_milli: int, more_milli: int) -> float:
    """What so much more compute adds to a size, for each card, as a part of the speed per card at the smallest size."""
    milli, per_s = speeds[0]
    gain = _speed_at(speeds, gpu_milli + more_milli) - _speed_at(speeds, gpu_milli)
    return gain / more_milli / (per_s / milli)


def worth_having(record: JobRecord, tasks: Sequence[TaskRecord]) -> list[TaskRecord]:
    """The first of the tasks that miss in a gang whose cards are worth having; none before its size was measured.

    At most as many cards as it has: then it is measured again.
    """
    if not is_measured(record):
        return []
    held, chosen = held_milli(record), list[TaskRecord]()
    sizes = accumulate((_milli_of(record, task) for task in tasks), initial=held)
    for task, size in zip(tasks, sizes, strict=False):
        more = _milli_of(record, task)
        if size + more > 2 * held or (more and worth(record.speeds, size, more) < WORTH):
            break
        chosen.append(task)
    return chosen


def worth_of_each(record: JobRecord, spare: Sequence[TaskRecord]) -> list[float]:
    """What each of these tasks adds to a gang that has lost those behind it already."""
    sizes = list(accumulate((_milli_of(record, task) for task in reversed(spare)), initial=0))
    held = held_milli(record)
    found = []
    for task, lost in zip(reversed(spare), sizes, strict=False):
        more = _milli_of(record, task)
        found.append(worth(record.speeds, held - lost - more, more) if more else 0.0)
    return found[::-1]


def _milli_of(record: JobRecord, task: TaskRecord) -> int:
    return record.job.roles[task.role_index].request.gpu_milli


def _speed_at(speeds: Speeds, gpu_milli: int) -> float:
    """By the law: a single measurement may be off, such as where tasks lie far from each other."""
    if gpu_milli <= 0:
        return 0.0
    stays, shrinks = _law(speeds)
    return 1.0 / (stays + shrinks * CARD_MILLI / gpu_milli)


def _law(speeds: Speeds) -> tuple[float, float]:
    """Seconds of a step that stay, and that one card takes beyond: least squares over the sizes, none below 0."""
    points = [(CARD_MILLI / milli, 1.0 / per_s) for milli, per_s in speeds]
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    stays = mean_y - slope * mean_x
    if not spread or stays < 0.0:
        return 0.0, mean_y / mean_x
    return (stays, slope) if slope > 0.0 else (mean_y, 0.0)
