"""Services as their callers see them: none of their requests is lost, whatever becomes of the replicas behind."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from real_pond import PATIENCE_S, Pond, until

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).with_name("answering_program.py")


class Site:
    """Services on a real server."""

    def __init__(self, pond: Pond) -> None:
        self.pond = pond
        self.folder = pond.state_dir.parent
        self.program = shutil.copy(PROGRAM, self.folder)
        self.http = httpx2.Client(timeout=PATIENCE_S)
        self.connect()

    def connect(self) -> None:
        """Find the server, which may be another one than before."""
        left = json.loads((self.pond.state_dir / "server.json").read_text())
        self.url = left["url"]
        self.http.headers["Authorization"] = f"Bearer {Path(left['token_path']).read_text().strip()}"

    def file(self, answer: str, fields: str, name: str = "web") -> str:
        """A job file of a service that answers so, with memory for the stacks of a thread for each connection."""
        path = self.folder / f"{name}-{answer}.yaml"
        command = f"command: [{sys.executable}, {self.program}, {answer}]"
        path.write_text(f"kind: service\nname: {name}\nmemory: 512MiB\n{fields}\n{command}\n")
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
    job = site.submit("one", fields, name="rests")
    assert site.get(job).text == "one", "the first request waits for the first replica"
    until(lambda: site.info(job)["scaled_to_zero"] and site.info(job)["state"] == "queued")
    assert "scaled to zero: no request for 1 second; the next one wakes it" in site.pond("why", job).stdout
    assert all(task["state"] == "queued" for task in site.info(job)["tasks"]), "it holds no card"
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: site.get(job), range(12)))
    held = [answer for answer in answers if answer.status_code == 200]
    turned_away = [answer for answer in answers if answer.status_code == 503]
    assert len(held) >= 8
    assert len(held) + len(turned_away) == 12
    assert {answer.text for answer in held} == {"one"}
    with Load(site, job, callers=1):  # as it soon rests again
        until(lambda: re.search(r"^  +replicas   [12] of [12] ready$", site.pond("get", job).stdout, re.MULTILINE))
    for answer in turned_away:
        assert "8 requests wait for one" in answer.json()["error"]["cause"]
        assert answer.headers["retry-after"] == "2"
    history = site.pond("events", job).stdout
    assert "no request for 1 second" in history
    assert "after a request woke it" in history
    assert site.pond("stop", job).returncode == 0


@pytest.fixture
def small(pond: Pond) -> Iterator[Site]:
    """One card, in a pool that suspends."""
    config = pond.state_dir.parent / "config.yaml"
    config.write_text("pools:\n- {name: default, suspends: true}\n")
    done = pond("up", "--detach", "--fake-gpus", "1x1:V100-32GB", "--config", str(config))
    assert done.returncode == 0, done.stderr
    site = Site(pond)
    yield site
    site.http.close()


def test_a_service_that_rests_swapped_comes_back_with_its_processes_and_who_ranks_below_makes_room(small: Site) -> None:
    scale = "scale: {idle_after: 1s, rest: swap}"
    job = small.submit("one", f"gpus: 1\ntasks: {{min: 0, max: 1}}\nserve: {{ready: /ready, {scale}}}")
    assert small.get(job).text == "one"
    run = small.info(job)["attempt"]
    until(lambda: "swapped to host memory (scaled-to-zero)" in small.info(job)["suspension"])
    below = submit(small, "below", "priority: low")
    until(lambda: small.info(below)["state"] == "running")
    assert small.get(job).text == "one", "the request waits for its return"
    # Told by their histories: it may answer before the word that it is back, and soon it rests again.
    until(lambda: "after a request woke it; 1 request waited" in small.pond("events", job).stdout)
    assert small.info(job)["attempt"] == run, "it is the same run"
    assert "suspend it (swap)" in small.pond("events", below).stdout
    until(lambda: small.info(below)["state"] == "running")

    assert small.pond("stop", below).returncode == 0
    above = submit(small, "above", "priority: high\npreemptible: false")
    until(lambda: small.info(above)["state"] == "running")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(small.get, job)
        until(lambda: small.info(job)["requests_wait_until"])
        assert 60 < small.info(job)["requests_wait_until"] - time.time() < 120
        assert "requests wait for a replica, the first until" in small.pond("get", job).stdout
        assert small.pond("stop", above).returncode == 0
        assert answer.result(timeout=PATIENCE_S).text == "one"
    assert small.info(job)["requests_wait_until"] is None


def submit(site: Site, name: str, fields: str) -> str:
    """A job that holds the card."""
    path = site.folder / f"{name}.yaml"
    path.write_text(f"name: {name}\ngpus: 1\nmemory: 64MiB\n{fields}\ncommand: sleep 600\n")
    done = site.pond("submit", str(path))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Load:
    """Requests without a pause, until it is left; what was wrong with any of them."""

    def __init__(self, site: Site, job: str, callers: int = 3) -> None:
        self._where = (site, job)
        self.answers: list[str] = []
        self.faults: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(number,)) for number in range(callers)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self, number: int) -> None:
        site, job = self._where
        while not self._over.is_set():
            try:
                answer = site.get(job, "slow" if number == 0 else "")
            except httpx2.TransportError as error:
                self.faults.append(repr(error))
                continue
            if answer.status_code != 200:
                self.faults.append(f"{answer.status_code} {answer.text}")
            self.answers.append(answer.text)
            time.sleep(0.02)


def settled(site: Site, job: str) -> list[tuple[int, str]]:
    """The revisions of a service with their states, once none is on its way."""
    found: list[tuple[int, str]] = []

    def is_settled() -> bool:
        revisions = site.http.get(f"{site.url}/api/v1/jobs/{job}/service").json()["revisions"]
        found[:] = [(each["number"], each["phase"]) for each in revisions]
        return not {"rolling", "undoing", "canary"} & {phase for _, phase in found}

    until(is_settled)
    return found


def test_an_update_replaces_all_replicas_and_loses_no_request(site: Site) -> None:
    job = site.submit("old", "tasks: 2\nserve: {ready: /ready}")
    until(lambda: site.get(job).status_code == 200)
    with Load(site, job) as load:
        until(lambda: "old" in load.answers)
        done = site.pond("apply", "-y", site.file("new", "tasks: 2\nserve: {ready: /ready}"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == f"{job}.r2"
        assert "command.2: old -> new" in done.stderr
        assert settled(site, job) == [(1, "retired"), (2, "current")]
        until(lambda: site.info(job)["state"] == "cancelled")
        until(lambda: "new" in load.answers)
    assert load.faults == []
    assert {"old", "new"} == set(load.answers)
    assert site.get(job).text == "new", "the address stays"
    assert "rev. 2" in site.pond("get", f"{job}.r2").stdout
    assert "nothing changes" in site.pond("apply", "-y", site.file("new", "tasks: 2\nserve: {ready: /ready}")).stderr
    back = site.pond("rollout", "undo", job)
    assert "revision 3 is rolling" in back.stdout, back.stderr
    assert settled(site, job) == [(1, "retired"), (2, "retired"), (3, "current")]
    assert site.get(job).text == "old"
    for act in ("suspend", "resume"):  # of the revision that stands for the service now
        done = site.pond(act, job)
        assert done.returncode == 0, done.stderr
    assert site.pond("stop", job).returncode == 0
    until(lambda: site.info(f"{job}.r3")["state"] == "cancelled")
    assert site.get(job).status_code == 410


def test_an_update_that_does_not_come_up_is_withdrawn_and_nobody_notices(site: Site) -> None:
    job = site.submit("fine", "serve: {ready: /ready}", name="steady")
    until(lambda: site.get(job).status_code == 200)
    with Load(site, job) as load:
        late = site.file("never", "serve: {ready: /ready, rollout: {deadline: 1s}}", name="steady")
        assert site.pond("apply", "-y", late).returncode == 0
        assert settled(site, job) == [(1, "current"), (2, "undone")]
        broken = site.file("broken", "serve: {ready: /ready}", name="steady")
        assert site.pond("apply", "-y", broken).returncode == 0
        assert settled(site, job) == [(1, "current"), (2, "undone"), (3, "undone")]
    assert load.faults == []
    assert set(load.answers) == {"fine"}
    told = site.pond("rollout", "status", job, "-o", "json").stdout
    whys = [each["told"] for each in json.loads(told)["revisions"]]
    assert whys[1:] == ["no further replica was ready within 1s", "its job has ended: exit code 1"]
    assert site.pond("stop", job).returncode == 0


def test_a_canary_gets_its_part_and_is_promoted_though_the_server_is_killed(site: Site) -> None:
    job = site.submit("wide", "serve: {ready: /ready}", name="canary")
    until(lambda: site.get(job).status_code == 200)
    narrow = site.file("narrow", "serve: {ready: /ready}", name="canary")
    assert site.pond("apply", "-y", "--canary", "30", narrow).returncode == 0
    until(lambda: "narrow" in {site.get(job).text for _ in range(20)})
    answers = [site.get(job).text for _ in range(450)]  # so many that lots fall otherwise once in a billion times
    assert 75 <= answers.count("narrow") <= 195, "30 % of the requests"
    assert "canary (30 %)" in site.pond("rollout", "status", job).stdout
    assert site.pond("rollout", "promote", job).returncode == 0
    site.pond.kill_server()
    site.pond.up()
    site.connect()
    assert settled(site, job) == [(1, "retired"), (2, "current")]
    assert {site.get(job).text for _ in range(5)} == {"narrow"}
    assert site.pond("stop", job).returncode == 0
