"""``pond what-if``: what a change would do to all who wait, tried on a copy of the server's state or on its past."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from millpond.client.cli.commands.cluster.queue_edits import value_in
from millpond.client.cli.connection import with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, show
from millpond.client.cli.time_options import parse_date, parse_future, parse_past
from millpond.client.sdk import Client
from millpond.model.amounts import count_text, milli_text
from millpond.model.errors import InvalidInputError
from millpond.specs.api.reports.what_if import WhatIfInfo, WhatIfJob, WhatIfShare, WhatIfSide
from millpond.specs.escaped_text import json_text


@click.command("what-if")
@click.option(
    "--set", "settings", multiple=True, metavar="QUEUE.FIELD=VALUE", help="As in the configuration; empty: its default."
)
@click.option("--add-nodes", multiple=True, metavar="NxG:MODEL", help="Machines more, such as 4x8:A100.")
@click.option("--remove-node", "remove_nodes", multiple=True, metavar="NODE", help="Drain a machine.")
@click.option("--ordering", metavar="NAME", help="Who is next, as for `pond up`.")
@click.option("--placement", metavar="NAME", help="Where it goes, as for `pond up`.")
@click.option("--preempt/--no-preempt", default=None, help="Whether work ends for work that goes before it.")
@click.option("--reserve/--no-reserve", default=None, help="Whether room is kept for the first job that has none.")
@click.option("--cancel", multiple=True, metavar="JOB", help="End a job.")
@click.option("--submit", multiple=True, metavar="FILE", help="Submit the jobs of a file.")
@click.option("--horizon", metavar="TIME", help="How far to play the present forward.  [default: 7d]")
@click.option("--past", metavar="TIME", help="Instead of the present, replay the jobs of the last TIME, such as 7d.")
@click.option("--since", metavar="DATE", help="The same, of the jobs submitted since then, such as 2026-11-01.")
@click.option("--until", metavar="DATE", help="With --past or --since: only of those submitted before.")
@click.option("--all", "everything", is_flag=True, help="List every job that starts earlier or later.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@with_client
def command(client: Client, everything: bool, as_json: bool, **options: Any) -> None:
    """Show who would wait less and who longer after a change. Nothing is changed.

    \b
    pond what-if --set vision.guarantee=16 --add-nodes 2x8:A100
    pond what-if --past 7d --ordering fifo

    The jobs are played twice, without the changes and with all of them together.
    """
    question = _question(options, time.time())
    for name in ("cancel", "submit"):
        question[name] = _jobs_of(name, options[name], client)
    answer = client.what_if({name: value for name, value in question.items() if value not in ((), [], None)})
    if as_json:
        click.echo(json_text(answer))
        return
    draw(answer, everything)


def _question(options: dict[str, Any], now: float) -> dict[str, Any]:
    """The changes as the API takes them, but for jobs.

    Raises:
        InvalidInputError: no change is named, or spans contradict each other.
    """
    kept = ("add_nodes", "remove_nodes", "ordering", "placement", "preempt", "reserve")
    question: dict[str, Any] = {name: options[name] for name in kept}
    question["set"] = [_setting(text) for text in options["settings"]]
    if not any(value not in ((), [], None) for value in (*question.values(), options["cancel"], options["submit"])):
        raise InvalidInputError("no change is named", "name one, such as --set QUEUE.guarantee=8; see --help")
    past = _past(options, now)
    if past is not None:
        question["past"] = past
    if options["horizon"] is not None:
        if past is not None:
            raise InvalidInputError("--horizon and the past", "the past is played to its end: leave --horizon out")
        question["horizon_s"] = parse_future(options["horizon"], "--horizon", now) - now
    return question


def _past(options: dict[str, Any], now: float) -> dict[str, float] | None:
    since, until = options["since"], options["until"]
    if options["past"] is not None:
        if since is not None:
            raise InvalidInputError("both --past and --since", "leave one of them out")
        since = options["past"]
    if since is None:
        if until is not None:
            raise InvalidInputError("--until without a beginning", "add --since DATE or --past TIME")
        return None
    option = "--past" if options["past"] is not None else "--since"
    span = {"since": parse_past(since, option, now)}
    return span if until is None else span | {"until": parse_date(until, "--until")}


def _setting(text: str) -> dict[str, Any]:
    """``QUEUE.FIELD=VALUE``, where the name of a queue may have points of its own."""
    from millpond.specs.config.queues import QueueFile

    place, equals, value = text.partition("=")
    parts = place.split(".")
    if not equals or len(parts) < 2:
        raise InvalidInputError(f"--set {text!r} is no change", "write QUEUE.FIELD=VALUE, as vision.guarantee=8")
    fields = [number for number, part in enumerate(parts) if number and part in QueueFile.model_fields]
    first = fields[-1] if fields else 1
    queue, field = ".".join(parts[:first]), ".".join(parts[first:])
    return {"queue": queue, "field": field, "value": value_in(field, value)}


def _jobs_of(option: str, texts: Sequence[str], client: Client) -> list[Any]:
    """What ``--cancel`` and ``--submit`` name: ids of jobs, and job files."""
    if option == "cancel":
        return [client.find(text).id for text in texts]
    from millpond.client.cli.commands.submission.submit import read

    documents = []
    for file in texts:
        for spec in read(file):
            for warning in spec.warnings:
                say(warning)
            documents.append(spec.document)
    return documents


JOBS_SHOWN: Final = 20
WIDTH: Final = 80


def draw(answer: WhatIfInfo, everything: bool) -> None:
    """Print an answer.

    Args:
        everything: all jobs, not the first few only.
    """
    for title, text in _facts(answer):
        click.echo(textwrap.fill(text, WIDTH, initial_indent=f"{title:<9}", subsequent_indent=" " * 9))
    click.echo()
    if not answer.compared and not answer.jobs:
        click.echo("No job waits or runs, so there is nothing to compare.")
        return
    _draw_sums(answer)
    draw_differences(answer, everything)


def draw_differences(answer: WhatIfInfo, everything: bool = False) -> None:
    """Print to which queues, users and jobs the change makes a difference; arguments as for ``draw``."""
    if not answer.jobs and not answer.hidden:
        click.echo("\nNo job starts earlier or later, or is ended more or less often.")
    _draw_shares("QUEUE", answer.queues)
    _draw_shares("USER", answer.users)
    _draw_jobs(answer, everything)
    click.echo()
    for caveat in answer.caveats:
        click.echo(textwrap.fill(caveat, WIDTH, initial_indent="note     ", subsequent_indent=" " * 9))


def _facts(answer: WhatIfInfo) -> Iterator[tuple[str, str]]:
    yield "change", "; ".join(answer.changes)
    span = f"{formats.instant_text(answer.begin_at)} to {formats.instant_text(answer.until)}"
    yield "played", f"{count_text(answer.compared, 'job')}, {span}, without and with the change"
    if answer.cut:
        yield "cut", "it was too much work to play it further: later starts are not known"
    if answer.left_out:
        yield "left out", "; ".join(f"{number} {reason}" for reason, number in answer.left_out.items())


def _draw_sums(answer: WhatIfInfo) -> None:
    until = f"cards in use until {formats.instant_text(answer.busy_until)}"
    if answer.past:  # played again it may last longer than it did: an instant could be later than the present
        until = f"cards in use, the first {formats.span(answer.busy_until - answer.begin_at)}"

    def row(title: str, text: object) -> list[str]:
        assert callable(text)
        return [title, text(answer.before), text(answer.after)]

    def gpus(side: WhatIfSide) -> str:
        return f"{side.gpus:g}"

    rows = [
        row("cards", gpus),
        row(until, lambda side: f"{side.utilisation_percent:.1f} %"),
        row("mean wait", lambda side: formats.span(side.mean_wait_s)),
        row("longest wait", lambda side: formats.span(side.longest_wait_s)),
        row("jobs that do not start", lambda side: str(side.not_started)),
        row("preemptions", lambda side: str(side.preemptions)),
    ]
    show([Column("", whole=True), Column("BEFORE", right=True), Column("AFTER", right=True)], rows)


def _draw_shares(title: str, shares: Sequence[WhatIfShare]) -> None:
    if not shares:
        return
    columns = [
        Column(title, gives_way=True),
        Column("JOBS", right=True),
        Column("EARLIER", right=True),
        Column("LATER", right=True),
        Column("MEAN WAIT", right=True),
        Column("AFTER", right=True),
        Column("PREEMPTED", right=True),
    ]
    rows = [
        [
            share.name or "-",
            str(share.jobs),
            str(share.earlier),
            str(share.later),
            formats.span(share.mean_wait_before_s),
            formats.span(share.mean_wait_after_s),
            f"{share.preemptions_before} -> {share.preemptions_after}",
        ]
        for share in shares
    ]
    click.echo()
    show(columns, rows)


def _draw_jobs(answer: WhatIfInfo, everything: bool) -> None:
    jobs = answer.jobs if everything else answer.jobs[:JOBS_SHOWN]
    if jobs:
        columns = [
            Column("JOB", whole=True),
            Column("USER"),
            Column("QUEUE", gives_way=True),
            Column("CARDS", right=True),
            Column("STARTS", right=True),
            Column("AFTER", right=True),
            Column("WAIT", right=True),
        ]
        click.echo()
        show(columns, [_job_row(job, answer) for job in jobs])
    more = len(answer.jobs) - len(jobs)
    if more:
        click.echo(f"and {more} more; --all lists them")
    if answer.hidden:
        click.echo(f"and {count_text(answer.hidden, 'job')} of other groups")


def _job_row(job: WhatIfJob, answer: WhatIfInfo) -> list[str]:
    return [
        job.job,
        job.user or "-",
        job.queue,
        milli_text(job.gpu_milli),
        "-" if job.effect == "new" else _start(job, job.start_before, job.preemptions_before, answer),
        _start(job, job.start_after, job.preemptions_after, answer),
        _difference(job),
    ]


def _start(job: WhatIfJob, at: float | None, preemptions: int, answer: WhatIfInfo) -> str:
    ended = f", ended {preemptions}x" if preemptions else ""
    if job.ran:
        return f"runs{ended}"
    if at is None:
        return "never"
    if answer.past:
        return f"{formats.instant_text(at)[5:]}{ended}"
    in_s = at - answer.begin_at
    return f"in {formats.span(in_s)}{ended}" if in_s >= 1 else f"now{ended}"


def _difference(job: WhatIfJob) -> str:
    longer_s = job.wait_after_s - job.wait_before_s
    if job.effect == "new":
        return formats.span(job.wait_after_s)
    if abs(longer_s) < 1:
        return "as long"
    return f"{'+' if longer_s > 0 else '-'}{formats.span(abs(longer_s))}"
