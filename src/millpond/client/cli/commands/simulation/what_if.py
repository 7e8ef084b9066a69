"""``pond what-if``: what a change would do to all who wait, tried on a copy of the server's state or on its past."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from millpond.client.cli.commands.cluster.queue_edits import value_in
from millpond.client.cli.connection import with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.printing.differences import draw
from millpond.client.cli.time_options import parse_date, parse_future, parse_past
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError
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
