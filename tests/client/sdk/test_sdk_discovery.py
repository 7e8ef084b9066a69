"""Which server a client talks to."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext

import pytest

from millpond.client.sdk import default_state_dir, find_server
from millpond.client.sdk.transport.discovery import Address, read_server_file
from millpond.model.errors import InvalidInputError, UnavailableError

NO_PROCESS = 2**22 + 1
"""Above what the kernel gives to any process."""


@pytest.fixture
def left_by_a_server(tmp_path):
    """A state directory as a running server leaves it."""
    (tmp_path / "token").write_text("secret\n")
    body = {"url": "http://127.0.0.1:5000", "pid": 1, "token_path": str(tmp_path / "token"), "version": "0.1"}
    (tmp_path / "server.json").write_text(json.dumps(body))
    return tmp_path


def test_the_server_of_a_state_directory_is_found(left_by_a_server):
    found = find_server(state_dir=left_by_a_server)
    assert (found.url, found.token) == ("http://127.0.0.1:5000", "secret")


def test_the_environment_names_a_server(monkeypatch):
    monkeypatch.setenv("MILLPOND_URL", "http://pool.example:80/")
    monkeypatch.setenv("MILLPOND_TOKEN", "t")
    assert find_server().url == "http://pool.example:80"


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "http://", "http://[::1", "http://a b", "http://x:99999", "http://x:1\ny", f"http://{'a' * 64}", "a?b"],
)
def test_what_is_no_address_is_refused_as_that(monkeypatch, url):
    monkeypatch.setenv("MILLPOND_URL", url)
    monkeypatch.setenv("MILLPOND_TOKEN", "t")
    with pytest.raises(InvalidInputError, match="is not a server's address"):
        find_server()


def test_a_token_may_end_a_line_and_has_no_other_characters_than_tokens_have(monkeypatch):
    monkeypatch.setenv("MILLPOND_URL", "pool.example:80")
    monkeypatch.setenv("MILLPOND_TOKEN", "t\r\n")
    assert find_server() == Address("http://pool.example:80", "t")
    for token in ("a\nb", "\u00e9"):
        with pytest.raises(InvalidInputError, match="characters that no token has"):
            find_server("http://x", token)


def test_a_named_state_directory_beats_the_environment(monkeypatch, left_by_a_server):
    monkeypatch.setenv("MILLPOND_URL", "http://pool.example")
    monkeypatch.setenv("MILLPOND_TOKEN", "t")
    assert find_server(state_dir=left_by_a_server).token == "secret"


def test_an_address_without_a_token_asks_for_one(monkeypatch):
    monkeypatch.setenv("MILLPOND_URL", "http://pool.example")
    with pytest.raises(UnavailableError, match="MILLPOND_TOKEN"):
        find_server()


@pytest.mark.parametrize("there", [True, False])
def test_without_a_server_the_remedy_is_pond_up(tmp_path, there):
    directory = tmp_path if there else tmp_path / "missing"
    with pytest.raises(UnavailableError, match="pond up"):
        find_server(state_dir=directory)


@pytest.mark.parametrize("is_killed", [True, False])
def test_between_a_leader_and_the_one_that_stood_by_the_remedy_is_to_wait(left_by_a_server, is_killed):
    leader, standby = (left_by_a_server / name for name in ("server.json", "standby.json"))
    body = json.loads(leader.read_text())
    standby.write_text(json.dumps(body | {"url": "http://127.0.0.1:5001", "pid": os.getpid()}))
    assert find_server(state_dir=left_by_a_server).url == "http://127.0.0.1:5000", "the leader lives"
    if is_killed:
        leader.write_text(json.dumps(body | {"pid": NO_PROCESS}))
    else:
        leader.unlink()
    with pytest.raises(UnavailableError, match=r"5001 takes over; try again in some seconds"):
        find_server(state_dir=left_by_a_server)
    standby.write_text(json.dumps(body | {"pid": NO_PROCESS}))
    with nullcontext() if is_killed else pytest.raises(UnavailableError, match="pond up"):
        find_server(state_dir=left_by_a_server)


@pytest.mark.parametrize("text", [b"", b'{"url": 1', b"\0" * 512, b"{}"])
def test_a_server_file_that_a_power_cut_broke_keeps_no_server_from_starting(tmp_path, text):
    (tmp_path / "server.json").write_bytes(text)
    assert read_server_file(tmp_path) is None
    with pytest.raises(UnavailableError, match="no Millpond server is running here; start one with `pond up`"):
        find_server(state_dir=tmp_path)


def test_a_server_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "server.json").mkdir()
    with pytest.raises(UnavailableError, match=r"server\.json cannot be read"):
        find_server(state_dir=tmp_path)


def test_a_token_that_cannot_be_read_is_named(left_by_a_server):
    (left_by_a_server / "token").unlink()
    with pytest.raises(UnavailableError, match="API token"):
        find_server(state_dir=left_by_a_server)


def test_the_state_directory_follows_the_users_state_home(monkeypatch, tmp_path):
    monkeypatch.delenv("MILLPOND_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_dir() == tmp_path / "millpond"
