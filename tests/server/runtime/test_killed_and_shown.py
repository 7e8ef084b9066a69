"""Whatever was done before a server is killed, the next one on its state shows the same, and all work ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import Api
from server_world import Clock, World

from millpond.model.states import Outcome

V1 = "/api/v1"
QUEUES = ("default", "vision", "speech")
SPAN_S = (1.0, 30.0, 600.0, 4_000.0)
LATEST_LOOKS = ("/why.start", "/why.position", "/why.nodes", "/why.numbers", "/why.remedy", "/why.summary", ".reason")
"""Of those that wait: what the scheduler said when it was last asked, in a cycle that another one need not repeat."""


class Users:
    """Random requests of users, and what becomes of their work, before and after a kill."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock, self.world = Clock(1_700_000_000.0), World()
        self.api = Api(directory, world=self.world, clock=self.clock)
        self.jobs: list[str] = []
        self.asked: list[str] = []

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer, which is no failure of the server, whatever was asked."""
        answer = self.api.client.request(method, f"{V1}{path}", json=body)
        assert answer.status_code < 500, (method, path, body, answer.text)
        if method != "GET":
            self.asked.append(f"{self.clock.now:.0f} {method} {path} {body}: {answer.status_code} {answer.text[:300]}")
        return answer.json() if answer.content else None

    def settle(self) -> None:
        """All that is under way is handled: starts, their confirmations, and what follows from these."""
        self.clock.now += 1.0
        self.api.loop.wake()
        for _ in range(8):
            self.api.settled()

    # ---- what they do -----------------------------------------------------------------------------------------------

    def act(self) -> None:
        steps: tuple[Callable[[], None], ...] = (self.submit, self.end, self.change, self.operate, self.wait)
        self.random.choices(steps, (9, 9, 10, 2, 2))[0]()

    def submit(self) -> None:
        pick = self.random.choice
        job: dict[str, Any] = {
            "command": "work",
            "name": pick("abc"),
            "gpus": pick((0, 1, 1, 2, 4)),
            "queue": pick(QUEUES),
        }
        job |= pick(
            ({}, {}, {"array": pick((2, 5))}, {"tasks": {"min": 1, "max": 3}, "gpus": 1}, {"tasks": 2, "gpus": 2})
        )
        job |= pick(({}, {"retries": 1}, {"priority": pick(("low", "high"))}, {"time_limit": "10m"}))
        if self.jobs and pick((True, False, False)):
            job["after"] = [pick(self.jobs)]
        accepted = self.ask("POST", "/jobs", job)
        self.jobs += [accepted["id"]] if "id" in accepted else []

    def end(self) -> None:
        if self.world.running:
            outcome = self.random.choice((Outcome.SUCCESS, Outcome.SUCCESS, Outcome.USER_ERROR))
            self.api.engine.finish(self.random.choice(self.world.running), outcome, int(outcome is not Outcome.SUCCESS))

    def change(self) -> None:
        if not self.jobs:
            return
        pick = self.random.choice
        job = pick(self.jobs) + pick(("", "", "", ".1"))
        verb, body = pick(
            (
                *((verb, None) for verb in ("stop", "suspend", "resume", "requeue")),
                ("priority", {"priority": pick(("low", "normal", "high"))}),
                ("resize", {"tasks": pick((1, 2, 3))}),
                ("delete", None),
            )
        )
        if verb == "delete":
            self.ask("DELETE", f"/jobs/{job}")
        else:
            self.ask("POST", f"/jobs/{job}/{verb}", body)

    def operate(self) -> None:
        pick, now = self.random.choice, self.clock.now
        spans = {"begin": now + 300.0, "until": now + 900.0}
        requests: tuple[tuple[str, str, object], ...] = (
            ("POST", "/queues", {"name": pick(QUEUES), "fields": pick(({}, {"guarantee": {"gpus": 1}}))}),
            ("PATCH", f"/queues/{pick(QUEUES)}", {"fields": pick(({"limit": {"gpus": 3}}, {"weight": 2}))}),
            ("PUT", f"/reservations/{pick('xy')}", {"queue": pick(QUEUES), "cards": pick((1, 2)), **spans}),
            ("DELETE", f"/reservations/{pick('xy')}", None),
            ("POST", "/nodes/n1/close", pick(({"drain": True}, {"card": 1}, spans))),
            ("POST", "/nodes/n1/open", pick(({}, {"card": 1}))),
        )
        self.ask(*pick(requests))

    def wait(self) -> None:
        self.clock.now += self.random.choice(SPAN_S)
        self.api.loop.wake()

    # ---- what is looked at ------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The server is gone, without a word; the next one begins."""
        self.api.processor.keep_snapshot = lambda: None  # type: ignore[method-assign]
        self.api.close()
        self.api = Api(self.api.state_dir, world=self.world, clock=self.clock)

    def picture(self) -> dict[str, Any]:
        """What users see of everything."""
        pages = ["/jobs?all=true", "/queues", "/nodes", "/reservations"]
        pages += [f"/jobs/{job}{part}" for job in self.jobs for part in ("", "/why", "/events", "/document")]
        return {page: self.ask("GET", page) for page in pages}

    def bring_to_an_end(self) -> None:
        """Nothing stands in the way any more, and everything that runs ends well."""
        for name in QUEUES:
            self.ask("PATCH", f"/queues/{name}", {"fields": {"limit": None}})
        for name in "xy":
            self.ask("DELETE", f"/reservations/{name}")
        for body in ({}, {"card": 1}):
            self.ask("POST", "/nodes/n1/open", body)
        self.clock.now += 1_000.0  # what is planned is over
        for _ in range(200):
            living = self.api.loop.job_cache.newest_first()
            if not living and not self.world.running:
                return
            for info in living:
                self.ask("POST", f"/jobs/{info.id}/resume")
            for task in self.world.running:
                self.api.engine.finish(task)
            self.settle()
        raise AssertionError([self.ask("GET", f"/jobs/{info.id}/why") for info in living])


def differences(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two pictures differ, but for what nobody promises to say twice."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from differences(one.get(name), other.get(name), f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (each, its) in enumerate(zip(one, other, strict=True)):
            yield from differences(each, its, f"{path}[{number}]")
    elif one != other and not any(look in path for look in LATEST_LOOKS):
        yield path, one, other


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_whatever_was_done_a_killed_servers_successor_shows_the_same(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_bytes", random.Random(seed).randbytes)  # ids of jobs
    users = Users(tmp_path, seed)
    for _ in range(3):
        for _ in range(30):
            users.act()
        users.settle()
        shown, left = users.picture(), (list(users.api.engine.outbox), users.api.loop.trouble)
        users.kill()
        found = [str(each) for each in differences(shown, users.picture())]
        assert not found, "\n".join([*found, str(left), *users.asked])  # whole: it may not come again
    users.bring_to_an_end()
    users.api.close()


@pytest.mark.parametrize("runs_again", [False, True])
def test_a_killed_servers_successor_knows_when_a_run_began_and_for_how_long_it_was_suspended(
    tmp_path: Path, runs_again: bool
) -> None:
    users = Users(tmp_path, 0)
    job = users.ask("POST", "/jobs", {"command": "work", "gpus": 1})["id"]

    def ask(path: str, body: object = None) -> None:
        users.ask("POST", path, body)
        users.settle()
        users.clock.now += 50.0

    users.settle()
    ask(f"/jobs/{job}/requeue")
    ask(f"/jobs/{job}/suspend")
    ask(f"/jobs/{job}/resume")
    if not runs_again:
        ask("/nodes/n1/close", {})
        ask(f"/jobs/{job}/requeue")
    shown = users.ask("GET", f"/jobs/{job}")
    assert shown["state"] == ("running" if runs_again else "queued")
    assert shown["attempt"] == 2
    assert shown["suspended_s"] >= 50.0
    users.kill()
    assert list(differences(shown, users.ask("GET", f"/jobs/{job}"))) == []
    users.api.close()
