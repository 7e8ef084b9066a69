"""Logging in at a provider with real programs: `pond login --oidc`, a browser, and a server that learns of it late."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import httpx2
import pytest
from real_pond import FAKE_GPUS, PATIENCE_S, Pond, until

from oidc_provider import CLIENT, SECRET, FakeProvider, served

pytestmark = pytest.mark.long


def form_of(page: httpx2.Response) -> dict[str, str]:
    """The hidden fields of a page's form."""
    assert page.status_code == 200, page.text
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))


def test_somebody_without_an_account_logs_in_by_a_code_and_runs_a_job(pond: Pond, tmp_path: Path) -> None:
    config, secret, provider = tmp_path / "pool.yaml", tmp_path / "secret", FakeProvider(time.time)
    config.write_text("pools: []\n")
    secret.write_text(SECRET)
    done = pond("up", "--detach", "--fake-gpus", FAKE_GPUS, "--config", str(config))
    assert done.returncode == 0, done.stderr
    url = json.loads((pond.state_dir / "server.json").read_text())["url"]
    assert pond("group", "add", "vision").returncode == 0

    with (
        served(provider),
        httpx2.Client(base_url=url, trust_env=False, follow_redirects=False, timeout=PATIENCE_S) as browser,
    ):
        config.write_text(
            f"listen: {{public_url: '{url}'}}\n"
            f"oidc: {{issuer: '{provider.issuer}', client_id: {CLIENT}, client_secret_file: {secret},\n"
            "  groups: {people: {group: vision}}}\n"
        )
        os.kill(pond.server_pid, signal.SIGHUP)
        until(lambda: browser.get("/oidc/code").status_code == 303)

        elsewhere = Pond(tmp_path / "elsewhere")
        del elsewhere.env["MILLPOND_STATE"]
        elsewhere.env |= {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state-home")}
        login = elsewhere.start("login", url, "--oidc", "--no-browser")
        assert login.stdout is not None
        code = login.stdout.readline().strip()
        page = browser.get(provider.log_in(browser.get("/oidc/code").headers["location"]))
        asked = browser.post("/oidc/code", data=form_of(page) | {"code": code}, headers={"Origin": url})
        assert "pond login on" in asked.text
        allowed = browser.post("/oidc/code", data=form_of(asked) | {"answer": "allow"}, headers={"Origin": url})
        assert "goes on by itself" in allowed.text
        told, complaints = login.communicate(timeout=PATIENCE_S)
    assert login.returncode == 0, complaints
    assert "as ada" in told
    assert "member of vision" in elsewhere("whoami").stdout
    ran = elsewhere("run", "--workdir", "/", "--", "echo", "hello")
    assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran.stderr
    assert SECRET not in (pond.state_dir / "server.log").read_text()
