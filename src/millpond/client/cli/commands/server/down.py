"""``pond down``: stop the server of a state directory, and its jobs with it; nothing else.

Waiting jobs are withdrawn before running ones are stopped, so that none of them starts in the room that becomes free;
those that others submit meanwhile are stopped, too.
A server that does not answer, such as one whose database hangs, is ended too: its lock shows which process it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click

from millpond.client.cli.commands.server import background
from millpond.client.cli.connection import state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.sdk import Client, default_state_dir
from millpond.client.sdk.resources.jobs import MOST_JOBS
from millpond.client.sdk.transport.discovery import read_server_file
from millpond.model.amounts import count_text
from millpond.model.errors import ConflictError, MillpondError, NotAllowedError, NotFoundError, UnavailableError
from millpond.node.host.file_locks import is_held_by
from millpond.node.host.procfs import start_ticks
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.server import LOCK_FILE, STANDBY_FILE, HealthInfo, ServerFile, ServerInfo
from millpond.specs.option_types import FiniteNumber

_LOOK_EVERY_S = 0.1
_STOPS_AT_ONCE = 16
"""The server stores in one go what it is asked together; each by itself takes it three commits."""
_SILENT_S = 2.0
"""Most jobs end within so long; of others it is said which they are."""
_MOST_NAMED = 5
_GO_ON = "`pond down` waits for them again, `pond down --keep-jobs` leaves them running"
_ALONE = "`pond down --keep-jobs` stops the server alone"
_SERVER_ENDS_WITHIN_S = 30.0
_ENDS_BY_ITSELF_WITHIN_S = 10.0
"""One that does not answer is killed afterwards, which is safe at any moment (``server.state_dir``)."""
_STANDBY_ANSWERS_WITHIN_S = 10.0


@click.command("down")
@state_dir_option
@click.option("--keep-jobs", is_flag=True, help="Let jobs run on and wait on; `pond up` takes them over again.")
@click.option(
    "--jobs-end-within",
    type=FiniteNumber(min=0),
    default=90.0,
    show_default=True,
    metavar="SECONDS",
    help="How long stopped jobs may take to end.",
)
def command(state_dir: Path | None, keep_jobs: bool, jobs_end_within: float) -> None:
    """Stop the server of this state directory and its jobs."""
    directory = state_dir or default_state_dir()
    _end_standby(directory)
    left = read_server_file(directory)
    if left is None or not _exists(left.pid):
        click.echo(f"no server is running on {directory}")
        return
    info = _info(directory)
    if info is None:
        _end_unanswering(directory, left, keep_jobs)
        return
    if not keep_jobs:
        with Client(state_dir=directory) as client:
            if info.apart:
                click.echo("the jobs of the original are left alone")
            else:
                _stop_jobs_or_say(client, jobs_end_within)
    os.kill(info.pid, signal.SIGTERM)
    _await_end(info.pid)
    click.echo(f"stopped the server at {left.url}")


def _info(directory: Path) -> ServerInfo | None:
    """What the server says of itself; None when it does not answer."""
    try:
        with Client(state_dir=directory) as client:
            return client.server()
    except (UnavailableError, NotAllowedError):
        return None


def _end_unanswering(directory: Path, left: ServerFile, keep_jobs: bool) -> None:
    """End a server that cannot be asked to stop its jobs.

    Raises:
        UnavailableError: the process is another one, whose number the file that was left behind has by now.
        MillpondError: jobs should have been stopped, and run on.
    """
    if not is_held_by(left.pid, directory / LOCK_FILE):
        raise UnavailableError(
            f"process {left.pid} does not answer as the server of {directory}, and does not use that directory",
            "it is another program, and the server has ended",
        )
    os.kill(left.pid, signal.SIGTERM)
    if not _within(_ENDS_BY_ITSELF_WITHIN_S, lambda: not _exists(left.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(left.pid, signal.SIGKILL)
    _await_end(left.pid)
    click.echo(f"stopped the server at {left.url}, which did not answer")
    if not keep_jobs:
        raise MillpondError(
            "its jobs could not be stopped: those that run go on",
            "`pond up` takes them over again once its database answers, then `pond down` stops them",
        )


def _await_end(pid: int) -> None:
    if not _within(_SERVER_ENDS_WITHIN_S, lambda: not _exists(pid)):
        raise MillpondError(f"the server (process {pid}) has not ended", "its log says what it waits for")


def _end_standby(directory: Path) -> None:
    """The one that would take over goes first."""
    left = read_server_file(directory, STANDBY_FILE)
    health = None if left is None else _health_of(left)
    if left is None or health is None or not health.standby:
        return
    os.kill(left.pid, signal.SIGTERM)
    if not _within(_SERVER_ENDS_WITHIN_S, lambda: not _exists(left.pid)):
        raise MillpondError(f"the standby (process {left.pid}) has not ended", "its log says what it waits for")
    click.echo(f"stopped the standby at {left.url}")


def _health_of(left: ServerFile) -> HealthInfo | None:
    """How a standby is; one that is slow to say so is waited for, as it would take over."""
    give_up_at = time.monotonic() + _STANDBY_ANSWERS_WITHIN_S
    while (health := background.health_of(left)) is None and _exists(left.pid) and time.monotonic() < give_up_at:
        time.sleep(_LOOK_EVERY_S)
    return health


def _stop_jobs_or_say(client: Client, within_s: float) -> None:
    """Stop them; a server that cannot do that, as its database is damaged, can be stopped without them."""
    try:
        _stop_jobs(client, within_s)
    except UnavailableError as error:
        raise UnavailableError(f"its jobs cannot be stopped ({error.cause})", f"{error.remedy}; {_ALONE}") from error


def _stop_jobs(client: Client, within_s: float) -> None:
    asked = set[str]()
    all_ended = partial(_all_ended, client, asked)
    if all_ended():
        return
    try:
        if _within(min(_SILENT_S, within_s), all_ended):
            return
        if within_s > _SILENT_S:
            click.echo(f"waiting for {_those_left(client)}, up to {within_s:g} s; Ctrl-C stops waiting")
            if _within(within_s - _SILENT_S, all_ended):
                return
    except KeyboardInterrupt:
        say(f"not ended yet: {_those_left(client)}; the server goes on\n{_GO_ON}")
        raise
    raise MillpondError(f"{_those_left(client)} did not end within {within_s:g} s; the server goes on", _GO_ON)


def _all_ended(client: Client, asked: set[str]) -> bool:
    """Whether no job is left. Those that were not asked to end yet are, as others may submit meanwhile.

    Args:
        asked: ids of those that were.
    """
    newest = client.jobs(limit=1).jobs
    if newest and newest[0].id not in asked:
        jobs = [job for job in client.jobs(limit=MOST_JOBS).jobs if job.id not in asked]
        if not asked:
            click.echo(f"stopping {count_text(len(jobs), 'job')}")
        asked.update(job.id for job in jobs)
        with ThreadPoolExecutor(_STOPS_AT_ONCE) as threads:
            for these in (_waits, _runs):
                list(threads.map(partial(_stop, client), filter(these, jobs)))
    return not newest


def _those_left(client: Client) -> str:
    """The jobs that have not ended, and on which nodes the first of them still run."""
    left = client.jobs(limit=MOST_JOBS).jobs
    named = [f"{job.id}{_place_of(job)}" for job in left[:_MOST_NAMED]]
    further = [f"{len(left) - len(named)} more"] if len(left) > len(named) else []
    return f"{count_text(len(left), 'job')} ({', '.join([*named, *further])})"


def _place_of(job: JobInfo) -> str:
    nodes = list(dict.fromkeys(task.node for task in job.tasks if task.node))
    others = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return f" on {nodes[0]}{others}" if nodes else ""


def _stop(client: Client, job: JobInfo) -> None:
    # It may have ended by itself in the meantime, which is what was wanted.
    with contextlib.suppress(ConflictError, NotFoundError):
        client.stop(job.id)


def _waits(job: JobInfo) -> bool:
    return job.state == "queued"


def _runs(job: JobInfo) -> bool:
    return not _waits(job)


def _within(seconds: float, done: Callable[[], bool]) -> bool:
    """Whether ``done`` became true in time."""
    give_up_at = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True


def _exists(pid: int) -> bool:
    """Whether a process of this number lives (one that has ended and was not yet collected does not)."""
    return start_ticks(pid) is not None
