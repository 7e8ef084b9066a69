"""``pond run``: a command in the pool as if it ran here: its output, its exit code.

Ctrl-C leaves the job running and says how to return to it; ``--stop-on-interrupt`` ends it instead. A job whose
standard input comes from here, and is not all there, is ended too: the rest of it would never come.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import click

from millpond.client.cli.connection import complete_job, connect, state_dir_option
from millpond.client.cli.error_output import INTERRUPTED, say
from millpond.client.cli.follow import Follower, leave
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.printing import formats
from millpond.client.cli.terminal.input_feeder import InputFeeder, is_redirected
from millpond.client.cli.terminal.interrupts import held_back, silence
from millpond.client.sdk import Client
from millpond.client.sdk.environment import environment_for
from millpond.model.errors import ConflictError, InvalidInputError
from millpond.model.workloads import Priority
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.dataset_refs import DATASET_PREFIX
from millpond.specs.job.job_ids import name_of_program
from millpond.specs.paths import followed
from millpond.specs.source_positions import Located

_ONE_TASK = {"tasks": 1, "kind": "train", "roles": None, "array": None, "sweep": None}
"""Fields and what they say of the only job that can read standard input."""


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "-g",
    "--gpus",
    default="0",
    show_default=True,
    help="Cards for each task; 0.25 is a quarter card; '{memory: 4GiB, compute: 25%}'.",
)
@click.option(
    "-n", "--tasks", type=click.IntRange(min=1), default=1, show_default=True, help="Tasks, started together."
)
@click.option("--cpus", help="CPU cores for each task.")
@click.option("--memory", help="Memory for each task, such as 8GiB.")
@click.option("--gpu-model", "gpu_models", multiple=True, help="Allowed card model; may be repeated.")
@click.option("--name", help="Name of the job [default: the program's].")
@click.option("--queue", help="Queue to join.")
@click.option("--priority", type=click.Choice([each.name.lower() for each in Priority]), help="Class of urgency.")
@click.option("--retries", type=click.IntRange(min=0), help="How often a failed run is tried again.")
@click.option("--time-limit", help="End it after this long, such as 2h.")
@click.option("--keep", help="If it fails, keep its place this long for a look inside, such as 30m.")
@click.option("-e", "--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="Set or pass on a variable.")
@click.option("-w", "--workdir", type=PathParameter(), help="Directory to run in [default: this one].")
@click.option("--ship", is_flag=True, default=None, help="Send the directory and run in a copy of it.")
@click.option("--data", "sources", multiple=True, metavar="NAME=SOURCE", help="Read a path or dataset/NAME[@VERSION].")
@click.option("--output", type=PathParameter(), help="Folder of the machine to write to.")
@click.option("--array", metavar="COUNT|INDICES", help="Many such jobs: 100, or 0-99:2 with %8 for at most 8 at once.")
@click.option("--image", help="Run in a container of this image: NAME:TAG of the catalogue, or a reference.")
@click.option(
    "--after",
    multiple=True,
    metavar="JOB",
    shell_complete=complete_job,
    help="Start only when JOB has succeeded; may be repeated.",
)
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Any other field: share_class=online.")
@click.option("--idempotency-key", help="Run again with the same key, it is the same job.")
@click.option(
    "-i",
    "--stdin/--no-stdin",
    "input_wanted",
    default=None,
    help="Pass standard input on to the task or not [default: if it is a pipe or a file].",
)
@click.option("-d", "--detach", is_flag=True, help="Print the job's id and leave it to itself.")
@click.option("--stop-on-interrupt", is_flag=True, help="Ctrl-C ends the job instead of leaving it.")
@click.argument("words", nargs=-1, required=True, metavar="COMMAND...")
@state_dir_option
def command(
    input_wanted: bool | None,
    detach: bool,
    stop_on_interrupt: bool,
    changes: tuple[str, ...],
    state_dir: Path | None,
    **fields: Any,
) -> int:
    """Run COMMAND in the pool, follow its output, and exit with its exit code.

    Several words are a program and its arguments; one quoted word, as in 'make && ./train', is a line for the
    shell.
    """
    spec = job_from(**fields)
    parsed = [FieldEdit.parse(change) for change in changes]
    with connect(state_dir) as client:
        spec["env"] = environment_for(client.server().engine) | spec["env"]
        if "after" in spec:
            spec["after"] = [client.find(job).id for job in spec["after"]]
        for change in parsed:
            change.apply(Located(spec))
        feeder = InputFeeder(client) if _reads_input(spec, input_wanted, detach) else None
        follower: Follower | None = None
        try:
            with held_back():
                job = client.submit(spec | ({} if feeder is None else {"stdin": True}))
                follower = Follower(client, job, None if feeder is None else feeder.start)
            for warning in job.warnings:
                say(warning)
            if job.deadline is not None:
                say(f"deadline {formats.deadline(job.deadline, time.time())}")
            if detach:
                click.echo(job.id)
                return 0
            say(f"job {job.id}")
            return follower.follow()
        except KeyboardInterrupt:
            if follower is None:
                raise
            unfinished = feeder is not None and not feeder.done
            if unfinished and not stop_on_interrupt:
                say(f"{follower.job.id} cannot go on without the rest of its standard input")
            if stop_on_interrupt or unfinished:
                return _stop(client, follower)
            leave(follower.job)
            return INTERRUPTED


def _reads_input(spec: dict[str, Any], wanted: bool | None, detach: bool) -> bool:
    """Whether standard input is to be the task's.

    Raises:
        InvalidInputError: it was asked for, and no client would pass it on.
    """
    if wanted and detach:
        raise InvalidInputError("--stdin with --detach: a detached client cannot pass it on", "leave one of them out")
    if wanted is not None or detach or not is_redirected():
        return bool(wanted)
    several = any(spec.get(field) not in (None, usual) for field, usual in _ONE_TASK.items())
    if several:
        say("standard input is not passed on: it is for one task of kind train")
    return not several


def job_from(
    gpus: str,
    tasks: int,
    gpu_models: tuple[str, ...],
    variables: tuple[str, ...],
    workdir: Path | None,
    words: tuple[str, ...],
    sources: tuple[str, ...] = (),
    output: Path | None = None,
    after: tuple[str, ...] = (),
    **named: Any,
) -> dict[str, Any]:
    """The fields of a job file for what was asked on the command line; ``named`` are those taken as they are.

    Raises:
        InvalidInputError: a variable to pass on is not set here, or data is not named.
    """
    spec: dict[str, Any] = {
        "gpus": FieldEdit.read("gpus", gpus, "--gpus").value.value,
        "tasks": tasks,
        "command": _command(words),
        "workdir": str(followed(workdir or Path.cwd(), "working directory")),
        "env": _environment(variables),
    }
    if gpu_models:
        spec["gpu_models"] = list(gpu_models)
    if sources:
        spec["data"] = dict(_source(text) for text in sources)
    if output is not None:
        spec["output"] = str(output.absolute())
    if after:
        spec["after"] = list(after)
    spec.update({name: value for name, value in named.items() if value is not None})
    if "cpus" in spec:
        spec["cpus"] = _number(spec["cpus"])
    spec.setdefault("name", name_of_program(spec["command"]))
    return spec


def _command(words: tuple[str, ...]) -> str | list[str]:
    """A program with its arguments; a single word with a blank in it is a line for the shell, as with ssh."""
    return words[0] if len(words) == 1 and len(words[0].split()) > 1 else list(words)


def _source(text: str) -> tuple[str, str]:
    """``NAME=SOURCE``; a relative path becomes absolute."""
    name, given, source = text.partition("=")
    if not given or not source:
        remedy = f"write for example --data train=/datasets/train, or --data train={DATASET_PREFIX}mnist"
        raise InvalidInputError(f"--data {text!r} is not NAME=SOURCE", remedy)
    return name, source if source.startswith(DATASET_PREFIX) else str(Path(source).absolute())


def _number(text: str) -> int | float | str:
    """A number where ``text`` is one; the reader of the job judges other texts."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _environment(variables: tuple[str, ...]) -> dict[str, str]:
    environment = {}
    for variable in variables:
        name, given, value = variable.partition("=")
        if not given and name not in os.environ:
            raise InvalidInputError(f"--env {name}: no such variable is set here", f"write --env {name}=VALUE")
        environment[name] = value if given else os.environ[name]
    return environment


def _stop(client: Client, follower: Follower) -> int:
    """End the job and see it to its end; another Ctrl-C leaves it to end by itself."""
    job = follower.job
    try:
        with held_back():
            try:
                client.stop(job.id)
                say(f"stopping {job.id}; Ctrl-C again leaves it to end by itself")
            except ConflictError as ended:
                say(ended.cause)
        follower.follow()
    except KeyboardInterrupt:
        silence()
        say(f"{job.id} is being stopped; see it with `pond logs -f {job.id}`")
    return INTERRUPTED
