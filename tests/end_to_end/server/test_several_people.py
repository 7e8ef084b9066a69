"""Two people on one server, with the real programs: invited, logged in, limited, apart from each other."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from real_pond import PATIENCE_S, POND, Pond

pytestmark = pytest.mark.long


def test_somebody_is_invited_logs_in_works_and_is_written_down(running: Pond, tmp_path: Path) -> None:
    url = json.loads((running.state_dir / "server.json").read_text())["url"]
    assert running("group", "add", "vision", "--jobs", "1").returncode == 0
    invitation = running("user", "add", "eve", "--group", "vision").stdout
    env = {name: value for name, value in running.env.items() if name != "MILLPOND_STATE"}
    env |= {"XDG_CONFIG_HOME": str(tmp_path / "eve"), "XDG_STATE_HOME": str(tmp_path / "nowhere")}

    def eve(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [POND, *arguments], env=env, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, cwd="/"
        )

    hers = running.printed("run", "--detach", "--name", "hidden", "--", "sleep", "600")
    assert "no Millpond server" in eve("ps").stderr
    done = eve("login", url, "--invitation", "--stdin", stdin=f"{invitation}correct horse battery\n")
    assert done.returncode == 0, done.stderr
    assert eve("whoami", "-o", "name").stdout == "eve\n"
    assert eve("run", "--", "echo", "hello").stdout == "hello\n"
    as_whom = eve("run", "--", "sh", "-c", "id -u; cat $MILLPOND_STATE/token; echo $HOME").stdout.split()
    if os.geteuid() == 0:
        assert as_whom[0] == "200000"
        assert as_whom[-1] == str(running.state_dir / "homes" / "eve")
    assert hers not in eve("ps", "-a").stdout
    assert eve("logs", hers).returncode == 4
    assert eve("user", "add", "mallory").returncode == 3
    entries = json.loads(running.printed("audit", "--by", "eve", "-o", "json"))["entries"]
    assert [entry["status"] for entry in entries if entry["verb"] == "change-users"] == [403]
    assert eve("logout").returncode == 0
    assert eve("ps").returncode == 2
