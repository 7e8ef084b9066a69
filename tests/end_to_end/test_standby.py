"""Two servers on one PostgreSQL database and one state directory: one leads, the other takes over."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from real_pond import FAKE_GPUS, PATIENCE_S, Pond, alive, until

from millpond.client.sdk import Client
from millpond.client.sdk.discovery import read_server_file
from millpond.model.errors import UnavailableError
from millpond.specs.server_bodies import STANDBY_FILE, ServerFile

Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, postgresql_url: str) -> Iterator[Start]:
    """Starts servers that stand by, or lead when nobody does; they and their jobs are ended in the end."""
    pond = Pond(tmp_path / "state")
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        started.append(pond.start("up", "--standby", "--fake-gpus", FAKE_GPUS, "--store", postgresql_url))
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


def both_up(start: Start, state_dir: Path) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    first = start()
    until(lambda: leader(state_dir) == first.pid)
    second = start()
    until(lambda: standing_by(state_dir) is not None)
    return first, second


def led_by(state_dir: Path, server: subprocess.Popen[str]) -> Client:
    """A connection to this server once it leads."""
    until(lambda: leader(state_dir) == server.pid)
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
    alive = httpx2.get(f"{waiting.url}/healthz", trust_env=False)
    assert (alive.status_code, alive.json()) == (
        200,
        {"status": "ok", "degraded": "", "standby": True, "leader": leads.url},
    )
    assert httpx2.get(f"{waiting.url}/readyz", trust_env=False).status_code == 503
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
