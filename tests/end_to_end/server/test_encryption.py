"""A server that encrypts: here, from elsewhere, through a renewal of its certificate."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
from pathlib import Path

import pytest
from real_pond import FAKE_GPUS, PATIENCE_S, Pond, until

from certificates import make_certificate

pytestmark = pytest.mark.long


def end_of_certificate(port: int, trusted: Path) -> str:
    """Until when the certificate that a new connection is shown is valid."""
    context = ssl.create_default_context(cafile=str(trusted))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        shown = connection.getpeercert()
        assert shown is not None
        return str(shown["notAfter"])


def shows_another(port: int, trusted: Path, before: str) -> bool:
    """Whether new connections are shown another certificate, which ``trusted`` vouches for."""
    try:
        return end_of_certificate(port, trusted) != before
    except ssl.SSLError:
        return False  # the old one still


def test_everything_works_over_tls_and_a_stranger_is_told_how_to_trust_it(pond: Pond, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path / "tls", name="127.0.0.1", days=90)
    config = tmp_path / "pool.yaml"
    config.write_text(f"listen: {{certificate: {certificate}, key: {key}}}\n")
    done = pond("up", "--detach", "--fake-gpus", FAKE_GPUS, "--config", str(config))
    assert done.returncode == 0, done.stderr
    left = json.loads((pond.state_dir / "server.json").read_text())
    assert left["url"].startswith("https://127.0.0.1:")
    done = pond("run", "--", "echo", "over the wire")
    assert (done.returncode, done.stdout) == (0, "over the wire\n"), done.stderr
    job = pond.printed("run", "--detach", "--", "sleep", "600")
    until(lambda: pond.job(job)["state"] == "running")
    assert pond("exec", job, "--", "echo", "inside").stdout == "inside\n"

    del pond.env["MILLPOND_STATE"]
    pond.env |= {"MILLPOND_URL": left["url"], "MILLPOND_TOKEN": Path(left["token_path"]).read_text().strip()}
    for command in (("ps",), ("exec", job, "--", "true")):
        stranger = pond(*command)
        assert stranger.returncode == 2
        assert "is not trusted" in stranger.stderr
        assert "MILLPOND_CA" in stranger.stderr
    pond.env["MILLPOND_CA"] = str(certificate)
    assert pond("stop", job).returncode == 0

    port = int(left["url"].rpartition(":")[2])
    before = end_of_certificate(port, certificate)
    make_certificate(tmp_path / "tls", name="127.0.0.1", days=300)
    os.kill(left["pid"], signal.SIGHUP)
    until(lambda: shows_another(port, certificate, before))
    until(lambda: json.loads((pond.state_dir / "server.json").read_text())["certificate"] != left["certificate"])
    del pond.env["MILLPOND_URL"], pond.env["MILLPOND_TOKEN"], pond.env["MILLPOND_CA"]
    pond.env["MILLPOND_STATE"] = str(pond.state_dir)
    assert pond("ps").returncode == 0, "the certificate that this machine's own commands expect is the new one"
    certificate.write_text("a renewal that was cut off")
    assert pond("ps").returncode == 0, "what counts is what the server shows, whatever lies in the file by now"
    assert "stopped the server" in pond("down").stdout
