"""What the client's tests share: bodies as a server sends them, and a server that answers from a list."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from millpond.client.cli import main
from millpond.client.sdk import Client
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.logs import LogChunk
from millpond.specs.api.models import adapter_of


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test finds the server of whoever runs it."""
    for name in ("MILLPOND_URL", "MILLPOND_TOKEN", "MILLPOND_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MILLPOND_STATE", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
def _ctrl_c_interrupts() -> Iterator[None]:
    """As in a terminal, wherever the tests run: also in the background, and with `nohup`."""
    terminal = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {each: signal.signal(each, handler) for each, handler in terminal.items()}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.fixture
def make_job() -> Callable[..., JobInfo]:
    """A job as the server tells it."""

    def make(job_id: str = "train-abcde", state: str = "running", **fields: Any) -> JobInfo:
        basics: dict[str, Any] = {
            "id": job_id,
            "name": "train",
            "queue": "default",
            "pool": "default",
            "user": "ada",
            "kind": "train",
            "priority": "normal",
            "state": state,
            "attempt": 1,
            "submitted_at": 1000.0,
        }
        return adapter_of(JobInfo).validate_python(basics | fields)

    return make


@pytest.fixture
def make_chunk() -> Callable[..., LogChunk]:
    """A piece of a log stream."""

    def make(data: str = "", **fields: Any) -> LogChunk:
        basics: dict[str, Any] = {"job": "train-abcde", "task": 0, "attempt": 1, "offset": 0, "next_offset": 0}
        return LogChunk(**basics | {"data": data} | fields)

    return make


class Server:
    """Answers requests with the prepared answers, in order, and remembers the requests."""

    def __init__(self) -> None:
        self.answers: list[httpx2.Response | Exception] = []
        self.requests: list[httpx2.Request] = []

    def will(self, status: int, body: Any = None, *, stream: Iterator[bytes] | None = None) -> None:
        """Prepare the next answer."""
        content = stream if stream is not None else json.dumps(body).encode()
        self.answers.append(httpx2.Response(status, content=content))

    def will_fail(self, error: Exception) -> None:
        """Prepare the loss of the next request."""
        self.answers.append(error)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client("http://pool:1", "secret", transport=httpx2.MockTransport(server)) as client:
        yield client


@pytest.fixture
def run_pond(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line against that server; its exit code, and what it printed on both streams."""
    monkeypatch.setattr("millpond.client.cli.connection.Client", lambda **_: client)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run_line(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
