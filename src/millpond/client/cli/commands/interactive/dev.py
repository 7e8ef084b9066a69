"""``pond dev``: a dev job: a notebook, an editor or a shell, on a card or a part of one."""

from __future__ import annotations

import time
from difflib import get_close_matches
from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.commands.interactive.dev_ssh import command as ssh_config
from millpond.client.cli.commands.interactive.dev_ssh import say_how_editors_open
from millpond.client.cli.commands.interactive.exec import SHELL, run_beside
from millpond.client.cli.commands.submission import template_needs
from millpond.client.cli.connection import connect, job_argument, state_dir_option, with_client
from millpond.client.cli.error_output import INTERRUPTED, say
from millpond.client.cli.follow import NOT_STARTED, exit_code_of
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.waiting_line import await_job
from millpond.client.cli.template_completion import complete_template
from millpond.client.cli.terminal import streams
from millpond.client.sdk import Client
from millpond.client.sdk.resources.jobs import ENDED
from millpond.model.errors import ConflictError, InvalidInputError
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.errors import BadValueError
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.templates import all_templates, find_template
from millpond.specs.quantities import seconds

SERVES_WITHIN_S = 120.0
_LOOK_EVERY_S = 0.3
_SHELL_TEMPLATE = "shell"
_TEMPLATE_LIKENESS = 0.8


class _DevGroup(SuggestingGroup):
    """A group that also knows what it can start: ``pond dev jupyterlab`` lacks a ``-t``."""

    def meant(self, name: str, known: list[str], likeness: float = 0.5) -> list[str]:
        templates = get_close_matches(name, [each.name for each in all_templates()], n=1, cutoff=_TEMPLATE_LIKENESS)
        return [f"-t {each}" for each in templates] or super().meant(name, known, likeness)


@click.group("dev", cls=_DevGroup, invoke_without_command=True)
@click.option(
    "-t",
    "--template",
    default=_SHELL_TEMPLATE,
    shell_complete=complete_template,
    show_default=True,
    help="What to work with.",
)
@click.option("-g", "--gpus", help="Cards; 0.25 is a quarter card.")
@click.option("--time-limit", help="End it after this long, such as 8h.")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field of the job: cpus=4.")
@click.option("-d", "--detach", is_flag=True, help="Print the job's id and leave it to itself.")
@state_dir_option
@click.pass_context
def command(
    context: click.Context,
    template: str,
    gpus: str | None,
    time_limit: str | None,
    changes: tuple[str, ...],
    detach: bool,
    state_dir: Path | None,
) -> int | None:
    """Start a dev job in this directory and open it; `pond template ls` lists what it can be.

    It goes on when you leave it; `pond stop` ends it.
    """
    if context.invoked_subcommand is not None:
        return None
    named = {"gpus": gpus, "time_limit": time_limit}
    wanted = [f"{name}={value}" for name, value in named.items() if value is not None] + list(changes)
    chosen = find_template(template, say)
    with connect(state_dir) as client:
        spec, waits = template_needs.job_of(chosen, client, tuple(wanted))
        environment, document = (
            template_needs.make_environment(chosen, client, spec.document) if waits else ("", spec.document)
        )
        job = client.submit(document)
        if detach:
            click.echo(job.id)
            return 0
        say(f"job {job.id}")
        try:
            started = await_job(client.watch(job.id), lambda seen: seen.state == "running")
        except KeyboardInterrupt:
            say(f"left {job.id} to itself; end it with `pond stop {job.id}`")
            return INTERRUPTED
        if started.state in ENDED:
            failed = environment and client.job(environment).state == "failed"
            say(f"{job.id} has ended; see `pond logs {environment if failed else job.id}`")
            return exit_code_of(started)
        if spec.file.serve is not None:
            return _show_link(client, started)
    if not streams.is_terminal():
        click.echo(job.id)
        return 0
    code = run_beside(state_dir, job.id, 0, SHELL, tty=True, reads_input=True)
    say(f"{job.id} goes on; return with `pond attach {job.id}`, end it with `pond stop {job.id}`")
    return code


@command.command("open")
@job_argument("job", metavar="JOB")
@with_client
def open_job(client: Client, job: str) -> int:
    """Print a link to what JOB serves. It works in one browser, once, for a minute.

    The whole id of a revision of a service, such as web-abcde.r2, opens that revision alone.
    """
    return _show_link(client, client.find(job), alone=service_of(job) != job)


@command.command("extend")
@job_argument("job", metavar="JOB")
@click.argument("duration", metavar="DURATION")
@state_dir_option
def extend_job(job: str, duration: str, state_dir: Path | None) -> None:
    """Give JOB, which has a time limit, more time: 2h, 90m."""
    try:
        by_s = seconds(duration)
    except BadValueError as error:
        raise InvalidInputError(error.cause, error.hint) from error
    with connect(state_dir) as client:
        extended = client.extend(client.find(job).id, by_s)
    click.echo(f"{extended.id}: {formats.span(by_s)} more{formats.limit_end(extended)}")


command.add_command(ssh_config)


def _require_serve(client: Client, job: JobInfo) -> None:
    """Check that a dev job that does not answer serves anything.

    Raises:
        ConflictError: its job file says nothing of that.
    """
    if job.kind == "dev" and client.document(job.id).get("serve") is None:
        raise ConflictError(
            f"{job.id} serves nothing: its job file has no `serve`, and nothing listens at its port",
            f"go there with `pond attach {job.id}`; what listens at $MILLPOND_PORT there can be opened, "
            "or use a template that serves (`pond template ls`)",
        )


def _show_link(client: Client, job: JobInfo, alone: bool = False) -> int:
    """Print the link as soon as there is something to see behind it, and how editors open it.

    While a dev job waits, why is said; a service that waits may be one that its first request wakes.
    """
    if job.kind == "dev" and job.state in NOT_STARTED:
        job = await_job(client.watch(job.id), lambda seen: seen.state not in NOT_STARTED)
    give_up_at, announced = time.monotonic() + SERVES_WITHIN_S, False
    while not client.serves(job.id):
        job = client.job(job.id)
        if job.state in ENDED:
            say(f"{job.id} has ended; see `pond logs {job.id}`")
            return exit_code_of(job)
        if job.state == "suspended":
            say(f"{job.id} is suspended; `pond resume {job.id}` has it go on")
            return 1
        if not announced:
            _require_serve(client, job)
            say(f"waiting until {job.id} answers")
            announced = True
        if time.monotonic() > give_up_at:
            say(f"{job.id} does not answer yet; see `pond logs {job.id}`, then `pond dev open {job.id}`")
            return 1
        time.sleep(_LOOK_EVERY_S)
    link = client.link(job.id, alone=alone)
    say("open this in a browser; it works once, for a minute:")
    click.echo(link.open_url or client.address.url + link.open_path)
    say_how_editors_open(client, job)
    return 0
