"""Services as their callers see them: none of their requests is lost, whatever becomes of the replicas behind."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from real_pond import Pond, until

PROGRAM = Path(__file__).with_name("answering_program.py")


class Site:
    """Services on a real server."""

    def __init__(self, pond: Pond) -> None:
        self.pond = pond
        self.folder = pond.state_dir.parent
        self.program = shutil.copy(PROGRAM, self.folder)
        self.http = httpx2.Client(timeout=30.0)
        self.connect()

    def connect(self) -> None:
        """Find the server, which may be another one than before."""
        left = json.loads((self.pond.state_dir / "server.json").read_text())
        self.url = left["url"]
        self.http.headers["Authorization"] = f"Bearer {Path(left['token_path']).read_text().strip()}"

    def file(self, answer: str, fields: str, name: str = "web") -> str:
        """A job file of a service that answers so."""
        path = self.folder / f"{name}-{answer}.yaml"
        command = f"command: [{sys.executable}, {self.program}, {answer}]"
        path.write_text(f"kind: service\nname: {name}\nmemory: 64MiB\n{fields}\n{command}\n")
        return str(path)

    def submit(self, answer: str, fields: str, name: str = "web") -> str:
        done = self.pond("submit", self.file(answer, fields, name))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def get(self, job: str, path: str = "") -> httpx2.Response:
        return self.http.get(f"{self.url}/proxy/{job}/{path}")

    def info(self, job: str) -> dict:
        return self.http.get(f"{self.url}/api/v1/jobs/{job}").json()


@pytest.fixture(scope="module")
def site(shared: Pond) -> Iterator[Site]:
    site = Site(shared)
    yield site
    site.http.close()


def test_a_service_at_rest_is_woken_by_requests_and_loses_none(site: Site) -> None:
    fields = "gpus: 1\ntasks: {min: 0, max: 2}\nserve: {ready: /ready, scale: {idle_after: 1s}, hold: {requests: 8}}"
    job = site.submit("one", fields)
    assert site.get(job).text == "one", "the first request waits for the first replica"
    until(lambda: site.info(job)["resting"] and site.info(job)["state"] == "queued")
    assert "scaled to zero: no request for 1 second; the next one wakes it" in site.pond("why", job).stdout
    assert all(task["state"] == "queued" for task in site.info(job)["tasks"]), "it holds no card"
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: site.get(job), range(12)))
    held = [answer for answer in answers if answer.status_code == 200]
    turned_away = [answer for answer in answers if answer.status_code == 503]
    assert len(held) >= 8
    assert len(held) + len(turned_away) == 12
    assert {answer.text for answer in held} == {"one"}
    for answer in turned_away:
        assert "8 requests wait for one" in answer.json()["error"]["cause"]
        assert answer.headers["retry-after"] == "2"
    history = site.pond("events", job).stdout
    assert "no request for 1 second" in history
    assert "after a request woke it" in history
    site.pond("stop", job)
