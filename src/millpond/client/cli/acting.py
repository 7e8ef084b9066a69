"""Commands that do one thing to each of several jobs: what fails for one is said, and the others get their turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from millpond.client.cli.complaints import complain
from millpond.client.cli.connection import connect
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError, NotFoundError
from millpond.specs.job_bodies import JobInfo


def _state(job: JobInfo) -> str:
    return job.state


def act_on(
    jobs: Sequence[str],
    state_dir: Path | None,
    act: Callable[[Client, str], JobInfo],
    tell: Callable[[JobInfo], str] = _state,
) -> int:
    """Do something to each job and print how it is then; returns the exit code of the last failure, or 0.

    Args:
        jobs: ids, or beginnings of ids.
        act: given the connection and a whole id; returns the job as it is afterwards.
        tell: how it is, in words.
    """
    code = 0
    with connect(state_dir) as client:
        for name in jobs:
            try:
                job = act(client, client.find(name).id)
            except (NotFoundError, ConflictError) as error:
                complain(error)
                code = error.exit_code
                continue
            click.echo(f"{job.id}: {tell(job)}")
    return code
