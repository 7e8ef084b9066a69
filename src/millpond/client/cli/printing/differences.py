"""What a change would make of the jobs of all, on the screen: before it and after."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import click

from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, show
from millpond.model.amounts import count_text, milli_text
from millpond.specs.api.reports.what_if import WhatIfInfo, WhatIfJob, WhatIfShare, WhatIfSide

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
    sums: dict[str, Callable[[WhatIfSide], str]] = {
        "cards": lambda side: f"{side.gpus:g}",
        until: lambda side: f"{side.utilisation_percent:.1f} %",
        "mean wait": lambda side: formats.span(side.mean_wait_s),
        "longest wait": lambda side: formats.span(side.longest_wait_s),
        "jobs that do not start": lambda side: str(side.not_started),
        "preemptions": lambda side: str(side.preemptions),
    }
    rows = [[title, text(answer.before), text(answer.after)] for title, text in sums.items()]
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
