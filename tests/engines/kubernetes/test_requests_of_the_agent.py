"""What the agent of a node asks of the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from standin_agent import add_agent
from standin_cluster import StandinCluster, refusal

from millpond.engines.kubernetes.agent import program
from millpond.engines.kubernetes.agent.program import AgentIdentity, AgentRequests
from millpond.engines.kubernetes.cluster.access import api_channel
from millpond.engines.kubernetes.cluster.agent_report import AGENT_NAMESPACE, AgentReport
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config

EVICTION = "POST /api/v1/namespaces/team/pods/db-0/eviction"


def asking(cluster: StandinCluster, folder: Path, act: Callable[[AgentRequests], Coroutine[Any, Any, None]]) -> None:
    async def always() -> None:
        pass

    async def run() -> None:
        channel = api_channel(find_config(ClusterAccess(str(cluster.kubeconfig(folder)))), 2)
        try:
            api = ClusterApi(channel, AGENT_NAMESPACE, always)
            async with asyncio.timeout(60):
                await act(AgentRequests(api, AgentIdentity("n1", AGENT_NAMESPACE, "agent-of-n1")))
        finally:
            await channel.aclose()

    asyncio.run(run())


def add_pod(cluster: StandinCluster) -> str:
    """A pod of a StatefulSet; its uid."""
    cluster.put("pods", "db-0", {"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}, "team")
    found = cluster.get("pods", "db-0", "team")
    assert found is not None
    return str(found["metadata"]["uid"])


def test_a_pod_that_was_made_anew_by_the_same_name_is_not_evicted_for_the_one_before(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    before = add_pod(cluster)
    cluster.remove("pods", "db-0", "team")
    after = add_pod(cluster)
    asking(cluster, tmp_path, lambda requests: requests.evict(("team", "db-0"), before, "it uses more than its part"))
    assert cluster.requests[-1] == EVICTION
    assert (cluster.get("pods", "db-0", "team") or {})["metadata"].get("deletionTimestamp") is None
    asking(cluster, tmp_path, lambda requests: requests.evict(("team", "db-0"), after, "it uses more than its part"))
    there = cluster.get("pods", "db-0", "team")
    assert there is None or there["metadata"]["deletionTimestamp"]


def test_a_pod_that_cannot_be_evicted_is_asked_again_and_each_reason_is_logged_once(
    cluster: StandinCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(program, "_AGAIN_S", 0.0)
    cluster.policies |= {"policy/v1beta1"}
    uid, words = add_pod(cluster), iter(["no right", "no right", "no right", "a webhook says no"])

    def refuses(request: str, _body: Any) -> Any:
        said = next(words, "") if request == EVICTION else ""
        return refusal(403, "Forbidden", said) if said else None

    cluster.refuses = refuses
    with caplog.at_level(logging.WARNING, logger="millpond"):
        asking(cluster, tmp_path, lambda requests: requests.evict(("team", "db-0"), uid, "why"))
    said = [text for text in caplog.messages if "cannot be evicted" in text]
    assert said == [
        f"pod team/db-0 cannot be evicted, and is asked to leave again: {why}"
        for why in ("no right", "a webhook says no")
    ]


def test_an_agent_that_may_not_describe_its_cards_says_so_once_and_that_it_was_not_taken(
    cluster: StandinCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_agent(cluster)
    cluster.refuses = lambda request, _body: refusal(403, "Forbidden", "no") if request.startswith("PATCH") else None

    async def refused(requests: AgentRequests) -> None:
        assert not await requests.report(AgentReport())
        assert not await requests.tell_loads({})
        assert not await requests.answer({})
        cluster.refuses = lambda _request, _body: None
        assert await requests.report(AgentReport())

    with caplog.at_level(logging.WARNING, logger="millpond"):
        asking(cluster, tmp_path, refused)
    assert caplog.messages == ["the agent's pod cannot be described, which is tried again: no"]
