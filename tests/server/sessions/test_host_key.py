"""The host key of the SSH gateway, and its place to listen."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import pytest

from millpond.model.errors import UnavailableError
from millpond.server.sessions.ssh.listener import HOST_KEY_FILE, host_key_in, open_listener
from millpond.specs.api.accounts.ssh import PublicKey
from millpond.specs.config.listen import SshFile


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    made = host_key_in(tmp_path)
    assert host_key_in(tmp_path) == made
    assert (tmp_path / HOST_KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert PublicKey.parse(made.public).kind == "ssh-ed25519"
    assert "PRIVATE" not in repr(made)


def test_one_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    host_key_in(tmp_path)
    (tmp_path / HOST_KEY_FILE).chmod(0o644)
    with pytest.raises(UnavailableError, match="others may read"):
        host_key_in(tmp_path)
    (tmp_path / HOST_KEY_FILE).chmod(0o600)
    (tmp_path / HOST_KEY_FILE).write_text("nothing")
    with pytest.raises(UnavailableError, match="cannot use the host key"):
        host_key_in(tmp_path)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UnavailableError) as error:
        open_listener(SshFile(port=0), tmp_path)
    assert "millpond[ssh]" in error.value.remedy


def test_an_address_that_cannot_be_used_names_the_section_to_change(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UnavailableError) as error:
        open_listener(SshFile(port=taken.getsockname()[1]), tmp_path)
    assert "ssh in the configuration" in error.value.remedy
