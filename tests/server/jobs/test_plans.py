"""What is said about a job before it is submitted is what then happens, and saying it changes nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_world import Api
from server_world import Clock, Server, World, node

from millpond.client.cli.commands.submission.apply import plan_lines
from millpond.forecasting.durations import Forecast
from millpond.model.events import PoolChanged, QueueChanged
from millpond.model.hardware.nodes import Node, Pool
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Queue
from millpond.scheduling.reclaiming import suspend_instead
from millpond.scheduling.scheduler import Scheduler
from millpond.server.jobs.what_if.plan import plan, plan_apart
from millpond.specs.api.jobs.reasons import PlanInfo
from millpond.specs.job.job_spec import check_job


def real_node(vendor: str) -> Node:
    """A machine with cards that are not pretended."""
    plain = node()
    return replace(plain, devices=tuple(replace(card, vendor=vendor, fake=False) for card in plain.devices))


class Planner:
    """A server whose core is copied for each plan."""

    def __init__(
        self, state_dir: Path, *queues: Queue, suspends: bool = False, nodes: tuple[Node, ...] = (node(),)
    ) -> None:
        self.clock = Clock()
        self.server = Server(state_dir, World(nodes), self.clock)
        pool = Pool("default", suspends=suspends)
        self.server.loop.notify([PoolChanged(1_000.0, pool), *(QueueChanged(1_000.0, queue) for queue in queues)])
        self.server.turn()

    def submit(self, name: str, **fields: object) -> None:
        self.server.submit(name, **fields)
        self.server.turn(2)

    def plan(self, **fields: object) -> PlanInfo:
        core = self.server.core
        before = json.dumps(core.scheduler.snapshot())
        job = check_job({"command": "work", **fields}).to_job("plan", "ada")
        made = plan(Scheduler.restore(json.loads(before)), job, self.clock.now)
        assert json.dumps(core.scheduler.snapshot()) == before
        return made

    def plan_lines(self, **fields: object) -> list[str]:
        return list(plan_lines(self.plan(**fields), self.clock.now))


def test_a_job_that_fits_is_told_where_it_runs(tmp_path: Path) -> None:
    planner = Planner(tmp_path)
    planner.submit("other", gpus=1)
    assert planner.plan_lines(gpus=0.25)[0] == "starts now: task 0 on n1 (0.25 cards)"
    assert planner.plan_lines(gpus=2) == ["starts now: task 0 on n1 (2 cards)", "queue default: 1 -> 3 cards in use"]
    planned = planner.plan(gpus=2)
    planner.submit("real", gpus=2)
    info = planner.server.loop.job_cache.get("real")
    assert info is not None
    assert [[grant.uuid for grant in task.devices] for task in info.tasks] == [task.devices for task in planned.tasks]


@pytest.mark.parametrize(
    ("vendor", "told"),
    [("nvidia", ""), ("amd", "nothing does so on amd cards unless the kernel bounds their memory (dmem)")],
)
def test_a_part_of_a_card_that_nothing_would_keep_it_to_is_told(vendor: str, told: str, tmp_path: Path) -> None:
    planner = Planner(tmp_path, nodes=(real_node(vendor),))
    assert planner.plan(gpus=0.5).unenforced == told
    assert planner.plan(gpus=1).unenforced == ""


def test_a_job_that_waits_is_told_why_and_until_when_and_what_would_help(tmp_path: Path) -> None:
    planner = Planner(tmp_path)
    planner.submit("other", gpus=3, time_limit="1h")
    waits, starts, *rest = planner.plan_lines(gpus=2)
    assert waits.startswith("waits: ")
    assert starts.startswith("start: in ")
    assert rest[0].startswith("would start now: ")
    assert rest[1:] == ["queue default: 3 -> 5 cards in use"]


def test_a_job_of_a_higher_class_is_told_whom_it_would_preempt(tmp_path: Path) -> None:
    planner = Planner(tmp_path)
    planner.submit("low", gpus=4, priority="low")
    made = planner.plan(gpus=4, priority="high")
    assert (made.starts_now, [(victim.job, victim.how) for victim in made.victims]) == (False, [("low", "preempt")])
    assert planner.plan_lines(gpus=4, priority="high") == [
        "starts when those have left who make room for it:",
        "  preempts low of ada",
        "queue default: 4 -> 4 cards in use",
    ]


def test_all_are_told_whom_it_would_preempt_although_one_cycle_does_not_ask_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspend_instead, "ASKED_PER_CYCLE", 1)
    planner = Planner(tmp_path, suspends=True)
    names = [f"low{number}" for number in range(4)]
    for name in names:
        planner.submit(name, gpus=1, priority="low")
    assert sorted(victim.job for victim in planner.plan(gpus=4, priority="high").victims) == names


def test_a_queue_that_takes_back_its_guarantee_is_told_from_whom_and_the_other_what_it_borrows(tmp_path: Path) -> None:
    ours, theirs = Queue("ours", guarantee=Amount(2_000)), Queue("theirs", guarantee=Amount(2_000))
    planner = Planner(tmp_path, ours, theirs)
    assert planner.plan(queue="theirs", gpus=2).borrowed_gpu_milli == 0
    made = planner.plan(queue="theirs", gpus=3)
    assert made.borrowed_gpu_milli == 1_000
    assert "borrows 1 card: beyond the guarantee, and the first to leave" in planner.plan_lines(queue="theirs", gpus=3)
    planner.submit("borrower", queue="theirs", gpus=4)
    assert [victim.job for victim in planner.plan(queue="ours", gpus=2).victims] == ["borrower"]


def test_a_deadline_is_answered_from_the_forecast(tmp_path: Path) -> None:
    planner = Planner(tmp_path)
    job = replace(check_job({"command": "work"}).to_job("plan"), deadline_s=planner.clock.now + 100.0)
    copy = json.dumps(planner.server.core.scheduler.snapshot())
    answers = [plan(Scheduler.restore(json.loads(copy)), job, planner.clock.now, Forecast(s, s)) for s in (50.0, 150.0)]
    assert [answer.deadline and answer.deadline.verdict for answer in answers] == ["accept", "at-risk"]


@pytest.mark.end_to_end
def test_a_plan_made_in_a_process_apart_is_the_same_whatever_lies_where_the_server_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "types.py").write_text("raise SystemExit('not of Python')\n")
    monkeypatch.chdir(tmp_path)
    planner = Planner(tmp_path)
    planner.submit("other", gpus=1)
    job = check_job({"command": "work", "gpus": 2}).to_job("plan", "ada")
    snapshot = json.dumps(planner.server.core.scheduler.snapshot())
    assert asyncio.run(plan_apart(snapshot, job, planner.clock.now)) == planner.plan(gpus=2)


def test_the_scheduler_is_copied_alone_for_a_plan_and_goes_on_while_the_copy_is_written(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writers = Scheduler.snapshot, list[str]()

    def noted(scheduler: Scheduler) -> dict[str, Any]:
        writers.append(threading.current_thread().name)
        return write(scheduler)

    scheduling = api.loop.query(lambda _core: threading.current_thread().name).result(60)
    monkeypatch.setattr(Scheduler, "snapshot", noted)
    assert api.client.post("/api/v1/jobs/plan", json={"command": "x", "gpus": 1}).json()["starts_now"] is True
    assert writers
    assert scheduling not in writers
