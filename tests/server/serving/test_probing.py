"""Rollouts ask many replicas at once, and not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from millpond.engines.local.task_access import LocalTaskAccess
from millpond.node.task.records import TaskId
from millpond.server.serving import probes
from millpond.server.serving.probes import Probe
from millpond.server.serving.proxy.endpoints import TaskEndpoint
from millpond.server.serving.proxy.load_balancer import Readiness
from millpond.server.sessions.task_routes import TaskRoute
from millpond.specs.job.serving import Serve

NOWHERE = LocalTaskAccess(Path("/nowhere"))
PLACES = [
    TaskEndpoint(TaskId("web", 1, number), TaskRoute(TaskId("web", 1, number), 20_000 + number, NOWHERE), "")
    for number in range(5)
]
ASKED = [(place, Serve(ready="/ready")) for place in PLACES]


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Probe]:
    with closing(Probe(LocalTaskAccess(tmp_path))) as made:
        yield made


def test_a_replica_that_does_not_answer_delays_no_other(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[TaskId] = []

    async def ask(_readiness: Readiness, place: TaskEndpoint, _path: str) -> bool | None:
        if place is not PLACES[0]:
            others.append(place.task)
            return place is not PLACES[3]
        async with asyncio.timeout(60):
            while len(others) < 4:
                await asyncio.sleep(0)
        return None

    monkeypatch.setattr(Readiness, "ask", ask)
    assert probe.ready_ones(ASKED) == [PLACES[1], PLACES[2], PLACES[4]]


def test_no_more_replicas_are_asked_at_once_than_the_bound_allows(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, most = 0, 0

    async def ask(_readiness: Readiness, _place: TaskEndpoint, _path: str) -> bool | None:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        await asyncio.sleep(0)
        asked -= 1
        return True

    monkeypatch.setattr(probes, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(Readiness, "ask", ask)
    assert probe.ready_ones(ASKED) == PLACES
    assert most == 2
