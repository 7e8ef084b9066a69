"""``pond submit``: job files, checked here with line and column, then handed in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from millpond.client.cli.complaints import say
from millpond.client.cli.connection import asks_server, connect
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.specs.errors import SpecError
from millpond.specs.job import JobSpec, check_job, read_jobs
from millpond.specs.locate import read_documents


@click.command("submit")
@click.argument("file", metavar="FILE|-")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field, such as gpus=2, env.A=b.")
@click.option("--idempotency-key", help="Submitted again with the same key, it is the same job.")
@asks_server
def command(file: str, changes: tuple[str, ...], idempotency_key: str | None, state_dir: Path | None) -> None:
    """Hand in the jobs of FILE (YAML or JSON; - is standard input); prints their ids.

    A relative path means relative to the file's folder.
    """
    parsed = [_parse_change(change) for change in changes]
    if idempotency_key is not None:
        parsed.append((["idempotency_key"], idempotency_key))
    specs = _read(file, parsed)
    if idempotency_key is not None and len(specs) > 1:
        raise InvalidInputError(
            f"--idempotency-key for {len(specs)} jobs", "give each job of the file an idempotency_key of its own"
        )
    with connect(state_dir) as client:
        for spec in specs:
            for warning in spec.warnings:
                say(warning)
            click.echo(client.submit(spec.document).id)


def _read(file: str, changes: list[tuple[list[str], Any]]) -> list[JobSpec]:
    """The checked jobs of a file."""
    text, source, base = _text(file)
    if not changes:
        return read_jobs(text, source, base)
    specs = []
    for document in read_documents(text, source):
        for path, value in changes:
            _change(document.value, path, value)
        specs.append(check_job(document.value, base))
    return specs


def _text(file: str) -> tuple[str, str, Path]:
    """Content, name for messages, and the folder that relative paths refer to."""
    if file == "-":
        return sys.stdin.read(), "standard input", Path.cwd()
    path = Path(file)
    try:
        return path.read_text(encoding="utf-8"), file, path.parent
    except OSError as error:
        raise UnavailableError(f"{file} cannot be read ({error.strerror})", "check its name and rights") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not UTF-8 text (byte {error.start})", "save it as UTF-8") from error


def _parse_change(text: str) -> tuple[list[str], Any]:
    """``env.A=b`` as a path and a value; the value is read as YAML would read it."""
    field, given, value = text.partition("=")
    path = field.split(".")
    if not given or not all(path):
        raise InvalidInputError(f"--set {text!r} is not FIELD=VALUE", "write for example --set gpus=2 or --set env.A=b")
    return path, _value(value)


def _value(text: str) -> Any:
    """The value that YAML would read behind a colon; what is no value there, such as ``echo a: b``, is text."""
    if not text.strip():
        return text
    try:
        return read_documents(f"value: {text}")[0].value["value"]
    except SpecError:
        return text


def _change(document: Any, path: list[str], value: Any) -> None:
    """Set the value at ``path``; what is on the way there is made."""
    *way, last = path
    place = document
    for index, step in enumerate(way):
        place = _entry(place, step, path[:index])
    if isinstance(place, list):
        place[_index(place, last, path)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise _no_fields(path[:-1])


def _entry(place: Any, step: str, path: list[str]) -> Any:
    if isinstance(place, list):
        return place[_index(place, step, [*path, step])]
    if isinstance(place, dict):
        return place.setdefault(step, {})
    raise _no_fields(path)


def _index(items: list[Any], step: str, path: list[str]) -> int:
    if step.isdecimal() and int(step) < len(items):
        return int(step)
    raise InvalidInputError(
        f"--set {'.'.join(path)}: there is no entry {step!r}", f"the list has {len(items)} entries, counted from 0"
    )


def _no_fields(path: list[str]) -> InvalidInputError:
    return InvalidInputError(f"--set: {'.'.join(path)} has no fields of its own", "set the field itself")
