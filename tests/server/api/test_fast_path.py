"""The fast path in front of FastAPI answers as FastAPI does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from api_world import JOBS, Api, error_of
from fastapi import FastAPI
from fastapi.testclient import TestClient

from millpond.server.api.description import api_router

_REQUESTS = (
    ("GET", JOBS),
    ("GET", f"{JOBS}?limit=1&state=running&state=queued&user=ada"),
    ("GET", f"{JOBS}?limit=0&all=perhaps"),
    ("GET", f"{JOBS}?members=unknown"),
    ("GET", f"{JOBS}/{{job}}"),
    ("GET", f"{JOBS}/{{job}}/why"),
    ("GET", f"{JOBS}/{{job}}/events"),
    ("GET", f"{JOBS}/{{job}}/logs"),
    ("GET", f"{JOBS}/unknown"),
    ("GET", f"{JOBS}/a%2Fb"),
    ("GET", "/api/v1/server"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/unknown"),
    ("PUT", JOBS),
    ("HEAD", JOBS),
    ("POST", JOBS),
    ("POST", f"{JOBS}/{{job}}/resume"),
    ("POST", f"{JOBS}/{{job}}/suspend?swap=perhaps"),
    ("POST", f"{JOBS}/{{job}}/extend"),
)


@pytest.fixture
def limits(api: Api) -> Any:
    """What passes requests to the fast path."""
    return api.client.app._app._app._others._app  # type: ignore[attr-defined]


@pytest.mark.parametrize(("method", "path"), _REQUESTS)
def test_a_request_is_answered_by_the_fast_path_as_by_fastapi(api: Api, limits: Any, method: str, path: str) -> None:
    job = api.submit(gpus=1).id
    assert api.job(job).state == "running"
    fast = limits._app
    answers = []
    for routes in (fast, fast._app):
        limits._app = routes
        answers.append(api.client.request(method, path.format(job=job)))
    first, second = answers
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert sorted(first.headers.items()) == sorted(second.headers.items())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", JOBS), ("POST", JOBS), ("GET", f"{JOBS}/{{job}}/why"), ("POST", f"{JOBS}/{{job}}/suspend")],
)
def test_a_parameter_that_a_route_does_not_know_is_refused(api: Api, method: str, path: str) -> None:
    job = api.submit(gpus=1).id
    answer = api.client.request(method, path.format(job=job), params={"usr": "ada"})
    assert answer.status_code == 422
    assert [detail.loc for detail in error_of(answer).details] == ["query.usr"]
    assert api.job(job).state == "running"


def test_a_defect_is_answered_by_the_fast_path_as_by_fastapi(
    api: Api, limits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        return None

    fast = limits._app
    job = api.submit().id
    for show in (None, nothing):
        monkeypatch.setattr(type(api.service.jobs), "show", show)
        for routes in (fast, fast._app):
            limits._app = routes
            answer = api.client.get(f"{JOBS}/{job}")
            assert (answer.status_code, error_of(answer).code) == (500, "defect")


def test_what_many_clients_ask_for_takes_the_fast_path(limits: Any) -> None:
    planned = {each.route.name for routes in limits._app._routes.values() for each in routes if each.plan is not None}
    assert {"submit", "list_jobs", "show", "why", "stop", "events"} <= planned
    assert "logs" not in planned


@dataclass(frozen=True, slots=True)
class Depth:
    """An answer."""

    meters: float


def test_what_writes_an_answer_is_made_when_it_is_first_asked_for() -> None:
    router = api_router()

    @router.get("/depth")
    async def depth() -> Depth:
        return Depth(2.5)

    (route,) = router.routes
    app = FastAPI(routes=[route])
    adapter = route.response_field._type_adapter  # type: ignore[attr-defined]
    assert not adapter.pydantic_complete
    assert TestClient(app).get("/api/v1/depth").json() == {"meters": 2.5}
    assert adapter.pydantic_complete
