"""``pond up``: what another server has is said before anything large is loaded."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from click.testing import CliRunner

from millpond.client.cli.commands.server import background, up
from millpond.client.cli.main import cli
from millpond.client.cli.terminal.interrupts import held_back, with_termination
from millpond.model.errors import MillpondError, UnavailableError
from millpond.server.http.listener import listen
from millpond.server.startup import process
from millpond.server.startup.options import ServerOptions
from millpond.server.state_dir import StateDir
from millpond.specs.api.pool.nodes import NodeInfo
from millpond.specs.api.server import FIRST_LOGIN_FILE, SERVER_FILE, HealthInfo, ServerFile, SettingsInfo


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["here", "detached"])
def test_a_taken_port_or_state_directory_starts_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detach: list[str]
) -> None:
    def never(*_: object) -> NoReturn:
        raise AssertionError("a server was started")

    monkeypatch.setattr(process, "run", never)
    monkeypatch.setattr(background, "start", never)

    def refusal(port: int) -> str:
        arguments = ["up", "--port", str(port), "--state-dir", str(tmp_path / "state"), *detach]
        with pytest.raises(UnavailableError) as refused:
            CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)
        return str(refused.value)

    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 cannot be used" in refusal(port)
        with StateDir(tmp_path / "state"):
            assert "uses the state directory" in refusal(port)


class Clock:
    """Time that passes while somebody sleeps, a second each time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += 1.0


class UnreadyServer:
    """A program that runs on, and whose server says why it takes no requests, so many times."""

    def __init__(self, refusals: int) -> None:
        self.pid, self.ended, self.hangs, self.clock = os.getpid(), False, False, Clock()
        asked = iter(range(1, 1000))

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                unready = next(asked) <= refusals
                health = HealthInfo(status="the store cannot be read (it is malformed)" if unready else "ready")
                self.send_response(503 if unready else 200)
                self.end_headers()
                self.wfile.write(json.dumps(asdict(health)).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def poll(self) -> None:
        return None

    def terminate(self) -> None:
        self.ended = True

    def wait(self, timeout: float) -> int:
        if self.hangs:
            raise subprocess.TimeoutExpired("the server", timeout)
        return 0


@pytest.fixture
def unready_server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[UnreadyServer]:
    server = UnreadyServer(request.param)
    url = f"http://127.0.0.1:{server.http.server_port}"
    left = ServerFile(url=url, pid=server.pid, token_path="t", version="1")
    (tmp_path / SERVER_FILE).write_text(json.dumps(asdict(left)))
    monkeypatch.setattr(background, "time", server.clock)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: server)
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.mark.parametrize("unready_server", [100], indirect=True)
def test_a_server_that_stays_unready_is_ended_soon_and_its_reason_is_shown(
    tmp_path: Path, unready_server: UnreadyServer
) -> None:
    with pytest.raises(UnavailableError, match=r"took no requests .*: the store cannot be read \(it is malformed\)"):
        background.start([], tmp_path)
    assert unready_server.ended
    assert unready_server.clock.now < background.RECOVERS_WITHIN_S + 3


@pytest.mark.parametrize("unready_server", [5], indirect=True)
def test_a_server_whose_database_only_stumbles_is_waited_for(tmp_path: Path, unready_server: UnreadyServer) -> None:
    assert background.start([], tmp_path).health.status == "ready"
    assert not unready_server.ended


@pytest.mark.parametrize("unready_server", [0], indirect=True)
@pytest.mark.parametrize("said", ["the start waits for postgresql+psycopg://u@h/d", ""])
def test_of_a_start_that_takes_long_is_said_what_it_waits_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    unready_server: UnreadyServer,
    said: str,
) -> None:
    (tmp_path / SERVER_FILE).unlink()
    log, sleep = tmp_path / background.LOG_NAME, unready_server.clock.sleep
    shown: list[tuple[float, str]] = []

    def write_and_sleep(seconds: float) -> None:
        if unready_server.clock.now == 0.0:
            log.write_text(f"an earlier line\n{said}\n")
        sleep(seconds)
        if unready_server.clock.now == 50.0:
            log.write_text("the tables are there\n")
        if unready_server.clock.now == 100.0:
            log.write_text("pond: it ends\n      for a reason\n")
        if text := capsys.readouterr().err:
            shown.append((unready_server.clock.now, text))

    monkeypatch.setattr(unready_server.clock, "sleep", write_and_sleep)
    with pytest.raises(MillpondError, match=r"^the server was not ready within 180 s: for a reason;"):
        background.start([], tmp_path)
    assert shown == [
        (background.SILENT_S + 2, f"pond: the server is still starting: {said or 'an earlier line'}\n"),
        (51.0, "pond: the server is still starting: the tables are there\n"),
    ]


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (0, r"nor write why into \S+server\.log: the disk is full; make room there"),
        (2**30, "ended at once with exit code 1"),
    ],
)
def test_a_server_that_ends_without_a_word_on_a_full_disk_ended_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: str
) -> None:
    class Ended:
        def __init__(self, *_: object, **__: object) -> None:
            self.pid = os.getpid()

        def poll(self) -> int:
            return 1

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    monkeypatch.setattr(subprocess, "Popen", Ended)
    with pytest.raises(MillpondError, match=said):
        background.start([], tmp_path)


@pytest.mark.usefixtures("_ctrl_c_interrupts")
@pytest.mark.parametrize("unready_server", [100], indirect=True)
@pytest.mark.parametrize(
    ("hangs", "said"), [(False, "the server was ended before it was ready"), (True, "`kill -9 {pid}` ends it at once")]
)
@pytest.mark.parametrize("came", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_a_server_is_ready_ends_it_and_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    unready_server: UnreadyServer,
    hangs: bool,
    said: str,
    came: signal.Signals,
) -> None:
    unready_server.hangs = hangs
    monkeypatch.setattr(unready_server.clock, "sleep", lambda _: signal.raise_signal(came))
    with pytest.raises(KeyboardInterrupt):
        background.start([], tmp_path)
    assert unready_server.ended
    assert said.format(pid=unready_server.pid) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engine", "helps"),
    [
        ("local", "`pond doctor` says why, and `--fake-gpus 4x8:V100-32GB` pretends some"),
        ("kubernetes", "`pond kube check` says why"),
    ],
)
def test_a_machine_without_cards_is_told_how_to_find_out_why_and_to_pretend_some(engine: str, helps: str) -> None:
    node = NodeInfo(
        name="vm", pool="default", cpu_milli=2000, free_cpu_milli=2000, memory_mib=2048, free_memory_mib=2048
    )
    assert up.summary([node], engine) == f"1 node, 0 cards: {helps}"


@pytest.mark.usefixtures("_ctrl_c_interrupts")
def test_a_signal_that_ends_a_command_waits_for_what_must_not_be_half_done() -> None:
    done = False

    def work() -> None:
        nonlocal done
        with with_termination(), held_back():
            signal.raise_signal(signal.SIGTERM)
            done = True

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done


@pytest.mark.parametrize("error", [KeyboardInterrupt, UnavailableError, AssertionError])
def test_whatever_comes_once_a_server_is_up_it_is_said_that_it_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: type[BaseException]
) -> None:
    def fails(**_: object) -> NoReturn:
        raise error("it fails")

    left = ServerFile(url="http://127.0.0.1:1", pid=1, token_path="t", version="1")
    monkeypatch.setattr(background, "start", lambda *_: background.Started(left, HealthInfo(status="ready")))
    monkeypatch.setattr(up, "Client", fails)
    with pytest.raises(error):
        up._start_detached(ServerOptions(tmp_path))
    assert "the server runs on; `pond down` ends it" in capsys.readouterr().err


def test_no_server_stays_behind_when_waiting_for_it_fails_as_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def begin(*_: object) -> tuple[subprocess.Popen[bytes], int]:
        begun.append(subprocess.Popen(["sleep", "4000"]))
        return begun[0], 0

    def fails(*_: object) -> NoReturn:
        raise PermissionError("the log cannot be read")

    monkeypatch.setattr(background, "_begin", begin)
    monkeypatch.setattr(background, "_await_ready", fails)
    try:
        with pytest.raises(PermissionError):
            background.start([], tmp_path)
        assert begun[0].returncode == -signal.SIGTERM
    finally:
        begun[0].kill()
    assert "the server was ended before it was ready" in capsys.readouterr().err


def test_the_program_of_the_server_can_be_imported_without_starting_one() -> None:
    assert callable(importlib.import_module("millpond.server.__main__").main)


@pytest.mark.parametrize(
    ("settings", "address"),
    [({"listen": {"public_url": "https://pond.example.org"}}, "https://pond.example.org"), ({"listen": None}, "URL")],
)
def test_who_comes_from_elsewhere_for_the_first_time_is_told_the_address_that_people_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], address: str
) -> None:
    server = SimpleNamespace(engine="local", apart="", notes=[], unsandboxed="", unshared="")
    client = SimpleNamespace(
        server=lambda: server,
        nodes=list,
        accounts=SimpleNamespace(portal_link=lambda: SimpleNamespace(url="http://127.0.0.1:1/x")),
        settings=lambda: SettingsInfo(settings=settings),
    )
    left = ServerFile(url="http://127.0.0.1:1", pid=1, token_path="t", version="1")
    started = SimpleNamespace(left=left, health=HealthInfo(status="ready"))
    monkeypatch.setattr(background, "start", lambda *_: started)
    monkeypatch.setattr(up, "Client", lambda **_: contextlib.nullcontext(client))
    (tmp_path / FIRST_LOGIN_FILE).write_text("mill-secret\n")
    said = CliRunner().invoke(cli, ["up", "--detach", "--port", "0", "--state-dir", str(tmp_path)]).output
    assert said.splitlines()[-1] == (
        f"first login from elsewhere: pond login {address} --invitation, and this: mill-secret"
    )
