"""Names of jobs for the shell to complete, asked of the server; whatever goes wrong, there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from millpond.model.errors import MillpondError

if TYPE_CHECKING:
    from millpond.client.sdk import Client

VARIABLE: Final = "_POND_COMPLETE"
"""Set by the shell's script when it asks ``pond`` what could be meant."""
WITHIN_S: Final = 2.0
_MOST: Final = 500
_OF_LIVING: Final = frozenset(
    {
        "stop",
        "suspend",
        "resume",
        "priority",
        "migrate",
        "resize",
        "exec",
        "attach",
        "forward",
        "wait",
        "open",
        "extend",
    }
) | {"ssh"}
"""Commands that can do nothing for a job that has ended."""


def job_argument(name: str, **attributes: Any) -> Callable[[Any], Any]:
    """An argument of a command that names a job, or several."""
    return click.argument(name, shell_complete=complete_job, **attributes)


def complete_job(context: click.Context, _argument: click.Parameter, begun: str) -> list[CompletionItem]:
    """The newest jobs whose ids, or else whose names, begin so."""
    try:
        with _connect(context.params.get("state_dir")) as client:
            jobs = client.jobs(ended=context.info_name not in _OF_LIVING, limit=_MOST).jobs
    except (MillpondError, OSError):
        return []
    found = {job.id if job.id.startswith(begun) else job.name: job.state for job in reversed(jobs)}
    return [CompletionItem(name, help=state) for name, state in found.items() if name and name.startswith(begun)]


def _connect(state_dir: Path | None) -> Client:
    from millpond.client.sdk import Client

    return Client(state_dir=state_dir, timeout_s=WITHIN_S)
