"""``pond submit``: job files, checked here with line and column, then submitted; ``pond clone``: a job once more."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import click

from millpond.client.cli.connection import connect, job_argument, state_dir_option
from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.sdk import Client
from millpond.model.errors import ConflictError, InvalidInputError, UnavailableError
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.arrays import MOST_MEMBERS
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.job_spec import JobSpec, document_again, read_jobs
from millpond.specs.job.members import only_members
from millpond.specs.source_positions import LARGEST_TEXT

_INTERPRETERS: Final = {".py": "python", ".sh": "bash"}
"""What runs a file by its name."""

_ENOUGH: Final = LARGEST_TEXT + 1
"""Of a text without end, as of a device, so much is read as is needed to refuse it."""


@click.command("submit")
@click.argument("file", metavar="FILE|-")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field, such as gpus=2, env.A=b.")
@click.option("--array", metavar="COUNT|INDICES", help="Many such jobs: 100, or 0-99:2 with %8 for at most 8 at once.")
@click.option("--idempotency-key", help="Submitted again with the same key, it is the same job.")
@state_dir_option
def command(
    file: str, changes: tuple[str, ...], array: str | None, idempotency_key: str | None, state_dir: Path | None
) -> None:
    """Submit the jobs of FILE (YAML or JSON; - is standard input) and print their ids.

    Several jobs (documents apart by ---) are taken together or not at all. One may wait for another:
    `after: NAME`.

    A relative path means relative to the file's folder.
    """
    specs = read(file, changes, {"idempotency_key": idempotency_key, "array": array})
    if idempotency_key is not None and len(specs) > 1:
        raise InvalidInputError(
            f"--idempotency-key for {len(specs)} jobs", "give each job of the file an idempotency_key of its own"
        )
    with connect(state_dir) as client:
        for warning in dict.fromkeys(warning for spec in specs for warning in spec.warnings):
            say(warning)
        submit_all(client, [spec.document for spec in specs])


def submit_all(client: Client, documents: Sequence[Mapping[str, Any]]) -> None:
    """Submit jobs, all of them or none, and print their ids."""
    for job in map(client.submit, documents) if len(documents) < 2 else client.submit_together(documents):
        click.echo(job.id)
        if job.deadline is not None:
            say(f"deadline {formats.deadline(job.deadline, time.time())}")


def read(
    file: str, changes: Sequence[str] = (), options: Mapping[str, str | None] = MappingProxyType({})
) -> list[JobSpec]:
    """The checked jobs of a file, each with the changes (``gpus=2``) made to it, and the fields that options gave."""
    text, source, base = _text(file)
    _refuse_program(text, file)
    parsed = [FieldEdit.parse(change) for change in changes]
    for field, value in options.items():
        if value is not None:
            parsed.append(FieldEdit.of(field, value, f"--{field.replace('_', '-')}"))
    specs = read_jobs(text, source, base, parsed)
    for spec in specs:
        spec.submitted_at(time.time())  # a deadline that is past is named with its line; the server's clock decides
    return specs


def _refuse_program(text: str, file: str) -> None:
    """Say how a program is run that was given in place of a job file, as other schedulers take one.

    Raises:
        InvalidInputError: it is a program.
    """
    first = text.partition("\n")[0]
    suffix = Path(file).suffix
    if not (first.startswith("#!") and "pond" not in first) and suffix not in _INTERPRETERS:
        return
    program = f"{_INTERPRETERS[suffix]} {file}" if suffix in _INTERPRETERS else "PROGRAM" if file == "-" else file
    ignored = " (its lines #SBATCH mean nothing here)" if "\n#SBATCH " in text else ""
    raise InvalidInputError(
        f"{'standard input' if file == '-' else file} is a program, not a job file{ignored}",
        f"`pond run -d --gpus 1 -- {program}` submits it; a job file names it as `command: {program}`",
    )


def _text(file: str) -> tuple[str, str, Path]:
    """Content, name for messages, and the folder that relative paths refer to."""
    if file == "-":
        return sys.stdin.read(_ENOUGH), "standard input", Path.cwd()
    if not file:  # which a path would take for the present directory
        raise InvalidInputError("'' names no job file", "name one; a variable of the shell may be empty")
    path = Path(file)
    try:
        with path.open(encoding="utf-8") as opened:
            return opened.read(_ENOUGH), file, path.parent
    except OSError as error:
        raise UnavailableError(f"{file} cannot be read ({error.strerror})", "check its name and rights") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not UTF-8 text (byte {error.start})", "save it as UTF-8") from error


@click.command("clone")
@job_argument("job")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field, such as gpus=2, env.A=b.")
@click.option("--failed", is_flag=True, help="Of an array, the members that failed alone.")
@state_dir_option
def clone(job: str, changes: tuple[str, ...], failed: bool, state_dir: Path | None) -> None:
    """Submit JOB again, as it was submitted first, and print the new id."""
    parsed = [FieldEdit.parse(change) for change in changes]
    with connect(state_dir) as client:
        found = client.find(job)
        stored = client.document(found.id)
        document = document_again(stored)
        if stored.get("stdin"):
            say(f"{found.id} read standard input, which is not repeated")
        if failed:
            document = only_members(document, _failed(client, found))
        for spec in read_jobs(json.dumps(document), found.id, changes=parsed):
            for warning in spec.warnings:
                say(warning)
            click.echo(client.submit(spec.document).id)


def _failed(client: Client, array: JobInfo) -> list[int]:
    """The indices of the members that failed.

    Raises:
        ConflictError: it is no array, or none of it failed.
    """
    if array.array is None:
        raise ConflictError(f"{array.id} is not an array", "leave --failed out")
    found = client.jobs(members_of=array.id, state="failed", limit=MOST_MEMBERS).jobs
    if not found:
        raise ConflictError(f"no member of {array.id} has failed", f"see how it stands: pond get {array.id}")
    return [member.index for member in found if member.index is not None]
