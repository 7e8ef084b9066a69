"""``pond apply``: first the plan (where, when, at whose cost), then the question, then the submission.

Of a service that runs already, it says what would change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from millpond.client.cli.commands.inspection.why import start_text
from millpond.client.cli.commands.submission import template_needs
from millpond.client.cli.commands.submission.submit import read, submit_all
from millpond.client.cli.connection import connect, require_attended, state_dir_option
from millpond.client.cli.error_output import echo_wrapped, say
from millpond.client.cli.printing import formats
from millpond.client.cli.template_completion import complete_template
from millpond.client.sdk import Client
from millpond.client.sdk.resources.services import named
from millpond.model.amounts import cards_text, count_text, milli_text
from millpond.model.errors import InvalidInputError
from millpond.specs.api.jobs.reasons import PlanInfo, PlannedTask
from millpond.specs.api.services import FieldChange
from millpond.specs.job.job_spec import JobSpec
from millpond.specs.job.templates import find_template
from millpond.specs.option_types import FiniteNumber

_LONGEST = 60


def service_to_update(client: Client, spec: JobSpec, chosen: str | None) -> str | None:
    """A job of the service that a job file is an update of; None when it is a job of its own.

    Args:
        chosen: the service that the user named.

    Raises:
        InvalidInputError: one was named, and the file is none of a service.
        ConflictError: several services have the file's name.
    """
    if spec.file.kind != "service":
        if chosen is not None:
            raise InvalidInputError(f"--update with a job of kind {spec.file.kind}", "only services are updated")
        return None
    if chosen is not None:
        return client.find(chosen).id
    if spec.file.name is None:
        return None
    return named(client.jobs().jobs, spec.file.name, client.accounts.whoami().user)


def show_changes(client: Client, job: str, document: Mapping[str, Any], *, err: bool) -> dict[str, Any] | None:
    """Print what an update would change; None if nothing would.

    Returns:
        The document with as many replicas as the update would have, for its plan.
    """
    plan = client.services.plan(job, document)
    if not plan.changes:
        click.echo(f"{job}: nothing changes", err=True)
        return None
    click.echo(f"updates {job}:", err=err)
    for change in plan.changes:
        click.echo(f"  {_line(change)}", err=err)
    tasks = document.get("tasks")
    return {**document, "tasks": {**tasks, "desired": plan.replicas} if isinstance(tasks, dict) else tasks or 1}


def _line(change: FieldChange) -> str:
    before, after = _text(change.before), _text(change.after)
    pairs = zip(before, after, strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after)))
    return f"{change.field}: {_shortened(before, same)} -> {_shortened(after, same)}"


def _text(value: Any) -> str:
    return "(left out)" if value is None else value if isinstance(value, str) else json.dumps(value)


def _shortened(text: str, difference: int) -> str:
    """The part of a text around the place where it begins to differ."""
    if len(text) <= _LONGEST:
        return text
    begin = max(0, min(difference - _LONGEST // 4, len(text) - _LONGEST))
    end = begin + _LONGEST
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"


@click.command("apply")
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option(
    "-t",
    "--template",
    shell_complete=complete_template,
    help="A ready job file instead of FILE; `pond template ls` lists them.",
)
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field, such as gpus=2, env.A=b.")
@click.option("--update", metavar="JOB", help="The service to update [default: one's own of the same name].")
@click.option("--new", is_flag=True, help="Submit one more service, even where one of that name runs.")
@click.option(
    "--canary",
    type=FiniteNumber(0, 100, min_open=True, max_open=True),
    metavar="PERCENT",
    help="Requests that an update gets until it is promoted.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and leave it at that.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@state_dir_option
def command(
    file: str | None,
    template: str | None,
    changes: tuple[str, ...],
    update: str | None,
    new: bool,
    canary: float | None,
    dry_run: bool,
    yes: bool,
    state_dir: Path | None,
) -> int:
    """Show where and when the jobs of FILE would run and at whose cost, ask, submit them and print their ids.

    The new jobs of a file are taken together or not at all.
    A service of the same name that runs already is updated: its changed fields are shown, and its replicas replaced.
    """
    _require_one(file, template)
    specs = [] if file is None else read(file, changes)
    chosen, waits = None if template is None else find_template(template, say), False
    if new and update:
        raise InvalidInputError("both --new and --update", "leave one of them out")
    asks = not (dry_run or yes)
    require_attended("add -y to submit it, or --dry-run to see the plan", not asks)
    with connect(state_dir) as client:
        if chosen is not None:
            spec, waits = template_needs.job_of(chosen, client, changes)
            specs = [spec]
        targets = [None if new else service_to_update(client, spec, update) for spec in specs]
        if canary is not None and None in targets:
            raise InvalidInputError("--canary without a service to update", "submit the service first, without it")
        agreed: list[tuple[str | None, dict[str, Any]]] = []
        for spec, target in zip(specs, targets, strict=True):
            for warning in spec.warnings:
                say(warning)
            document = client.shipped(spec.document) if target is not None else spec.document
            if not _show(client, spec, document, target, err=not dry_run) or dry_run:
                continue
            if asks and not click.confirm("Submit it?", default=True, err=True):
                return 1
            if chosen is not None and waits:
                _, document = template_needs.make_environment(chosen, client, document)
            agreed.append((target, document))
        _submit(client, agreed, canary)
    return 0


def _submit(client: Client, agreed: Sequence[tuple[str | None, dict[str, Any]]], canary: float | None) -> None:
    """Submit documents, those without a service as new jobs, and print the ids."""
    submit_all(client, [document for service, document in agreed if service is None])
    for service, document in agreed:
        if service is not None:
            click.echo(client.services.begin(service, document, canary).revisions[-1].job)


def _show(client: Client, spec: JobSpec, document: dict[str, Any], target: str | None, *, err: bool) -> bool:
    """Print what would become of a job, and what would change of the service ``target``; False if nothing would."""
    if target is not None:
        updated = show_changes(client, target, document, err=err)
        if updated is None:
            return False
        document = updated
    if (members := spec.members) is not None:
        click.echo(f"{count_text(len(members), 'job')} like this one:", err=err)
    echo_wrapped("\n".join(plan_lines(client.plan(document), time.time())), err=err)
    return True


def plan_lines(plan: PlanInfo, now: float) -> Iterator[str]:
    """A plan in lines for people."""
    if plan.starts_now:
        places = [f"task {task.task} on {task.node}{_cards(task)}" for task in plan.tasks]
        yield f"starts now: {', '.join(places)}"
    elif plan.victims:
        yield "starts when those have left who make room for it:"
    else:
        assert plan.reason is not None, "a job that does not start has a reason"
        yield f"waits: {plan.reason.summary}"
        if plan.reason.start is not None:
            yield f"start: {start_text(plan.reason.start, now)}"
        if plan.reason.remedy is not None:
            yield f"would start now: {plan.reason.remedy.change}"
    if plan.deadline is not None:
        yield f"deadline: {formats.deadline(plan.deadline, now)}"
    if plan.unenforced:
        yield f"nothing keeps it to its part of the card: {plan.unenforced}"
    if plan.unlimited:
        yield f"nothing keeps all its processes together to its memory: {plan.unlimited}"
    for victim in plan.victims:
        what = "suspends" if victim.how == "suspend" else "preempts"
        yield f"  {what} {victim.job} of {victim.user or 'somebody'}"
    if plan.borrowed_gpu_milli:
        yield f"borrows {cards_text(plan.borrowed_gpu_milli)}: beyond the guarantee, and the first to leave"
    quota = plan.quota
    limit = "" if quota.limit_gpu_milli is None else f" of at most {milli_text(quota.limit_gpu_milli)}"
    change = f"{milli_text(quota.gpu_milli_now)} -> {milli_text(quota.gpu_milli_after)}"
    yield f"queue {quota.queue}: {change}{limit} cards in use"


def _require_one(file: str | None, template: str | None) -> None:
    if file is None and template is None:
        raise InvalidInputError("no job file and no template", "name one: FILE, or --template NAME")
    if file is not None and template is not None:
        raise InvalidInputError("both FILE and --template", "leave one of them out")


def _cards(task: PlannedTask) -> str:
    return f" ({cards_text(task.gpu_milli)})" if task.devices else ""
