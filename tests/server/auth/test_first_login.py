"""How the first person from elsewhere gets in, and that one person on one machine needs no login."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from auth_world import API, PASSWORD, AuthWorld

from millpond.server.auth.owner import owner_name, prepare_first_login


@pytest.fixture
def empty(tmp_path: Path) -> AuthWorld:
    """A server on which nobody but its owner has an account."""
    return AuthWorld(tmp_path)


def prepare(world: AuthWorld, tmp_path: Path, is_reached: bool = True) -> Path | None:
    return prepare_first_login(world.security, "olga", tmp_path, is_reached)


def test_the_owner_of_the_state_directory_needs_no_login(empty: AuthWorld) -> None:
    owner = empty.client("olga")
    assert owner.get(f"{API}/whoami").json()["admin"]
    job = owner.post(f"{API}/jobs", json={"command": "x"}).json()
    assert (job["user"], job["queue"]) == ("olga", "default")
    empty.close()


def test_who_listens_beyond_the_machine_gets_an_invitation_that_works_once(empty: AuthWorld, tmp_path: Path) -> None:
    path = prepare(empty, tmp_path)
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    wish = {"invitation": path.read_text().strip(), "new_password": PASSWORD}
    assert empty.client().post(f"{API}/login", json=wish).json()["user"] == "olga"
    assert empty.client().post(f"{API}/login", json=wish).status_code == 401
    assert prepare(empty, tmp_path) is None, "somebody has a password now"
    assert not path.exists()
    empty.close()


def test_a_server_for_its_own_machine_alone_needs_none(empty: AuthWorld, tmp_path: Path) -> None:
    assert prepare(empty, tmp_path, is_reached=False) is None
    empty.close()


def test_the_invitation_of_an_earlier_start_is_dead(empty: AuthWorld, tmp_path: Path) -> None:
    path = prepare(empty, tmp_path)
    assert path is not None
    earlier = path.read_text().strip()
    prepare(empty, tmp_path)
    wish = {"invitation": earlier, "new_password": PASSWORD}
    assert empty.client().post(f"{API}/login", json=wish).status_code == 401
    empty.close()


@pytest.mark.parametrize(("login", "name"), [("ada", "ada"), ("AD\\ada b", "AD-ada-b"), ("é", "owner"), ("-x-", "x")])
def test_any_name_of_a_machine_becomes_a_name_of_an_account(
    login: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.server.auth.owner.getpass.getuser", lambda: login)
    assert owner_name() == name
