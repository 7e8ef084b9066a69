"""How the pods of tasks are named and marked, by which a restarted server, and whoever else looks, knows them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from millpond.engines.kubernetes.cluster.objects import PodObject, read_annotation
from millpond.node.task.records import TaskId

SCHEDULER = "millpond"
CONTAINER = "task"
SERVER_LABEL, JOB_LABEL, RUN_LABEL = "millpond.io/server", "millpond.io/job", "millpond.io/run"
TASK_ANNOTATION = "millpond.io/task"
UNMARKED = (
    f"the cluster takes the label {SERVER_LABEL} or the annotation {TASK_ANNOTATION} off pods that are made, by which "
    "Millpond knows them: have its admission webhooks and policies leave these alone"
)
INPUT_FOLDER = "/run/millpond-input"
"""Where a task that has standard input finds it, as a pipe that ``pod_input`` fills."""
CARDS_CLAIM = "cards"
"""What pods call the claim of their cards, and its only line."""
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class TaskMark:
    """What a pod carries about its task, to be found by after a restart.

    Attributes:
        decision: the one that started it.
        devices: UUIDs of what it was given.
        saves: its job saves its work on notice.
        port: where it serves; None: nowhere.
        reads_input: it has standard input.
        joins: it joined a run that went on, in which its task may have had a pod before.
        server: the identity of the one that made it, whatever becomes of the label; empty: that is not known.
    """

    job: str
    attempt: int
    task: int
    decision: int
    role: str
    devices: tuple[str, ...] = ()
    saves: bool = False
    port: int | None = None
    reads_input: bool = False
    joins: bool = False
    server: str = field(default="", compare=False)

    @property
    def id(self) -> TaskId:
        """Which run of which task."""
        return TaskId(self.job, self.attempt, self.task)

    @property
    def pod(self) -> str:
        """The name of its pod."""
        return started_name(self.id, self.decision, joins=self.joins)

    @property
    def text(self) -> str:
        """As the pod carries it."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of(annotations: Mapping[str, str]) -> TaskMark | None:
        """The mark of a pod; None of one that has none, or one that was tampered with."""
        return read_annotation(annotations, TASK_ANNOTATION, TaskMark)


def latest_pods(
    pods: Iterable[PodObject],
) -> tuple[dict[TaskId, tuple[PodObject, TaskMark]], list[tuple[PodObject, TaskMark]]]:
    """Of each task the pod of its latest start; and those of earlier ones, which stay on a node that is silent."""
    marked = ((pod, TaskMark.of(pod.metadata.annotations)) for pod in pods)
    found = sorted(((pod, mark) for pod, mark in marked if mark is not None), key=lambda each: each[1].decision)
    latest = {mark.id: (pod, mark) for pod, mark in found}
    return latest, [(pod, mark) for pod, mark in found if latest[mark.id][0] is not pod]


def devices_in(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """UUIDs of what the task of a pod with these was given; none of one that is no task."""
    mark = TaskMark.of(annotations)
    return () if mark is None else mark.devices


def unmarked_pods(tasks: Iterable[TaskId], pods: Iterable[PodObject]) -> dict[TaskId, PodObject]:
    """Of these tasks those that must have a pod of which others have taken the mark, by its name and container."""
    by_name = {pod_name(task): task for task in tasks}
    found = {}
    for pod in pods:
        name = pod.metadata.name
        task = by_name.get(name) or by_name.get(name.rpartition("-")[0])
        has_program = any(each.name == CONTAINER for each in pod.spec.containers)
        if task is not None and has_program and not pod.is_over and TaskMark.of(pod.metadata.annotations) is None:
            found[task] = pod
    return found


@lru_cache(maxsize=10_000)
def run_name(job: str, attempt: int) -> str:
    """The name of what belongs to all tasks of a run: the job's id where that can be a name."""
    name = f"{job}-{attempt}".lower()
    if name == f"{job}-{attempt}" and _NAME.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9-]+", "-", name).strip("-")[:30].strip("-")
    return f"j{readable}-{hashlib.sha256(f'{job}/{attempt}'.encode()).hexdigest()[:12]}"


def pod_name(task: TaskId) -> str:
    """The name of a task's pod, or the beginning of it; at most 63 characters, as it is its host name too."""
    return f"{run_name(task.job, task.attempt)}-{task.task}"


def started_name(task: TaskId, decision: int, *, joins: bool) -> str:
    """The name of the pod of one start of a task.

    One that joins a run which goes on does not wait for the name of the task's earlier pod: on a node that is silent,
    that one may stay for as long as the node does.
    """
    return f"{pod_name(task)}-{decision}" if joins else pod_name(task)


def claim_name(task: TaskId, decision: int) -> str:
    """The name of the claim of a task's cards: of one start, as the claim goes with its pod."""
    return f"{pod_name(task)}-{decision}"


def labels_of(job: str, attempt: int, server: str) -> dict[str, str]:
    """By which the objects of a run are found."""
    name = run_name(job, attempt)
    return {
        "app.kubernetes.io/managed-by": "millpond",
        SERVER_LABEL: server,
        JOB_LABEL: name.rpartition("-")[0],
        RUN_LABEL: name,
    }
