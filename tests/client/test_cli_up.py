"""``pond up``: what another server has is said before anything large is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from millpond.client.cli.commands.server import background
from millpond.client.cli.main import cli
from millpond.model.errors import UnavailableError
from millpond.server.http.listener import listen
from millpond.server.startup import process
from millpond.server.state_dir import StateDir


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
