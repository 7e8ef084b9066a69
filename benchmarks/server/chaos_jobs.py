"""The jobs of ``chaos.py``: each proves by itself that it ran once, and says so line by line.

A task takes a lock that dies with its process; whoever finds it taken writes a violation down. It notes its start and
its end in a journal, and prints numbered lines, so that one that is lost or doubled shows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUEUE = "all"
SLOTS = 16

LOCKS, JOURNAL, VIOLATIONS = "locks", "journal", "violations"

_SCRIPT = """
KEY="$KEY${MILLPOND_ARRAY_INDEX:+.$MILLPOND_ARRAY_INDEX}"
me="$KEY $MILLPOND_ATTEMPT $MILLPOND_TASK"
exec 9>>"$BOOK/locks/$KEY.$MILLPOND_TASK"
flock -n 9 || { echo "$me" >>"$BOOK/violations"; exit 99; }
echo "start $me" >>"$BOOK/journal"
i=0
while [ $i -lt $LINES ]; do
  i=$((i+1))
  echo "$me line $i"
  sleep $PAUSE 9>&-
done
echo "end $me" >>"$BOOK/journal"
[ "$MILLPOND_ATTEMPT" -gt "$FAILING" ] || exit 3
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job.

    Attributes:
        lines: how many lines each task prints.
        pause_s: between two of them.
        failing: how many attempts end with exit code 3.
        retries: as in the job file.
        tasks: of the gang.
        stopped: somebody will ask for its end.
        members: of an array; 0: it is one job.
    """

    name: str
    lines: int
    pause_s: float
    failing: int = 0
    retries: int = 0
    tasks: int = 1
    stopped: bool = False
    members: int = 0

    @property
    def attempts(self) -> int:
        """How many runs it needs, whatever happens to servers."""
        return min(self.failing, self.retries) + 1

    @property
    def end(self) -> str:
        """The state in which it ends when nobody stops it."""
        return "failed" if self.failing > self.retries else "succeeded"


KINDS = (
    Kind("brief", 2, 0.01),
    Kind("short", 10, 0.05),
    Kind("slow", 30, 0.1),
    Kind("gang", 8, 0.05, tasks=3),
    Kind("fails", 3, 0.05, failing=1),
    Kind("retried", 3, 0.05, failing=1, retries=1),
    Kind("stopped", 10_000, 0.2, stopped=True),
    Kind("array", 3, 0.05, failing=1, retries=1, members=5),
)
_WEIGHTS = (4, 4, 2, 2, 1, 2, 2, 1)


def draw(lots: random.Random) -> Kind:
    """One kind by lot."""
    return lots.choices(KINDS, _WEIGHTS)[0]


def document(kind: Kind, key: str, book: Path) -> dict[str, Any]:
    """The job file."""
    return {
        "name": kind.name,
        "idempotency_key": key,
        "queue": QUEUE,
        "gpus": 1,
        "cpus": "10m",
        "memory": "1MiB",
        "tasks": kind.tasks,
        "retries": kind.retries,
        "checkpoint": {"grace": "2s"},
        **({"array": {"count": kind.members, "parallel": 3}} if kind.members else {}),
        "command": ["sh", "-c", _SCRIPT],
        "workdir": str(book),
        "env": {
            "KEY": key,
            "BOOK": str(book),
            "LINES": str(kind.lines),
            "PAUSE": str(kind.pause_s),
            "FAILING": str(kind.failing),
        },
    }


def configuration() -> str:
    """A cluster of ``SLOTS`` cards in one queue whose limit is all of them: what leaks shows when all are asked for."""
    nodes = "".join(f"- {{name: n{number}, devices: 4, device_memory: 16GiB}}\n" for number in range(SLOTS // 4))
    return f"queues:\n- name: {QUEUE}\n  guarantee: {{gpus: {SLOTS}}}\n  limit: {{gpus: {SLOTS}}}\nnodes:\n{nodes}"
