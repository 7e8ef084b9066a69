"""Answers that are none: pages of a proxy, JSON that ends in the middle, watches that end at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pod_bench import PodBench, eventually, start, stop
from standin_cluster import StandinCluster, refusal
from starlette.responses import HTMLResponse, Response

from millpond.engines.kubernetes.cluster.api_channel import ApiChannel
from millpond.engines.kubernetes.cluster.cluster_view import NODES
from millpond.engines.kubernetes.cluster.reflector import HistoryGoneError, Reflector
from millpond.model.errors import UnavailableError
from millpond.model.events import Ended, Refused

POD = "train-abcde-1-0"
PAGE = "<html>please log in</html>"


def proxy_page() -> Response:
    return HTMLResponse(PAGE)


def half_an_object() -> Response:
    return Response('{"kind": "Pod", "metadata": {"name": "tr', media_type="application/json")


def answer_first(cluster: StandinCluster, matches: Callable[[str], bool], made: Callable[[], Response]) -> list[str]:
    """The first three requests that match are answered so; returns which were."""
    answered: list[str] = []

    def refuses(request: str, _: object) -> Any:
        if matches(request) and len(answered) < 3:
            answered.append(request)
            return made()
        return None

    cluster.refuses = refuses
    return answered


@pytest.mark.parametrize("made", [proxy_page, half_an_object])
@pytest.mark.parametrize("what", ["POST /api/v1/namespaces/team/pods", "/binding", "/leases"])
def test_an_answer_that_is_none_counts_as_not_given_and_the_engine_goes_on(
    cluster: StandinCluster, bench: PodBench, what: str, made: Callable[[], Response]
) -> None:
    answered = answer_first(cluster, lambda request: request.endswith(what) or f"{what}/" in request, made)
    bench.started()
    eventually(lambda: len(answered) == 3)
    bench.engine.apply([stop(2)])
    eventually(lambda: (cluster.get("pods", POD) or {})["metadata"].get("deletionTimestamp"))
    cluster.finish(POD, 143)
    bench.next(Ended)


@pytest.mark.parametrize("what", ["/api/v1/nodes", "/api/v1/pods", "/leases/"])
def test_a_server_before_which_something_else_answers_says_so_when_it_starts(
    cluster: StandinCluster, tmp_path: Path, what: str
) -> None:
    cluster.refuses = lambda request, _: proxy_page() if what in request else None
    with pytest.raises(UnavailableError, match=rf"{cluster.address} cannot be looked at.*no JSON.*{PAGE}"):
        PodBench(cluster, tmp_path).open()


class _EndsAtOnce(ApiChannel):
    """An API server, or something before it, whose watches end as soon as they are open, or are of no use."""

    def __init__(self, is_gone: bool) -> None:
        self._is_gone = is_gone

    async def get(self, path: str, params: Mapping[str, str]) -> bytes:
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    async def follow(
        self, path: str, params: Mapping[str, str], silence_s: float | None
    ) -> AsyncGenerator[bytes, None]:
        yield b""
        if self._is_gone:
            raise HistoryGoneError


@pytest.mark.parametrize("is_gone", [False, True])
def test_watches_that_end_at_once_are_opened_again_at_once_the_first_time_alone(
    monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    waited: list[float] = []

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 8:
            raise EOFError

    monkeypatch.setattr(asyncio, "sleep", noted)
    monkeypatch.setattr(random, "uniform", lambda _least, most: most)
    followed = Reflector(_EndsAtOnce(is_gone), NODES, lambda node: None, lambda node: None)
    with pytest.raises(EOFError):
        asyncio.run(followed.run())
    assert waited == [0.0, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]


def test_a_token_that_the_cluster_takes_no_more_fails_no_job(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.refuses = lambda request, _: (
        refusal(401, "Unauthorized", "Unauthorized") if request.endswith("/pods") and "POST" in request else None
    )
    bench.engine.apply([start(1)])
    refused = bench.next(Refused)
    assert refused.reason == "the cluster does not take its pod: Unauthorized"
    assert refused.device_fault, "the job is not to blame"
