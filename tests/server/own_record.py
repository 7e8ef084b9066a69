"""The record of a task whose supervisor is the test itself."""

from __future__ import annotations

import os
from typing import Any

from millpond.node.host import procfs
from millpond.node.task.records import TaskId


def own_record(task: TaskId, **fields: object) -> dict[str, Any]:
    """Such a record as its file has it; the task counts as alive.

    Args:
        fields: stand instead of its own.
    """
    own = os.getpid()
    return {
        "job": task.job,
        "attempt": task.attempt,
        "task": task.task,
        "role": "worker",
        "node": "n1",
        "decision": 1,
        "devices": [],
        "notice_signal": "SIGTERM",
        "saves": False,
        "boot_id": procfs.boot_id(),
        "supervisor_pid": own,
        "supervisor_start": procfs.start_ticks(own),
        "groups": [],
        "cpus": [],
        "grants": [],
        "share_class": "normal",
        "held_by": "",
        "escapes": "report",
        **fields,
    }
