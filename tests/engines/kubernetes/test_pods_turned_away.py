"""A kubelet that turns pods of others away: what their owner makes next goes elsewhere, or waits and says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from foreign_pods import JOB, OWNER, AdoptingBench, condition, foreign_pod, nodes_of
from pod_bench import eventually, start
from standin_cluster import NAMESPACE, StandinCluster

from millpond.engines.kubernetes.adoption import kubelet_refusals
from millpond.engines.kubernetes.adoption.kubelet_refusals import FIRST_S, LONGEST_S, KubeletRefusals
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.model.events import Ended, Refused
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement
from millpond.model.states import Outcome

SET = {**OWNER, "apiVersion": "apps/v1", "kind": "ReplicaSet"}
WORDS = "OutOfpods: Node didn't have enough resource: pods"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pod_of(owner: str = "uid-1", node: str = "n1", **status: object) -> ScheduledPod:
    owners = [{**SET, "uid": owner}] if owner else []
    plain = {"metadata": {"name": "web", "ownerReferences": owners}, "spec": {"nodeName": node}}
    said = {"phase": "Failed", "reason": "OutOfpods", "message": "full", **status}
    return msgspec.convert({**plain, "status": said}, ScheduledPod)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(clock: Clock) -> KubeletRefusals:
    return KubeletRefusals(clock)


def barred(refusals: KubeletRefusals, pod: ScheduledPod) -> list[str]:
    return [node for each in refusals.requirements([pod]) for node in each.values]


def test_a_node_is_let_be_longer_each_time_and_tried_again(refusals: KubeletRefusals, clock: Clock) -> None:
    spans = []
    for _ in range(9):
        refusals.note(pod_of())
        assert barred(refusals, pod_of()) == ["n1"]
        began = clock.now
        while barred(refusals, pod_of()):
            clock.now += 1
        spans.append(clock.now - began)
        version = refusals.version
        refusals.expire()
        assert refusals.version == version + 1
    assert spans == [FIRST_S, 20, 40, 80, 160, 320, LONGEST_S, LONGEST_S, LONGEST_S]


def test_how_often_it_was_is_forgotten_after_a_while(refusals: KubeletRefusals, clock: Clock) -> None:
    refusals.note(pod_of())
    clock.now += FIRST_S
    refusals.note(pod_of())
    clock.now += 2 * FIRST_S + LONGEST_S
    refusals.expire()
    refusals.note(pod_of())
    clock.now += FIRST_S
    assert barred(refusals, pod_of()) == []


def test_pods_that_are_turned_away_at_once_count_once(refusals: KubeletRefusals, clock: Clock) -> None:
    for _ in range(100):
        refusals.note(pod_of())
    clock.now += FIRST_S
    assert barred(refusals, pod_of()) == []
    refusals.note(pod_of())
    assert "turned pods of its owner away again" in refusals.text([pod_of()])


def test_only_what_the_same_owner_makes_keeps_off_the_node(refusals: KubeletRefusals) -> None:
    refusals.note(pod_of(node="n2"))
    refusals.note(pod_of(node="n1"))
    assert list(refusals.requirements([pod_of()])) == [
        NodeRequirement("metadata.name", NodeOperator.NOT_IN, ("n1", "n2"))
    ]
    assert barred(refusals, pod_of("uid-2")) == barred(refusals, pod_of("")) == []


@pytest.mark.parametrize(
    "pod",
    [
        pod_of(""),
        pod_of(reason=""),
        pod_of(phase="Succeeded"),
        pod_of(reason="Evicted", containerStatuses=[{"name": "task", "state": {"terminated": {"exitCode": 137}}}]),
    ],
    ids=["of nobody", "its program failed", "its program has ended", "it ran before"],
)
def test_other_ends_are_no_refusal_by_a_kubelet(refusals: KubeletRefusals, pod: ScheduledPod) -> None:
    refusals.note(pod)
    assert (barred(refusals, pod_of()), refusals.text([pod_of()])) == ([], "")


def test_it_is_said_who_refused_what_and_when_it_is_tried_again(refusals: KubeletRefusals, clock: Clock) -> None:
    refusals.note(pod_of())
    assert refusals.text([pod_of()]) == (
        "the kubelet of node n1 turned pods of its owner away (OutOfpods: full): "
        "the next goes there after 10s at the earliest"
    )
    clock.now += 1
    refusals.note(pod_of(node="n2", message="x" * 1000))
    text = refusals.text([pod_of()])
    assert text.startswith("the kubelet of node n2 turned pods of its owner away (OutOfpods: xx")
    assert text.endswith("x), as 1 more did: the next goes there after 10s at the earliest")
    assert len(text) < 500


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdoptingBench]:
    monkeypatch.setattr(kubelet_refusals, "FIRST_S", 1e6)
    monkeypatch.setattr(kubelet_refusals, "LONGEST_S", 1e6)
    with AdoptingBench(cluster, tmp_path) as bench:
        yield bench


def test_what_is_made_in_place_of_a_pod_that_was_turned_away_goes_to_another_node(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "web-1", owner=SET)
    gang = bench.gang()
    assert nodes_of(bench, gang) == ["n1", "n2"]
    bench.stand_for(gang.key)
    bench.engine.apply([start(1, JOB, ("n1",))])
    bench.bound("web-1")
    cluster.set_state("web-1", "Failed", {}, *WORDS.split(": ", 1))
    assert bench.next(Ended).outcome is Outcome.NODE_LOST
    foreign_pod(cluster, "web-2", owner=SET)
    gang = bench.gang()
    assert (gang.key.name, nodes_of(bench, gang)) == ("web-2", ["n2"])
    bench.engine.answer(gang.key, "no room")
    told = eventually(lambda: condition(cluster, "web-2", "PodScheduled"))
    assert told.startswith(f"no room; the kubelet of node n1 turned pods of its owner away ({WORDS})")
    assert cluster.get("pods", "web-2", NAMESPACE)["spec"].get("nodeName") is None  # type: ignore[index]


def test_no_more_pods_are_bound_to_a_node_than_its_kubelet_takes(cluster: StandinCluster, bench: AdoptingBench) -> None:
    cluster.add_node("n1", others={"pods": "2"})
    for number in (1, 2, 3):
        foreign_pod(cluster, f"web-{number}", owner=SET)
    gangs = eventually(lambda: found if len(found := bench.engine.gangs()) == 3 else None)
    for number, gang in enumerate(gangs, 1):
        bench.stand_for(gang.key, f"{gang.key.name}-abcde")
        bench.engine.apply([start(number, f"{gang.key.name}-abcde", ("n1",))])
    refused = bench.next(Refused)
    assert (refused.decision, refused.reason) == (3, "node n1 has as many pods as its kubelet takes")
    assert refused.device_fault, "it is tried again"
    for gang in gangs[:2]:
        bench.bound(gang.key.name)
        cluster.run(gang.key.name)
    eventually(lambda: not next(node for node in bench.engine.inventory().nodes if node.name == "n1").schedulable)
    cluster.finish(gangs[0].key.name)
    assert bench.next(Ended).outcome is Outcome.SUCCESS
    bench.engine.apply([start(4, f"{gangs[2].key.name}-abcde", ("n1",))])
    bench.bound(gangs[2].key.name)


def test_a_gang_with_more_pods_than_a_kubelet_takes_is_not_bound(cluster: StandinCluster, bench: AdoptingBench) -> None:
    cluster.add_node("n1", others={"pods": "1"})
    for number in (1, 2):
        foreign_pod(cluster, f"pair-{number}", annotations={"millpond.io/gang": "a", "millpond.io/gang-size": "2"})
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB, ("n1", "n1"))])
    assert "as many pods as its kubelet takes" in bench.next(Refused).reason
    assert not any(request.endswith("/binding") for request in cluster.requests)
