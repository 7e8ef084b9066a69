"""Two servers on one PostgreSQL database and one state directory: one leads, the other takes over."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa
from real_pond import FAKE_GPUS, PATIENCE_S, Pond, alive, until

from millpond.client.sdk import Client
from millpond.client.sdk.transport.discovery import read_server_file
from millpond.model.errors import UnavailableError
from millpond.specs.api.server import STANDBY_FILE, ServerFile

pytestmark = pytest.mark.long

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, postgresql_url: str) -> Iterator[Start]:
    """Starts servers that stand by, or lead when nobody does; they and their jobs are ended in the end."""
    pond = Pond(tmp_path / "state")
    started: list[subprocess.Popen[str]] = []

    def begin(url: str = postgresql_url) -> subprocess.Popen[str]:
        started.append(pond.start("up", "--standby", "--fake-gpus", FAKE_GPUS, "--store", url))
        return started[-1]

    yield begin
    try:
        done = pond("down")
        assert done.returncode == 0, done.stderr
        assert [server.pid for server in started if server.poll() is None] == []
    finally:
        for server in started:
            server.kill()  # one that stood still, or led when nobody was to lead any more
            server.communicate()


def leader(state_dir: Path) -> int:
    left = read_server_file(state_dir)
    return left.pid if left is not None and alive(left.pid) else 0


def standing_by(state_dir: Path) -> ServerFile | None:
    return read_server_file(state_dir, STANDBY_FILE)


def comes_to(server: subprocess.Popen[str], holds: Callable[[], object]) -> None:
    """Wait for what a server comes to; one that has ended instead says why."""
    until(lambda: holds() or server.poll() is not None)
    assert server.poll() is None, server.communicate()[1]


def both_up(start: Start, state_dir: Path) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    first = start()
    comes_to(first, lambda: leader(state_dir) == first.pid)
    second = start()
    comes_to(second, lambda: standing_by(state_dir) is not None)
    return first, second


def led_by(state_dir: Path, server: subprocess.Popen[str]) -> Client:
    """A connection to this server once it leads."""
    comes_to(server, lambda: leader(state_dir) == server.pid)
    return Client(state_dir=state_dir)


def works(client: Client) -> bool:
    """Whether a new job runs to its end."""
    job = client.submit({"command": "true"}).id
    until(lambda: client.job(job).state == "succeeded")
    return True


def test_a_standby_takes_over_from_a_killed_leader_and_the_jobs_go_on(tmp_path: Path, start: Start) -> None:
    state = tmp_path / "state"
    first, second = both_up(start, state)
    with Client(state_dir=state) as client:
        script = f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo two"
        running = client.submit({"command": script, "workdir": str(tmp_path)}).id
        until(lambda: client.job(running).state == "running")
    first.kill()
    with led_by(state, second) as client:
        (tmp_path / "go").touch()
        until(lambda: client.job(running).state == "succeeded")
        assert client.job(running).attempt == 1
        assert "".join(chunk.data for chunk in client.logs(running)) == "one\ntwo\n"
        assert works(client)
    assert standing_by(state) is None


def test_a_standby_answers_probes_and_names_the_leader(tmp_path: Path, start: Start) -> None:
    state = tmp_path / "state"
    both_up(start, state)
    waiting, leads = standing_by(state), read_server_file(state)
    assert waiting is not None
    assert leads is not None
    get = partial(httpx2.get, trust_env=False, timeout=PATIENCE_S)
    alive = get(f"{waiting.url}/healthz")
    assert (alive.status_code, alive.json()) == (
        200,
        {"status": "ok", "degraded": "", "standby": True, "leader": leads.url},
    )
    assert get(f"{waiting.url}/readyz").status_code == 503
    token = Path(waiting.token_path).read_text().strip()
    with Client(waiting.url, token) as client, pytest.raises(UnavailableError, match=f"stands by; {leads.url} leads"):
        client.submit({"command": "true"})


def test_a_leader_that_stands_still_is_replaced_and_never_writes_again(tmp_path: Path, start: Start) -> None:
    state = tmp_path / "state"
    first, second = both_up(start, state)
    os.kill(first.pid, signal.SIGSTOP)
    with led_by(state, second) as client:
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(PATIENCE_S) != 0
        assert works(client)


def test_an_orderly_end_of_the_leader_hands_over_too(tmp_path: Path, start: Start) -> None:
    state = tmp_path / "state"
    first, second = both_up(start, state)
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 0
    with led_by(state, second) as client:
        assert works(client)


def test_a_standby_without_postgresql_is_one_clear_error(pond: Pond) -> None:
    done = pond("up", "--standby", "--fake-gpus", FAKE_GPUS)
    assert done.returncode == 2
    assert (
        done.stderr.strip() == "pond: a standby needs a database that both servers reach; name PostgreSQL with --store"
    )


class Link:
    """The way of one server to the database; while it is cut, nothing comes through and nothing is closed."""

    def __init__(self, url: str) -> None:
        self._target = sa.make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.whole = threading.Event()
        self.whole.set()
        self.url = self._target.set(host="127.0.0.1", port=self._listener.getsockname()[1], query={}).render_as_string(
            hide_password=False
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.whole.set()
        self._listener.close()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = self._connected()
                self._ends += [ours, theirs]
                for source, sink in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _connected(self) -> socket.socket:
        where = str(self._target.query.get("host", self._target.host))
        if not where.startswith("/"):
            return socket.create_connection((where, self._target.port or 5432))
        theirs = socket.socket(socket.AF_UNIX)
        theirs.connect(f"{where}/.s.PGSQL.{self._target.query.get('port', self._target.port or 5432)}")
        return theirs

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                self.whole.wait()
                sink.sendall(piece)
            self.whole.wait()
            sink.shutdown(socket.SHUT_WR)


def test_a_leader_that_is_cut_off_from_the_database_is_replaced_and_never_writes_again(
    tmp_path: Path, start: Start, postgresql_url: str
) -> None:
    state, link = tmp_path / "state", Link(postgresql_url)
    first = start(link.url)
    comes_to(first, lambda: leader(state) == first.pid)
    former = read_server_file(state)
    assert former is not None
    token = Path(former.token_path).read_text().strip()
    with Client(former.url, token) as client:
        kept = client.submit({"command": "sleep 600"}).id
        until(lambda: client.job(kept).state == "running")
    second = start()
    comes_to(second, lambda: standing_by(state) is not None)
    link.whole.clear()
    try:
        with led_by(state, second) as client:
            assert works(client)
            with Client(former.url, token, timeout_s=2.0) as cut_off, pytest.raises(UnavailableError):
                cut_off.submit({"command": "true", "name": "lost"})
            link.whole.set()
            assert first.wait(PATIENCE_S) != 0
            assert works(client)
            assert client.job(kept).state == "running", "it was adopted, not started again"
            assert client.job(kept).attempt == 1
            assert [job.id for job in client.jobs(all=True).jobs if job.name == "lost"] == []
    finally:
        link.close()


def test_a_standby_whose_database_does_not_answer_says_that_it_does_not_know_who_leads(tmp_path: Path) -> None:
    pond = Pond(tmp_path / "state")
    done = pond("up", "--detach", "--standby", "--store", "postgresql+psycopg://ada@127.0.0.1:1/pool")
    try:
        assert done.returncode == 0, done.stderr
        waiting = standing_by(tmp_path / "state")
        assert waiting is not None
        assert done.stdout == f"Millpond stands by at {waiting.url}; which server leads is not known yet\n"
        answer = httpx2.get(f"{waiting.url}/readyz", trust_env=False, timeout=PATIENCE_S)
        assert "stands by; which server leads is not known yet" in answer.json()["status"]
    finally:
        assert pond("down").returncode == 0
