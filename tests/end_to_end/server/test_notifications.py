"""Mail to users of a real server, through a real mail server that is down at times; the server is killed, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_pond import Pond, until

from mail_catcher import MailCatcher, catching
from millpond.client.sdk import Client
from millpond.specs.api.events import DeliveryInfo
from own_address import own_address

pytestmark = pytest.mark.long


@pytest.fixture
def catcher() -> MailCatcher:
    return MailCatcher(own_address())  # where its port stays free while it is down


def configured(folder: Path, catcher: MailCatcher) -> Path:
    """A configuration that names the mail server, which has a port from now on."""
    with catching(catcher):
        pass
    config = folder / "cluster.yaml"
    mail = f"{{host: {catcher.host}, port: {catcher.port}, encryption: none, sender: pond@example.org}}"
    config.write_text(f"notifications: {{mail: {mail}}}\n")
    return config


@pytest.fixture
def pond(tmp_path: Path, catcher: MailCatcher) -> Iterator[Pond]:
    config = configured(tmp_path, catcher)
    made = Pond(tmp_path / "state")
    made.up("--config", str(config))
    yield made
    made("down")


def confirm_address(pond: Pond, catcher: MailCatcher) -> None:
    assert pond("notify", "mail", "ada@example.org").returncode == 0
    code = re.search(r"\b\d{8}\b", catcher.texts()[-1])
    assert code is not None
    assert pond("notify", "confirm", code[0]).stdout == "mail comes to ada@example.org\n"


def waiting(pond: Pond) -> list[DeliveryInfo]:
    with Client(state_dir=pond.state_dir) as client:
        return [delivery for delivery in client.webhooks.deliveries() if delivery.state == "waiting"]


def test_a_job_that_fails_is_mailed_though_the_mail_server_was_down_and_the_server_was_killed(
    pond: Pond, catcher: MailCatcher, tmp_path: Path
) -> None:
    with catching(catcher):
        confirm_address(pond, catcher)
    assert pond("notify", "on", "job.failed").returncode == 0
    before = len(catcher.mails)
    jobs = []
    for _ in range(3):
        done = pond("run", "--detach", "--", "sh", "-c", "exit 3")
        jobs.append(done.stdout.strip())
    assert pond("wait", *jobs).returncode == 3
    until(lambda: len(waiting(pond)) == 3 and all(delivery.tries for delivery in waiting(pond)))
    pond.kill_server()
    with catching(catcher):
        pond.up("--config", str(tmp_path / "cluster.yaml"))
        until(lambda: not waiting(pond))
    mails = catcher.mails[before:]
    assert all(mail["Message-ID"] for mail in mails)
    assert 1 <= len(mails) <= 2, "one is sent twice at most"
    assert all(f"{job} of " in "".join(catcher.texts()[before:]) for job in jobs), "none is lost"
    assert "no place" not in pond("notify").stderr
