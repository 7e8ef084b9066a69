"""Where the server is root, what a user names is looked at with their rights: nothing is told of what others closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from auth_world import API, AuthWorld, error_of

from millpond.model.errors import InvalidInputError
from millpond.node.host.file_rights import with_rights_of
from millpond.node.sandbox.sandbox import Sandbox
from millpond.server.auth.isolation import IsolationLevel, SandboxMode

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can look at files as others")


@pytest.fixture
def place(world: AuthWorld) -> Iterator[Path]:
    """``open/`` for everybody, ``closed/`` for root alone though what lies in it is open, and links into it."""
    world.isolation.apart = IsolationLevel(SandboxMode.AUTO, Sandbox("bwrap", ()), is_root=True)
    with TemporaryDirectory(prefix="paths-") as made:  # pytest's own are closed to others
        place = Path(made)
        place.chmod(0o755)
        for folder in (place / "open", place / "closed/inner"):
            folder.mkdir(parents=True)
            folder.chmod(0o777)
        (place / "closed/inner/file").write_text("of root")
        (place / "closed").chmod(0o700)
        (place / "link").symlink_to(place / "closed/inner")
        yield place


def answer_to(world: AuthWorld, user: str, path: Path, field: str) -> tuple[int, str]:
    value = {"a": str(path)} if field == "data" else str(path)
    answer = world.client(user).post(f"{API}/jobs", json={"command": "x", field: value})
    words = "" if answer.status_code == 201 else f"{error_of(answer).cause}; {error_of(answer).remedy}"
    return answer.status_code, words.replace(str(path), "HERE")


@pytest.mark.parametrize("field", ["data", "output", "workdir"])
def test_an_answer_does_not_tell_what_lies_where_the_user_may_not_look(
    world: AuthWorld, place: Path, field: str
) -> None:
    hidden = [
        answer_to(world, "max", place / path, field)
        for path in ("closed/inner", "closed/inner/file", "closed/missing", "link", "link/file", "link/missing")
    ]
    assert len(set(hidden)) == 1, hidden
    assert hidden[0][0] == (201 if field == "output" else 422)
    assert answer_to(world, "max", place / "open", field)[0] == 201


def test_a_working_directory_that_is_itself_closed_is_refused_at_submission(world: AuthWorld, place: Path) -> None:
    status, words = answer_to(world, "max", place / "closed", "workdir")
    assert (status, "may not go to HERE" in words) == (422, True)
    assert answer_to(world, "olga", place / "closed", "workdir")[0] == 201


def test_the_owner_whose_jobs_run_as_root_may_name_what_root_may_read(world: AuthWorld, place: Path) -> None:
    assert answer_to(world, "olga", place / "closed/inner", "data")[0] == 201
    assert answer_to(world, "olga", place / "closed/missing", "data")[0] == 422


def test_what_the_kernel_lets_nobody_else_follow_is_no_defect(world: AuthWorld, place: Path) -> None:
    for path in ("/proc/1/root/etc", "/proc/1/cwd", "/proc/self/fd/0", "/proc/1/root/../root/etc"):
        for field in ("data", "output", "workdir"):
            assert answer_to(world, "max", Path(path), field)[0] in (201, 422), (path, field)


def test_a_start_follows_no_link_that_was_laid_since_into_what_the_user_may_not_enter(
    world: AuthWorld, place: Path
) -> None:
    identity = world.isolation.identity_of("max")
    assert world.isolation.working_folder(str(place / "open"), "max") == place / "open"
    assert world.provisioning.rules.readable("vision", str(place / "open"), identity) == place / "open"
    (place / "open").rename(place / "was-open")
    (place / "open").symlink_to(place / "closed/inner")
    with pytest.raises(InvalidInputError, match="which may not go to"):
        world.isolation.working_folder(str(place / "open"), "max")
    with pytest.raises(InvalidInputError, match="there is nothing at the data path"):
        world.provisioning.rules.readable("vision", str(place / "open"), identity)


def test_a_link_in_a_home_leads_no_further_than_its_user_gets(world: AuthWorld, place: Path) -> None:
    identity = world.isolation.identity_of("max")
    assert identity is not None
    home = Path(identity.home)
    (home / "deep").mkdir()
    (home / "closed").symlink_to(place / "closed/inner")
    (home / "open").symlink_to(place / "open")
    (home / "state").symlink_to("../../secrets")
    assert world.isolation.working_folder(str(home / "deep"), "max") == home / "deep"
    assert world.isolation.working_folder(str(home / "open"), "max") == place / "open"
    with pytest.raises(InvalidInputError, match="which may not go to"):
        world.isolation.working_folder(str(home / "closed"), "max")
    with pytest.raises(InvalidInputError, match="which may not go to"):
        world.isolation.working_folder(str(home / "state"), "max")


def test_the_rights_of_others_end_with_what_was_done_with_them(world: AuthWorld, place: Path) -> None:
    identity = world.isolation.identity_of("max")
    assert identity is not None
    own = place / "open/own"
    with_rights_of(identity, own.touch)
    assert (own.stat().st_uid, own.stat().st_gid) == (identity.uid, identity.gid)
    with pytest.raises(PermissionError):
        with_rights_of(identity, (place / "closed/inner/file").read_text)
    assert (place / "closed/inner/file").read_text() == "of root"
    groups = with_rights_of(identity, lambda: Path("/proc/thread-self/status").read_text())
    assert f"Groups:\t{identity.gid} \n" in groups
