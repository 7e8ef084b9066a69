"""Who gets into jobs through SSH: keys, the rule of ``pond exec``, pauses after failures, the audit log, use."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from auth_world import API, AuthWorld, error_of, public_key

from millpond.engines.local.task_access import LocalTaskAccess
from millpond.node.task.records import TaskId
from millpond.server.sessions.ssh.authorizer import SshAuthorizer
from millpond.server.sessions.websockets import MOST_SESSIONS

ADDRESS = "192.0.2.7"


class Entered(LocalTaskAccess):
    """Tasks that take commands, of which nothing becomes."""

    def __init__(self, state_dir: Path, connection: Callable[[TaskId], socket.socket]) -> None:
        super().__init__(state_dir)
        self._connection = connection

    async def open_session(self, task: TaskId) -> socket.socket:
        return self._connection(task)


class Gate:
    """A gatekeeper, asked as the gateway asks."""

    def __init__(self, world: AuthWorld) -> None:
        self.ends: list[socket.socket] = []
        self.entered: list[TaskId] = []
        self.trouble: OSError | None = None
        service = world.service
        access = Entered(service.state_dir, self._connection)
        self.keeper = SshAuthorizer(access, service.lookup, service.activity, service.sessions, world.security)
        self.world = world

    def _connection(self, task: TaskId) -> socket.socket:
        self.entered.append(task)
        if self.trouble is not None:
            raise self.trouble
        ours, theirs = socket.socketpair()
        self.ends.append(theirs)
        return ours

    def ask(self, ask: str, **about: Any) -> dict[str, Any]:
        answer, handed = self.keeper.answer({"ask": ask, "address": ADDRESS, "job": "", "key": "", **about})
        if handed is not None:
            handed.close()
            return answer | {"connection": True}
        return answer


@pytest.fixture
def gate(world: AuthWorld) -> Gate:
    made = Gate(world)
    for user in ("max", "lea", "mia", "sam", "vic"):
        answer = world.client(user).post(f"{API}/ssh-keys", json={"key": public_key(user)})
        assert answer.status_code == 201, answer.text
    return made


def test_the_user_of_a_job_gets_in_and_others_are_told_what_pond_exec_tells_them(gate: Gate) -> None:
    job = gate.world.submit("max", kind="dev")
    gate.world.settled()
    assert gate.ask("session", job=job, key=public_key("max"))["connection"]
    for user in ("lea", "mia", "vic"):
        assert "may not enter jobs" in gate.ask("session", job=job, key=public_key(user))["error"]
    hidden, never = (gate.ask("session", job=name, key=public_key("sam")) for name in (job, "never-was"))
    assert hidden["error"].replace(job, "never-was") == never["error"] == "no job 'never-was'"
    assert hidden["exit"] == 4
    assert "error" in gate.ask("forward", job=job, key=public_key("mia"))


def test_the_beginning_of_an_id_is_enough_where_it_means_one_job_of_ones_own(gate: Gate) -> None:
    job = gate.world.submit("max", kind="dev", name="place")
    gate.world.submit("sam", kind="dev", name="place")
    gate.world.settled()
    assert gate.ask("session", job="place", key=public_key("max"))["connection"]
    gate.world.submit("max", kind="dev", name="place")
    gate.world.settled()
    assert "2 jobs begin with 'place'" in gate.ask("session", job="place", key=public_key("max"))["error"]
    assert gate.ask("session", job=job, key=public_key("max"))["connection"]


def test_the_number_of_a_task_behind_the_id_names_that_task(gate: Gate) -> None:
    job = gate.world.submit("max", kind="dev", name="gang", tasks=2)
    gate.world.settled()
    for name, number in ((job, 0), (f"{job}.0", 0), (f"{job}.1", 1), ("gang.1", 1)):
        assert gate.ask("session", job=name, key=public_key("max"))["connection"]
        nothing_runs = gate.ask("forward", job=name, port=80, key=public_key("max"))["error"]
        assert nothing_runs == f"task {number} of job {job} runs no more"
    assert [task.task for task in gate.entered[-2:]] == [1, 1]
    assert gate.ask("session", job=f"{job}.2", key=public_key("max"))["error"] == f"job {job} has no task 2"
    for odd in (".1", f"{job}.", f"{job}.x", f"{job}.-1", f"{job}.{10**9}"):
        assert gate.ask("session", job=odd, key=public_key("max"))["error"] == f"no job {odd!r}"
    assert gate.ask("session", job=f"{job}.1", key=public_key("sam"))["error"] == f"no job '{job}.1'"


def test_a_removed_key_and_a_disabled_user_open_nothing_any_more(gate: Gate) -> None:
    job = gate.world.submit("max", kind="dev")
    gate.world.settled()
    assert gate.ask("know", key=public_key("max")) == {"known": True}
    assert gate.ask("know", key=public_key("nobody")) == {"known": False}
    (listed,) = gate.world.client("max").get(f"{API}/ssh-keys").json()["keys"]
    assert gate.world.client("sam").delete(f"{API}/ssh-keys/{listed['id']}").status_code == 404
    assert gate.world.client("max").delete(f"{API}/ssh-keys/{listed['id']}").status_code == 200
    assert gate.ask("know", key=public_key("max")) == {"known": False}
    assert "belongs to no user" in gate.ask("session", job=job, key=public_key("max"))["error"]
    gate.world.client("olga").patch(f"{API}/users/sam", json={"disabled": True})
    assert gate.ask("know", key=public_key("sam")) == {"known": False}


def test_a_session_is_cut_off_when_its_user_may_no_longer_be_inside(gate: Gate) -> None:
    job, others = gate.world.submit("max", kind="dev"), gate.world.submit("sam", kind="dev")
    gate.world.settled()
    for name, user in ((job, "max"), (others, "sam")):
        assert gate.ask("session", job=name, key=public_key(user))["connection"]
    for end in gate.ends:
        end.setblocking(False)
    gate.keeper.cut_off()
    for end in gate.ends:
        with pytest.raises(BlockingIOError):
            end.recv(1)
    gate.world.client("olga").patch(f"{API}/users/max", json={"disabled": True})
    gate.keeper.cut_off()
    assert gate.ends[0].recv(1) == b""
    with pytest.raises(BlockingIOError):
        gate.ends[1].recv(1)
    gate.keeper.close()
    assert gate.ends[1].recv(1) == b"", "what the gateway has left is not kept open"


def test_a_key_is_one_users_and_a_confined_token_registers_none(gate: Gate) -> None:
    answer = gate.world.client("sam").post(f"{API}/ssh-keys", json={"key": public_key("max")})
    assert (answer.status_code, error_of(answer).cause) == (409, "this key stands for another user")
    again = gate.world.client("max").post(f"{API}/ssh-keys", json={"key": public_key("max").rpartition(" ")[0]})
    assert (again.status_code, again.json()["name"]) == (201, "max@laptop")
    wish = {"name": "narrow", "verbs": ["change-tokens", "read-jobs"]}
    secret = gate.world.client("max").post(f"{API}/tokens", json=wish).json()["secret"]
    narrow = gate.world.client(Authorization=f"Bearer {secret}")
    answer = narrow.post(f"{API}/ssh-keys", json={"key": public_key("other")})
    assert (answer.status_code, "confined token" in error_of(answer).cause) == (422, True)
    other = gate.world.client("max").post(f"{API}/ssh-keys", json={"key": public_key("x"), "user": "sam"})
    assert other.status_code == 404


def test_failures_of_an_address_make_it_wait_and_a_login_forgives_them(gate: Gate) -> None:
    for _ in range(4):
        assert gate.ask("greet") == {}
        gate.ask("failed", job="x")
    gate.ask("entered", job="x", key=public_key("max"))
    for _ in range(5):
        assert gate.ask("greet") == {}
        gate.ask("failed", job="x")
    assert "too many logins failed" in gate.ask("greet")["error"]
    assert gate.ask("greet", address="192.0.2.8") == {}
    gate.world.clock.now += 2
    assert gate.ask("greet") == {}


def test_logins_are_written_down_with_key_and_address(gate: Gate) -> None:
    job = gate.world.submit("max", kind="dev")
    gate.ask("entered", job=job, key=public_key("max"))
    gate.ask("failed", job=job)
    # Entries are written in order, and this request waits for its own.
    gate.world.client("olga").post(f"{API}/groups", json={"name": "later"})
    entries = gate.world.client("olga").get(f"{API}/audit?object={job}").json()["entries"]
    failed, entered = (entry for entry in entries if entry["verb"] == "log-in")
    assert (failed["user"], failed["status"], failed["address"]) == ("", 401, ADDRESS)
    assert (entered["user"], entered["status"]) == ("max", 200)
    assert entered["after"].startswith("by the key SHA256:")


def test_somebody_in_a_job_is_use_until_they_leave_or_the_gateway_ends(gate: Gate) -> None:
    world, activity = gate.world, gate.world.service.activity
    job = world.submit("max", kind="dev")
    world.settled()
    first = gate.ask("session", job=job, key=public_key("max"))["session"]
    second = gate.ask("session", job=job, key=public_key("max"))["session"]
    left_at = activity._clock()
    gate.ask("left", session=first)
    gate.ask("left", session=first)  # said twice, it counts once
    gate.ask("used", session=first)
    assert job in activity._uses
    gate.ask("left", session=second)
    assert activity.last_used(job) >= left_at
    assert job not in activity._uses
    gate.ask("session", job=job, key=public_key("max"))
    gate.keeper.close()
    assert job not in activity._uses


def test_what_one_user_has_open_is_bounded_with_what_they_opened_over_http(gate: Gate) -> None:
    job, others = gate.world.submit("max", kind="dev"), gate.world.submit("sam", kind="dev")
    gate.world.settled()
    counts = gate.world.service.sessions
    for _ in range(MOST_SESSIONS - 1):
        counts.enter("max")
    last = gate.ask("session", job=job, key=public_key("max"))["session"]
    for ask in ("session", "forward"):
        too_many = gate.ask(ask, job=job, port=80, key=public_key("max"))["error"]
        assert too_many == f"{MOST_SESSIONS} commands and forwarded connections of max are under way"
    assert gate.ask("session", job=others, key=public_key("sam"))["connection"]
    gate.ask("left", session=last)
    assert gate.ask("session", job=job, key=public_key("max"))["connection"]


def test_a_server_that_can_open_nothing_more_says_so_and_counts_nothing(gate: Gate) -> None:
    job = gate.world.submit("max", kind="dev")
    gate.world.settled()
    gate.trouble = OSError(errno.EMFILE, "Too many open files")
    for _ in range(MOST_SESSIONS + 1):
        assert "can open nothing more" in gate.ask("session", job=job, key=public_key("max"))["error"]
    gate.trouble = None
    assert gate.ask("session", job=job, key=public_key("max"))["connection"]
