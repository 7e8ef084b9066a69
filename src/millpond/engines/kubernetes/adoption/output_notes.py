"""Where the output of pods of others is: it stays with Kubernetes, and those who ask Millpond for it are told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from millpond.engines.kubernetes.pods.copied_logs import LogFile
from millpond.node.task.records import TaskFiles, TaskId


def note_outputs(state_dir: Path, pods: Sequence[tuple[TaskId, str]]) -> None:
    """Say so in the logs of tasks, once.

    Args:
        pods: by task, the namespace and the name of its pod.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000000Z")
    for task, key in pods:
        files = TaskFiles.of(state_dir, task)
        if files.log.exists():
            continue
        namespace, _, pod = key.partition("/")
        file = LogFile(files)
        file.take([f"{now} its output is with its pod: kubectl logs -n {namespace} {pod} --all-containers\n".encode()])
        file.close()
