"""``pond why``: the scheduler's own reason, with the numbers behind it and what would help."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator

import click

from millpond.client.cli.connection import job_argument, with_client
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.last_lines import drawn, failed_member, last_lines
from millpond.client.sdk import Client
from millpond.model.errors import NotAllowedError, NotFoundError
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import ReasonInfo, StartInfo
from millpond.specs.escaped_text import json_text

_FILTERS = {
    "unschedulable": "closed for new work by their engine",
    "closed": "closed",
    "closes-too-soon": "that close before it would end",
    "other-pool": "in another pool",
    "not-selected": "without the labels that it asks for",
    "model-limit": "with cards of which its queue may not have so many",
    "kept-for-others": "kept for others",
    "cpu": "without enough free CPU cores",
    "memory": "without enough free memory",
    "extra-resource": "without an extra resource that it asks for",
    "device-model": "without a card of that model",
    "device-count": "with too few cards",
    "device-unusable": "with unusable cards",
    "device-compute": "without enough free on a card",
    "device-memory": "without enough free memory on a card",
    "fragmented": "with enough free, but in pieces",
    "fits": "with room",
}

_LEAVING = ("no-room", "room-being-made", "victims-protected")
"""Causes of which the job in the way holds cards; for all others, it is ahead in line."""


@click.command("why")
@job_argument("job")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@with_client
def command(client: Client, job: str, output: str) -> None:
    """Show why JOB waits, runs or failed, and what would help."""
    info = client.find(job)
    reason = client.why(info.id)
    if output == "json":
        click.echo(json_text(reason))
        return
    place = f", number {reason.position} in line" if reason.position is not None else ""
    state = info.state_text if info.stopped_early else reason.state
    click.echo(f"{reason.job}: {state}{place}")
    facts = [*facts_of(reason, time.time()), *_quota_of(client, info), *waits_of(reason)]
    member = failed_member(client, info)
    if member is not None:
        facts.append(("member", f"{member.id}: {client.why(member.id).summary}"))
    for title, text in facts:
        click.echo(textwrap.fill(text, 80, initial_indent=f"  {title:<8}", subsequent_indent=" " * 10))
    for line in last_lines(client, member or info):
        click.echo(drawn(line))


def facts_of(reason: ReasonInfo, now: float) -> list[tuple[str, str]]:
    """What there is to say, each with its title."""
    facts = [("why", reason.summary)]
    if reason.nodes:
        nodes = (f"{number} {_FILTERS.get(name, name)}" for name, number in reason.nodes.items())
        facts.append(("nodes", "; ".join(nodes)))
    if reason.blocked_by:
        is_ahead = reason.in_the_way == "job" and reason.cause not in _LEAVING
        facts.append(("behind" if is_ahead else reason.in_the_way, reason.blocked_by))
    if reason.remedy is not None:
        field = f" ({reason.remedy.field}: {reason.remedy.value})" if reason.remedy.field else ""
        facts.append(("remedy", reason.remedy.change + field))
    if reason.start is not None:
        facts.append(("start", start_text(reason.start, now)))
    return facts


def _quota_of(client: Client, info: JobInfo) -> Iterator[tuple[str, str]]:
    """What the queue of a job that waits for cards has of what it may have, as ``pond queue show`` says."""
    if info.state != "queued" or not info.gpu_milli:
        return
    from millpond.client.cli.commands.cluster.queue import cards_of

    try:
        queue = client.queue(info.queue).queue
    except (NotAllowedError, NotFoundError):
        return
    if queue.within_gpu_milli is not None or queue.limit_gpu_milli is not None:
        yield "quota", f"queue {queue.name}: {cards_of(queue)}"


def waits_of(reason: ReasonInfo) -> Iterator[tuple[str, str]]:
    """Why a job waited once, and what came of the estimates, each with its title."""
    at = formats.instant_text
    for wait in reason.waits:
        yield "waited", f"{at(wait.since)} to {at(wait.until)}: {wait.summary}"
        start = wait.start
        if start is not None and wait.started:
            latest = "or later" if start.latest_at is None else f"to {at(start.latest_at)}"
            likely = "" if start.likely_at is None else f", most likely {at(start.likely_at)}"
            yield "start", f"foreseen {at(start.earliest_at)} {latest}{likely}; it came {at(wait.until)}"


def start_text(start: StartInfo, now: float) -> str:
    """When a job should start, as seen from ``now``."""
    if start.unknown:
        return f"not known: {start.unknown}"
    if start.latest_at is not None and start.latest_at <= now:
        return f"not known: what it waits for was expected to have ended by now ({start.basis})"
    soonest = formats.span(start.earliest_at - now)
    text = f"in {soonest}" if start.earliest_at > now else "now"
    if start.latest_at is None:
        text += " at the earliest"
    elif (latest := formats.span(start.latest_at - now)) != soonest:
        text += f" to {latest}"
        if start.likely_at is not None and start.likely_at > now:
            text += f", most likely about {formats.span(start.likely_at - now)}"
    return text + (f" ({start.basis})" if start.basis else "")
