"""Functions as jobs, as far as this side goes; the other side is in ``end_to_end/jobs/test_functions.py``."""

from __future__ import annotations

import ast
import asyncio
import copy
import json
import pickle
import subprocess
import sys
import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import httpx2
import pytest

import millpond
from millpond.client.sdk import Client
from millpond.client.sdk.environment import module_path
from millpond.client.sdk.functions.handles import JobHandles, PoolJob
from millpond.client.sdk.functions.outcomes import RemoteExceptionError, RemoteTracebackError, value_of
from millpond.client.sdk.functions.submission import job_of
from millpond.client.sdk.transport.discovery import Address
from millpond.job.envelopes import pack, python_version, unpack
from millpond.model.errors import InvalidInputError, NotAllowedError, UnavailableError
from millpond.model.folders import digest_of


def divided(a: int, b: int) -> float:
    return a / b


def test_debug_calls_the_function_here_and_raises_its_own_exception() -> None:
    assert millpond.submit(divided, 6, 3, executor="debug", gpus=1).result() == 2
    assert millpond.map(partial(divided, 6), [1, 2], executor="debug").results() == [6, 3]
    failed = millpond.submit(divided, 1, 0, executor="debug")
    assert failed.state == "failed"
    with pytest.raises(ZeroDivisionError) as caught:
        failed.result()
    assert caught.traceback[-1].name == "divided"


def test_a_job_of_the_debug_executor_has_all_that_a_job_of_the_pool_has() -> None:
    job = millpond.submit(divided, 6, 3, executor="debug")
    assert (job.logs(), list(job.follow()), job.metrics().series) == ("", [], [])


def test_what_the_package_offers_is_written_out_for_type_checkers() -> None:
    (offered,) = (
        statement.value
        for statement in ast.parse(Path(millpond.__file__).read_text()).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
    )
    assert ast.literal_eval(offered) == sorted(dir(millpond))


def test_an_unknown_executor_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no executor 'slurm'"):
        millpond.submit(divided, 1, 1, executor="slurm")  # type: ignore[arg-type]


def test_importing_millpond_loads_nothing_and_the_command_stays_light() -> None:
    loaded = "import millpond, sys; print(sorted(name for name in sys.modules if name.startswith('millpond')))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "['millpond']\n"
    heavy = "import millpond.job, sys; print({'pydantic', 'httpx2', 'cloudpickle'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_everything_the_package_names_is_there_and_nothing_else() -> None:
    assert all(getattr(millpond, name) is not None for name in millpond.__all__)
    with pytest.raises(AttributeError, match="no attribute 'sumbit'"):
        millpond.sumbit  # noqa: B018


def test_the_job_file_of_a_function_is_checked_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = job_of(divided, "/py", digest_of(b""), {"gpus": 0.5, "data": {"a": "sets"}, "env": {"LANG": "C"}})
    assert job["command"] == ["/py", "-P", "-m", "millpond.job.call"]
    assert (job["name"], job["workdir"], job["data"]) == ("divided", str(tmp_path), {"a": str(tmp_path / "sets")})
    assert job["env"]["LANG"] == "C"
    with pytest.raises(InvalidInputError, match="negative"):
        job_of(divided, "/py", digest_of(b""), {"gpus": -1})


def test_modules_in_a_sent_folder_are_looked_for_in_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lib"), str(tmp_path), sys.prefix, "/no/such/place"])
    assert module_path() == f"{tmp_path}/lib:{tmp_path}"
    assert module_path(tmp_path) == "lib:."


def test_what_cannot_be_pickled_is_refused_before_anything_is_sent(client: Client, server: Any) -> None:
    with pytest.raises(InvalidInputError, match="cannot be sent"):
        millpond.submit(divided, threading.Lock(), client=client)
    with pytest.raises(InvalidInputError, match="is not a function"):
        millpond.submit(3, client=client)  # type: ignore[arg-type]
    assert server.requests == []


def test_a_function_is_sent_once_and_its_job_refers_to_it(client: Client, server: Any, make_job: Any) -> None:
    server.will(200, {"digests": ["0" * 64]})
    server.will(201, {"digest": "x"})
    server.will(201, asdict(make_job()))
    millpond.submit(divided, 1, 2, client=client, gpus=1, idempotency_key="once")
    _, sent, submitted = server.requests
    payload = sent.content
    assert cloudpickle.loads(unpack(payload)[1])[1] == (1, 2)
    assert sent.url.path.endswith(digest_of(payload))
    assert digest_of(payload) in submitted.content.decode()
    assert json.loads(submitted.content)["idempotency_key"] == "once"


def test_a_job_that_has_not_ended_in_time_is_a_timeout_and_goes_on(client: Client, server: Any, make_job: Any) -> None:
    job = asdict(make_job(state="running"))
    server.will(200, {"digests": []})
    server.will(201, job)
    server.will(200, job)
    with pytest.raises(millpond.JobTimeoutError, match="still running") as caught:
        millpond.submit(divided, 1, 2, client=client).result(timeout=0)
    assert isinstance(caught.value, TimeoutError)


def test_a_lost_connection_while_a_file_is_sent_is_our_own_error(client: Client, server: Any) -> None:
    server.will_fail(httpx2.ReadError("gone"))
    with pytest.raises(UnavailableError, match="broke"):
        millpond.submit(divided, 1, 2, client=client)


def test_the_result_of_another_users_job_is_read_only_if_they_are_named(make_job: Any, tmp_path: Path) -> None:
    opened, theirs = tmp_path / "opened", make_job("train-abcde", "succeeded", user="max")
    planted = pack({"outcome": "returned", "python": python_version()}, cloudpickle.dumps(Planted(opened)))

    def as_user(name: str) -> Any:
        return SimpleNamespace(
            find=lambda _job: theirs,
            watch=lambda *_: [theirs],
            accounts=SimpleNamespace(whoami=lambda: SimpleNamespace(user=name)),
            files=SimpleNamespace(result=lambda *_: planted),
        )

    for trusted in ("", "mia"):
        job = millpond.attach("train-abcde", as_user("ada"), trusted_user=trusted)
        for read in (job.result, lambda job=job: asyncio.run(job.aresult())):
            with pytest.raises(NotAllowedError, match="train-abcde is max's") as refused:
                read()
            assert "trusted_user='max'" in refused.value.remedy
    assert not opened.exists()
    millpond.attach("train-abcde", as_user("ada"), trusted_user="max").result()
    assert opened.exists()
    assert millpond.attach("train-abcde", as_user("max")).result() is None


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_a_job_goes_to_another_process_without_the_token_which_is_found_there(
    make_job: Any, monkeypatch: pytest.MonkeyPatch, pickler: Any
) -> None:
    monkeypatch.delenv("MILLPOND_TOKEN", raising=False)
    client = Client("http://pool:7433", "the-token-of-here")
    job = PoolJob[int](client, make_job("train-abcde", "running", user="ada"))
    assert copy.deepcopy(job)._client is copy.copy(job)._client is client
    data = pickler.dumps(JobHandles([job]))
    assert b"the-token-of-here" not in data
    with pytest.raises(UnavailableError, match="no token for the server at http://pool:7433"):
        pickle.loads(data)
    monkeypatch.setenv("MILLPOND_TOKEN", "the-token-of-there")
    (there,) = pickle.loads(data)
    assert (there.id, there._client.address) == (job.id, Address("http://pool:7433", "the-token-of-there"))


class Planted:
    """What does something when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("body", [b"", b"cmodule_of_the_other_machine\nOwnError\n."])
def test_an_exception_that_cannot_be_read_here_keeps_its_words_and_traceback(body: bytes) -> None:
    header = {"outcome": "raised", "type": "OwnError", "message": "no room", "traceback": "line 1"}
    told = pack({**header, "python": python_version()}, body)
    with pytest.raises(RemoteExceptionError, match="OwnError: no room") as caught:
        value_of(told)
    assert "line 1" in str(caught.value.__cause__)
    assert isinstance(caught.value.__cause__, RemoteTracebackError)
