"""What befalls pods of others and their nodes while they are bound: each comes to an end that the core hears of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_pods import JOB, AdoptingBench, condition, events_of, foreign_pod
from pod_bench import eventually, start
from standin_cluster import NAMESPACE, StandinCluster, refusal

from millpond.engines.kubernetes.adoption import adopted_executor
from millpond.engines.kubernetes.adoption.pod_binding import bind_pod
from millpond.model.events import Confirmed, Ended, NodeLost, Refused, StopRequested
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.states import Outcome

GANG = {"millpond.io/gang": "pair", "millpond.io/gang-size": "2"}


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[AdoptingBench]:
    with AdoptingBench(cluster, tmp_path) as bench:
        yield bench


def befalls(monkeypatch: pytest.MonkeyPatch, pod: str, does: Callable[[], None], is_seen: Callable[[], bool]) -> None:
    """Something happens after a pod was bound, and the engine sees that before the answer to its binding."""

    async def bind(api: Any, found: Any, *rest: Any) -> str:
        trouble = await bind_pod(api, found, *rest)
        if found.metadata.name == pod:
            does()
            while not is_seen():
                await asyncio.sleep(0.005)
        return trouble

    monkeypatch.setattr(adopted_executor, "bind_pod", bind)


def is_unknown(bench: AdoptingBench, pod: str) -> Callable[[], bool]:
    return lambda: f"{NAMESPACE}/{pod}" not in {each.key for each in bench.engine._foreign.pods}


def test_a_pod_that_is_deleted_before_its_binding_is_answered_is_the_end_of_its_job(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign_pod(cluster, "alone")
    bench.stand_for(bench.gang().key)
    befalls(monkeypatch, "alone", lambda: cluster.remove("pods", "alone"), is_unknown(bench, "alone"))
    bench.engine.apply([start(1, JOB, ("n1",))])
    assert bench.next(Confirmed).decision == 1
    assert bench.next(StopRequested).job == JOB
    assert bench.next(Ended).outcome is Outcome.STOPPED


def test_of_a_gang_the_pod_that_is_deleted_meanwhile_ends_and_the_other_runs(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pair-0", "pair-1"):
        foreign_pod(cluster, name, annotations=GANG)
    bench.stand_for(bench.gang().key)
    befalls(monkeypatch, "pair-1", lambda: cluster.remove("pods", "pair-1"), is_unknown(bench, "pair-1"))
    bench.engine.apply([start(1, JOB, ("n1", "n2"))])
    bench.bound("pair-0")
    cluster.run("pair-0")
    assert bench.next(Confirmed).decision == 1
    ended = bench.next(Ended)
    assert (ended.task, ended.outcome, ended.detail) == (1, Outcome.STOPPED, "its pod was deleted")


def test_a_node_that_is_deleted_before_the_binding_to_it_is_answered_ends_nothing_else(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign_pod(cluster, "alone")
    bench.stand_for(bench.gang().key)
    befalls(
        monkeypatch, "alone", lambda: cluster.remove("nodes", "n1", ""), lambda: not bench.engine._view.has_node("n1")
    )
    bench.engine.apply([start(1, JOB, ("n1",))])
    assert bench.next(NodeLost).node == "n1"
    assert bench.next(Confirmed).decision == 1
    assert "NodeLost" in eventually(lambda: " ".join(events_of(cluster, "alone")))
    foreign_pod(cluster, "next")
    bench.stand_for(bench.gang().key, "next-abcde")
    bench.engine.apply([start(2, "next-abcde", ("n2",))])
    bench.bound("next")


def test_a_gang_all_of_whose_nodes_and_pods_are_gone_meanwhile_is_refused(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pair-0", "pair-1"):
        foreign_pod(cluster, name, annotations=GANG)
    bench.stand_for(bench.gang().key)

    def befall() -> None:
        cluster.remove("nodes", "n1", "")
        cluster.remove("nodes", "n2", "")

    befalls(monkeypatch, "pair-1", befall, lambda: not any(map(bench.engine._view.has_node, ("n1", "n2"))))
    bench.engine.apply([start(1, JOB, ("n1", "n2"))])
    assert {bench.next(NodeLost).node, bench.next(NodeLost).node} == {"n1", "n2"}
    assert bench.next(Confirmed).decision == 1


def free_cards(bench: AdoptingBench) -> dict[str, int]:
    nodes = bench.engine.inventory().nodes
    return {node.name: sum(device.health is DeviceHealth.OK for device in node.devices) for node in nodes}


def goes_to(cluster: StandinCluster, pod: str, node: str) -> None:
    """An admission webhook changes the node of a binding."""

    def changed(request: str, body: Any) -> None:
        if request.endswith(f"/{pod}/binding"):
            body["target"]["name"] = node

    cluster.refuses = changed


def test_a_pod_that_an_admission_webhook_has_bound_elsewhere_counts_there_and_is_no_task(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "alone")
    bench.stand_for(bench.gang().key)
    goes_to(cluster, "alone", "n2")
    bench.engine.apply([start(1, JOB, ("n1",))])
    text = "an admission webhook or another scheduler has bound pod alone to node n2"
    assert eventually(lambda: events_of(cluster, "alone")) == [f"FailedBinding: {text}"]
    assert bench.next(Refused).reason == text
    eventually(lambda: free_cards(bench) == {"n1": 8, "n2": 7})
    cluster.finish("alone")
    eventually(lambda: free_cards(bench) == {"n1": 8, "n2": 8})


def test_of_a_gang_the_pod_that_was_bound_elsewhere_ends_and_the_other_runs_also_when_the_server_starts_anew(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    for name in ("pair-0", "pair-1"):
        foreign_pod(cluster, name, annotations=GANG)
    bench.stand_for(bench.gang().key)
    goes_to(cluster, "pair-1", "n1")
    decision = start(1, JOB, ("n1", "n2"))
    bench.engine.apply([decision])
    bench.bound("pair-0")
    bench.bound("pair-1")
    bench.close()
    bench.open(unanswered=[decision])
    cluster.run("pair-0")
    assert bench.next(Confirmed).decision == 1
    ended = bench.next(Ended)
    text = "an admission webhook or another scheduler has bound pod pair-1 to node n1"
    assert (ended.task, ended.outcome, ended.detail) == (1, Outcome.NODE_LOST, text)
    eventually(lambda: free_cards(bench) == {"n1": 7, "n2": 8})


def test_a_namespace_that_is_being_deleted_refuses_bindings_and_words_and_nothing_else_suffers(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    text = "unable to create new content in namespace team because it is being terminated"

    def refuses(request: str, _body: Any) -> Any:
        return refusal(403, "Forbidden", text) if request.endswith(("/doomed/binding", "/events")) else None

    cluster.refuses = refuses
    foreign_pod(cluster, "doomed")
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB, ("n1",))])
    refused = bench.next(Refused)
    assert text in refused.reason
    cluster.remove("pods", "doomed")
    foreign_pod(cluster, "next", namespace="other")
    bench.stand_for(
        eventually(lambda: next((g for g in bench.engine.gangs() if g.key.name == "next"), None)).key, "n-1"
    )
    bench.engine.apply([start(2, "n-1", ("n1",))])
    assert eventually(lambda: (cluster.get("pods", "next", "other") or {})["spec"].get("nodeName")) == "n1"


@pytest.mark.parametrize("name", ["x" * 254, "line\nbreak", "nul\x00"])
def test_a_name_of_a_gang_that_is_none_is_told(cluster: StandinCluster, bench: AdoptingBench, name: str) -> None:
    foreign_pod(cluster, "odd", annotations={"millpond.io/gang": name, "millpond.io/gang-size": "1"})
    told = eventually(lambda: condition(cluster, "odd"))
    assert "millpond.io/gang: write at most 253 printable characters" in told


@pytest.mark.parametrize("field", ["topology", "gpu-models", "window"])
def test_a_field_of_the_job_file_that_is_endless_is_told(
    cluster: StandinCluster, bench: AdoptingBench, field: str
) -> None:
    foreign_pod(cluster, "odd", annotations={f"millpond.io/{field}": "[" + "a, " * 60_000 + "a]"})
    told = eventually(lambda: condition(cluster, "odd"))
    assert told == f"millpond.io/{field}: write at most 2000 characters"
    assert eventually(lambda: events_of(cluster, "odd")) == [f"FailedScheduling: {told}"]


def test_what_is_told_of_sizes_that_disagree_is_short_however_long_these_are(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    for number in range(6):
        sized = {"millpond.io/gang": "odd", "millpond.io/gang-size": f"{number}" * 5_000}
        foreign_pod(cluster, f"odd-{number}", annotations=sized)
    told = eventually(lambda: "disagrees about its size" in (text := condition(cluster, "odd-0")) and text)
    assert len(told) < 500
