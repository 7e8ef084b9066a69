"""``pond rollout``: revisions of a service, and what becomes of the one that is on its way."""

from __future__ import annotations

from collections.abc import Iterator

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import job_argument, with_client
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.client.sdk.resources.services import Act
from millpond.model.amounts import count_text
from millpond.specs.api.services import RevisionInfo, ScalingInfo, ServiceInfo


def _state(revision: RevisionInfo) -> str:
    part = f" ({revision.percent:g} %)" if revision.percent else ""
    return f"{revision.phase}{part}{', paused' if revision.paused else ''}"


_TABLE: ListTable[RevisionInfo] = ListTable(
    (
        Column("REVISION", lambda revision: str(revision.number), right=True),
        Column("STATE", _state),
        Column("REPLICAS", lambda revision: f"{revision.running}/{revision.target}", right=True),
        Column("AGE", lambda revision: formats.age(revision.created_at), right=True),
        Column("JOB", lambda revision: revision.job),
        Column("ABOUT", lambda revision: revision.told, wraps=True),
    )
)


@click.group("rollout", cls=SuggestingGroup)
def group() -> None:
    """Revisions of a service: `pond apply` brings one on its way."""


@group.command("status")
@job_argument("job")
@lists(job="job")
def status(client: Client, job: str) -> Listing:
    """List the revisions of the service that JOB belongs to."""
    found = client.services.info(job)
    jobs = [revision.job for revision in found.revisions]
    return Listing(found, jobs, lambda _: _TABLE.show(found.revisions, wide=False))


def lines_of(found: ServiceInfo, server_url: str) -> Iterator[tuple[str, str]]:
    """What is known of a service, each with a title."""
    yield "address", f"{found.url}/" if found.url else server_url + found.path
    if found.requests or found.open_requests:
        yield "requests", f"{found.requests} since the server began, {found.open_requests} open"
    if found.cold_starts:
        starts = count_text(found.cold_starts, "time")
        spans = f"{found.mean_cold_start_s:.1f} s on average, {found.longest_cold_start_s:.1f} s at most"
        yield "woken", f"{starts} by a request, ready after {spans}"
    if found.scaling is not None:
        yield from _scaling_lines(found, found.scaling)
    for revision in found.revisions:
        yield (
            f"rev. {revision.number}",
            f"{_state(revision)}, {revision.job}" + (f": {revision.told}" if revision.told else ""),
        )


def _scaling_lines(found: ServiceInfo, scaling: ScalingInfo) -> Iterator[tuple[str, str]]:
    """How many replicas its rule asks for, and what the forecast behind that is worth."""
    there = f"{found.ready} of {count_text(found.replicas, 'replica')} ready"
    yield "replicas", f"{there}, {scaling.wanted} wanted of {scaling.fewest} to {scaling.most}: {scaling.why}"
    if scaling.ahead_s is None:
        return
    if scaling.forecast is None or scaling.coverage is None or scaling.skill is None:
        yield "forecast", f"none: {scaling.no_forecast}"
        return
    worth = f"met {scaling.coverage:.0%} in {scaling.tested_days} days, skill {scaling.skill:.2f}"
    yield "forecast", f"{scaling.forecast} needed in {formats.span(scaling.ahead_s)} ({scaling.by}; {worth})"


def _act_command(act: Act, line: str) -> None:
    """Add the command that does this to the revision on its way."""

    @group.command(act, help=line)
    @job_argument("job")
    @with_client
    def command(client: Client, job: str) -> None:
        found = client.services.act(client.find(job).id, act)
        last = found.revisions[-1]
        click.echo(f"{found.service}: revision {last.number} is {_state(last)}")


_act_command("undo", "Withdraw the revision on its way; without one, go back to the revision before the present one.")
_act_command("pause", "Pause a rollout.")
_act_command("resume", "Resume a paused rollout.")
_act_command("promote", "Promote a canary to the current revision.")
