"""Jobs of several people where they cannot be kept apart: nothing new starts, and everybody is told what to install."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_world import JOBS, Api, error_of

from millpond.model.confinement import Confinement, LimitKind, NetworkScope
from millpond.model.errors import InvalidInputError, NotFoundError, UnavailableError
from millpond.node.host import identities
from millpond.node.sandbox.detection import SandboxMode
from millpond.node.sandbox.sandbox import Sandbox
from millpond.server.auth import isolation as isolation_rules
from millpond.server.auth.isolation import Isolation, IsolationLevel
from millpond.server.auth.records import User
from millpond.specs.config.tasks import RunAsFile
from millpond.specs.job.job_file import JobFile

NO_BWRAP = IsolationLevel(SandboxMode.AUTO, None, "bubblewrap is not installed", "install bubblewrap")
AS_ROOT = IsolationLevel(SandboxMode.AUTO, Sandbox("bwrap", ()), is_root=True)


def without_sandbox(api: Api, **changes: Any) -> None:
    api.isolation.apart = replace(NO_BWRAP, **changes)


def add_user(api: Api, name: str, **fields: Any) -> dict[str, Any]:
    answer = api.client.post("/api/v1/users", json={"name": name, **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_one_person_alone_needs_no_sandbox(api: Api) -> None:
    without_sandbox(api)
    assert api.job(api.submit().id).state == "running"


def test_with_the_second_person_new_jobs_are_refused_and_waiting_ones_say_why(api: Api) -> None:
    without_sandbox(api)
    running, waiting = api.submit(gpus=4), api.submit(gpus=4)
    made = add_user(api, "bob")
    assert "no job starts from now on: 2 people use this server" in made["warning"]
    assert "install bubblewrap" in made["warning"]
    refused = api.client.post(JOBS, json={"command": "work"})
    assert refused.status_code == 503
    assert "could read each other's files" in error_of(refused).cause
    assert "install bubblewrap" in error_of(refused).remedy
    assert api.job(running.id).state == "running"
    reason = api.client.get(f"{JOBS}/{waiting.id}/why").json()
    assert reason["cause"] == "not-isolated"
    assert "install bubblewrap" in reason["summary"]
    assert "install bubblewrap" in api.job(waiting.id).reason


def test_work_starts_again_when_one_person_is_left(api: Api) -> None:
    without_sandbox(api)
    add_user(api, "bob")
    change = {"disabled": True}
    assert api.client.patch("/api/v1/users/bob", json=change).json()["warning"] == ""
    job = api.submit()
    assert api.job(job.id).state == "running"
    enabled = api.client.patch("/api/v1/users/bob", json={"disabled": False}).json()
    assert "no job starts from now on" in enabled["warning"]


def test_programs_with_accounts_are_no_people(api: Api) -> None:
    without_sandbox(api)
    add_user(api, "robot", service=True)
    assert api.job(api.submit().id).state == "running"


@pytest.mark.parametrize("mode", [SandboxMode.OFF, SandboxMode.PREFERRED])
def test_whoever_runs_the_server_may_say_that_jobs_need_not_be_kept_apart(api: Api, mode: SandboxMode) -> None:
    without_sandbox(api, mode=mode)
    made = add_user(api, "bob")
    assert "jobs can read each other's files" in made["warning"]
    assert ("without --sandbox off" in made["warning"]) == (mode is SandboxMode.OFF)
    assert api.job(api.submit().id).state == "running"


def test_with_a_sandbox_a_second_person_changes_nothing(api: Api) -> None:
    assert add_user(api, "bob")["warning"] == ""
    assert api.job(api.submit().id).state == "running"


def test_a_run_without_a_sandbox_is_marked_wherever_it_is_shown(api: Api) -> None:
    without_sandbox(api, mode=SandboxMode.OFF)
    api.world.confinement = Confinement(False, LimitKind.PROCESS, network=NetworkScope.HOST, memory_by_kernel=True)
    job = api.submit()
    shown = api.job(job.id)
    assert (shown.unsandboxed, shown.limited_by, shown.network) == (True, "process", "host")
    assert shown.memory_by_kernel
    assert "unsandboxed" in api.client.get(f"{JOBS}/{job.id}/why").json()["summary"]
    assert api.client.get("/api/v1/nodes").json()["nodes"][0]["unsandboxed"] == "bubblewrap is not installed"
    (task,) = api.world.running
    api.engine.finish(task)
    ended = api.job(job.id)
    assert (ended.state, ended.unsandboxed) == ("succeeded", True)


# ---- whom tasks run as ------------------------------------------------------------------------------------------


@pytest.fixture
def chowned(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Who would have been given which file, were we root."""
    given: dict[str, int] = {}
    monkeypatch.setattr(identities.os, "chown", lambda path, uid, gid: given.__setitem__(Path(path).name, uid))
    return given


def isolation_of(api: Api, rule: RunAsFile) -> Isolation:
    return Isolation(AS_ROOT, api.security.accounts, "ada", api.state_dir, rule)


def test_who_adds_a_person_whose_account_cannot_come_to_its_jobs_is_told(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation_rules, "private_directories", lambda: ())
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    isolation = Isolation(AS_ROOT, api.security.accounts, "ada", closed / "state")
    assert isolation.warning == "", "there is one person"
    add_user(api, "bob")
    assert isolation.warning.startswith("jobs of all others than ada fail: their accounts may not enter /")
    assert "chmod o+x /" in isolation.warning
    monkeypatch.setattr(isolation_rules, "private_directories", lambda: (closed,))
    assert isolation.warning == ""


def test_everybody_but_the_owner_runs_under_a_number_of_their_own_for_good(api: Api, chowned: dict[str, int]) -> None:
    isolation = isolation_of(api, RunAsFile(range="300001-300002"))
    assert isolation.identity_of("ada") is None
    bob, eve = isolation.identity_of("bob"), isolation.identity_of("eve")
    assert bob is not None
    assert eve is not None
    assert (bob.uid, eve.uid) == (300_001, 300_002)
    assert bob.home == str(api.state_dir / "homes" / "bob")
    assert chowned == {"bob": 300_001, "eve": 300_002}
    again = isolation_of(api, RunAsFile(range="300001-300009")).identity_of("bob")
    assert again == bob
    with pytest.raises(UnavailableError, match=r"widen run_as\.range"):
        isolation.identity_of("max")


def test_the_number_of_an_account_of_the_machine_is_never_given(
    api: Api, chowned: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.server.auth.isolation.is_taken", lambda number: number == 300_001)
    bob = isolation_of(api, RunAsFile(range="300001-300002")).identity_of("bob")
    assert bob is not None
    assert bob.uid == 300_002


def test_with_accounts_of_the_machine_those_without_one_are_told_before_they_wait(api: Api) -> None:
    isolation = isolation_of(api, RunAsFile(users="unix"))
    isolation.check("ada")
    with pytest.raises(NotFoundError, match="has no account on this machine; make one with `useradd"):
        isolation.check("nobody-is-called-so")
    with pytest.raises(NotFoundError, match="one of the machine's own"):
        isolation.check("daemon")


def test_where_all_run_as_the_server_nobody_has_a_number(api: Api) -> None:
    api.security.accounts.add_user(User("bob"))
    assert isolation_of(api, RunAsFile(users="server")).identity_of("bob") is None


@pytest.fixture
def one_account(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the account as which a server that is not root runs everything, also for a second person."""
    home = tmp_path / "home-of-ada"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    api.isolation.apart = IsolationLevel(SandboxMode.AUTO, Sandbox("bwrap", ()))
    add_user(api, "bob")
    return home


def test_with_one_account_for_all_a_second_person_has_a_home_apart_and_the_owner_all_of_it(
    api: Api, one_account: Path
) -> None:
    assert api.isolation.account_of("ada") is None
    bob = api.isolation.account_of("bob")
    assert bob is not None
    assert bob.environment == {"HOME": str(api.state_dir / "homes" / "bob")}
    assert one_account in bob.hidden
    api.client.patch("/api/v1/users/bob", json={"disabled": True})
    assert api.isolation.account_of("bob") is None


def test_with_one_account_for_all_only_its_owner_names_what_lies_in_its_home(api: Api, one_account: Path) -> None:
    (one_account / "set").touch()
    (one_account.parent / "link").symlink_to(one_account)
    for path in (one_account, one_account / "set", one_account.parent / "link" / "set"):
        file = JobFile(command="work", data={"d": str(path)})
        with pytest.raises(InvalidInputError, match="is ada's own: jobs on this server run as the account of ada"):
            api.isolation.check_paths(file, "bob", lambda queue, path: True)
        api.isolation.check_paths(file, "ada", lambda queue, path: True)
    for named in ({"workdir": str(one_account)}, {"output": str(one_account / "out")}):
        with pytest.raises(InvalidInputError, match="ada's own"):
            api.isolation.check_paths(JobFile(command="work", **named), "bob", lambda queue, path: True)


def test_with_one_account_for_all_others_write_where_the_configuration_lists_it(
    api: Api, one_account: Path, tmp_path: Path
) -> None:
    file = JobFile(command="work", output=str(tmp_path / "out"))
    api.isolation.check_paths(file, "bob", lambda queue, path: path == tmp_path / "out")
    with pytest.raises(InvalidInputError, match="may be ada's own") as refused:
        api.isolation.check_paths(file, "bob", lambda queue, path: False)
    assert "have an admin list the folder" in refused.value.remedy


def test_a_job_runs_nowhere_in_the_servers_own_state_but_in_its_users_home(api: Api, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for odd in (tmp_path / "state", tmp_path / "state/homes/other", tmp_path / "link/jobs", tmp_path / "circle"):
        answer = api.client.post(JOBS, json={"command": "work", "workdir": str(odd)})
        assert answer.status_code == 422, odd
        assert f"the working directory {odd} l" in error_of(answer).cause
    for good in (tmp_path, tmp_path / "state/homes/ada", Path("/")):
        api.submit(workdir=str(good))
    moved = tmp_path / "moved"
    moved.mkdir()
    assert api.isolation.working_folder(str(moved), "ada") == moved
    moved.rmdir()
    moved.symlink_to(tmp_path / "state")
    with pytest.raises(InvalidInputError, match="own state"):
        api.isolation.working_folder(str(moved), "ada")
