"""Python functions as jobs: ``job = millpond.submit(train, 0.1, gpus=1)``, ``job.result()``.

A function travels by value (cloudpickle) with its arguments; modules that it imports are found where they are found
here, or in the copy when the directory is sent (``ship=True``). Keyword arguments of ``submit`` are fields of a job
file; a function's own are bound by ``functools.partial``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

from millpond.client.sdk.client import Client
from millpond.client.sdk.environment import carried_environment, module_path
from millpond.client.sdk.functions.handles import InlineJob, JobHandle, JobHandles, PoolJob
from millpond.job.envelopes import EACH, pack
from millpond.model.errors import InvalidInputError
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.fields import PriorityName
from millpond.specs.job.job_ids import member_id
from millpond.specs.job.job_spec import check_job

T = TypeVar("T")
S = TypeVar("S")

Executor = Literal["pool", "debug"]

MANY: Final = 8
"""So many items of a ``map`` are submitted as an array."""
LARGEST_COPIES: Final = 2**30
"""Bytes that the copies of a payload may take in all, as each member of an array gets one."""


class JobFields(TypedDict, total=False):
    """Fields of a job file that a function's job may have; amounts are per task."""

    name: str
    queue: str
    pool: str
    priority: PriorityName
    gpus: float | str | Mapping[str, Any]
    gpu_models: list[str]
    cpus: float | str
    memory: str
    tasks: int | Mapping[str, int]
    topology: str | Mapping[str, str]
    workdir: str | Path
    env: Mapping[str, str]
    retries: int
    time_limit: float | str
    keep: str
    checkpoint: str | Mapping[str, Any]
    min_run_time: float | str
    preemptible: bool | Literal["beyond-min"]
    extras: Mapping[str, int]
    ship: bool
    data: Mapping[str, str]
    output: str | Path
    after: list[str] | Mapping[str, list[str]]
    idempotency_key: str


def submit(
    function: Callable[..., T],
    /,
    *arguments: Any,
    executor: Executor = "pool",
    client: Client | None = None,
    python: str | None = None,
    **fields: Unpack[JobFields],
) -> JobHandle[T]:
    """Run ``function(*arguments)`` as a job.

    Args:
        executor: ``debug`` calls it right here, in this process, and asks no server.
        client: which server; default: the one that ``pond`` would find.
        python: interpreter of the job, of the same version as this one; default: this one.
        fields: of a job file.

    Raises:
        InvalidInputError: the function or an argument cannot be sent, or a field is wrong.
        UnavailableError: no server is running.
    """
    _check_executor(executor)
    if executor == "debug":
        return InlineJob(partial(function, *arguments))
    server = client or _default_client()
    return _handed_in(server, function, arguments, python or sys.executable, fields)


def submit_each(
    function: Callable[[S], T],
    items: Iterable[S],
    /,
    *,
    executor: Executor = "pool",
    client: Client | None = None,
    python: str | None = None,
    **fields: Unpack[JobFields],
) -> JobHandles[T]:
    """``millpond.map``: run ``function(item)`` as a job for each item; otherwise like ``submit``.

    Many small items are submitted as one array, which travels once and is one line in lists. Large ones are jobs of
    their own, so that none gets what the others need, and so are items with an ``idempotency_key``, which gets each
    item's number behind it.
    """
    _check_executor(executor)
    if executor == "debug":
        return JobHandles(InlineJob(partial(function, item)) for item in items)
    server = client or _default_client()
    every = list(items)
    if len(every) >= MANY and "idempotency_key" not in fields:
        payload = _pickled(function, every, {EACH: len(every)})
        if len(payload) * len(every) <= LARGEST_COPIES:
            digest = server.files.put_content(payload)
            return _array(server, len(every), job_of(function, python or sys.executable, digest, fields))
    jobs: JobHandles[T] = JobHandles()
    for number, item in enumerate(every):
        own = fields.copy()
        if "idempotency_key" in fields:
            own["idempotency_key"] = f"{fields['idempotency_key']}-{number}"
        jobs.append(_handed_in(server, function, (item,), python or sys.executable, own))
    return jobs


def attach(job_id: str, client: Client | None = None, *, trusted_user: str = "") -> JobHandle[Any]:
    """The job of an id (or of its beginning), of any user.

    Reading a result runs whatever code the job wrote into it, so another user's is refused unless they are named.

    Args:
        trusted_user: whose results may be read, besides one's own.

    Raises:
        NotFoundError, ConflictError: there is none, or there are several.
    """
    server = client or _default_client()
    return PoolJob(server, server.find(job_id), trusted_user)


def job_of(function: Callable[..., Any], python: str, payload: str, fields: JobFields) -> dict[str, Any]:
    """The checked job file for a function that was sent as ``payload``; relative paths become absolute.

    Raises:
        SpecError: a field is wrong.
    """
    workdir = Path(fields.get("workdir") or ".").absolute()
    own_env = dict(fields.get("env", {}))
    env = {**carried_environment(), "PYTHONPATH": module_path(workdir if fields.get("ship") else None), **own_env}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}
    document = {
        "name": _name(function),
        **plain,
        # Without -P, a folder called millpond in the working directory would be taken for the package.
        "command": [python, "-P", "-m", "millpond.job.call"],
        "workdir": str(workdir),
        "env": env,
        "payload": payload,
    }
    return check_job(document, Path.cwd()).document


def _handed_in(
    client: Client, function: Callable[..., T], arguments: tuple[Any, ...], python: str, fields: JobFields
) -> PoolJob[T]:
    payload = client.files.put_content(_pickled(function, arguments))
    return _own(client, client.submit(job_of(function, python, payload, fields)))


def _array(client: Client, count: int, document: dict[str, Any]) -> JobHandles[Any]:
    """So many jobs of one file, submitted as an array."""
    array = client.submit({**document, "array": count})
    members = (
        replace(array, id=member_id(array.id, index), array=None, parent=array.id, index=index)
        for index in range(count)
    )
    return JobHandles((_own(client, member) for member in members), _own(client, array))


def _own(client: Client, info: JobInfo) -> PoolJob[Any]:
    """A job that was submitted just now."""
    return PoolJob(client, info, info.user)


def _pickled(
    function: Callable[..., Any], arguments: Sequence[Any], header: Mapping[str, Any] = MappingProxyType({})
) -> bytes:
    import cloudpickle

    if not callable(function):
        raise InvalidInputError(f"{function!r} is not a function", "submit(function, *arguments, gpus=1)")
    try:
        return pack(dict(header), cloudpickle.dumps((function, arguments)))
    except Exception as error:
        raise InvalidInputError(
            f"{_name(function)} or an argument of it cannot be sent ({error})",
            "open files, locks and connections inside the function, not around it",
        ) from error


def _name(function: Callable[..., Any]) -> str:
    """A job name from a function's."""
    function = getattr(function, "func", function)  # of a functools.partial
    name = getattr(function, "__name__", type(function).__name__)
    letters = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    return letters.strip("-")[:60] or "function"


def _check_executor(executor: str) -> None:
    if executor not in ("pool", "debug"):
        raise InvalidInputError(f"there is no executor {executor!r}", "use pool or debug")


def _default_client() -> Client:
    """One client for all submissions of this program, as long as its surroundings name the same server."""
    return _client_for(*(os.environ.get(name) for name in ("MILLPOND_URL", "MILLPOND_TOKEN", "MILLPOND_STATE")))


@cache
def _client_for(_url: str | None, _token: str | None, _state: str | None) -> Client:
    return Client()
