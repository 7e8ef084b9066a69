"""The user's own settings of ssh, to which those of jobs are added."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.client.sdk.resources import ssh_config


def test_settings_of_another_encoding_stay_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    own = b"# le caf\xe9\nHost caf\xc3\xa9\n    User eve\n"
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_bytes(own)
    assert not ssh_config.is_included()
    path = ssh_config.include()
    assert ssh_config.is_included()
    assert path.read_bytes() == f'Include "{tmp_path}/settings/millpond/ssh/config"\n\n'.encode() + own
