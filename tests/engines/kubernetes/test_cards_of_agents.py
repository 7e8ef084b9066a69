"""Nodes with Millpond's agent: their cards are known by UUID, given out in parts, and never twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from foreign_pods import JOB, AdoptingBench, condition, foreign_pod
from pod_bench import PodBench, eventually
from standin_agent import CARDS, add_agent
from standin_cluster import StandinCluster, refusal
from starlette.responses import JSONResponse

from millpond.engines.kubernetes.cluster import bind_turns
from millpond.engines.kubernetes.cluster.agent_report import (
    AGENT_LABEL,
    AGENT_NAMESPACE,
    LOADS_ANNOTATION,
    AgentReport,
    loads_text,
)
from millpond.engines.kubernetes.cluster.cluster_nodes import MILLI
from millpond.model.decisions import Grant, Placement, Start
from millpond.model.events import Confirmed, NodeJoined, Refused
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.node_selection import selects
from millpond.model.hardware.nodes import Node
from millpond.model.reasons import Cause
from millpond.model.resources import SHARE_OF_CARD, SliceRequest, TaskRequest
from millpond.model.sharing import SliceHold


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[PodBench]:
    add_agent(cluster)
    with PodBench(cluster, tmp_path) as bench:
        yield bench


def node_of(bench: PodBench) -> Node:
    return next(node for node in bench.engine.inventory().nodes if node.name == "n1")


def starts(number: int, job: str, *parts: Grant) -> Start:
    placements = tuple(Placement(task, "worker", "n1", (grant,)) for task, grant in enumerate(parts))
    return Start(number, job, 1, Cause.FITS, placements)


def part(card: int = 0, milli: int = 250) -> Grant:
    return Grant(f"GPU-{card}", milli, milli, 4096)


def busy(node: Node) -> dict[str, str]:
    return {each.uuid: each.health_detail for each in node.devices if each.health is DeviceHealth.BUSY_ELSEWHERE}


def test_cards_are_known_by_uuid_with_what_their_agent_says_of_them(bench: PodBench) -> None:
    node = node_of(bench)
    assert node.devices == CARDS
    assert node.extras == (("gpu-slices", 128),)
    assert bench.engine.why_nothing_is_shared() == bench.engine.why_nothing_is_shared("default") == ""
    assert "no node of the cluster has an agent" in bench.engine.why_nothing_is_shared("other")


def test_single_cards_can_be_closed_where_agents_give_out_all_of_them(bench: PodBench, cluster: StandinCluster) -> None:
    assert "its kubelet and device plugin choose" in bench.engine.why_no_card_is_closed()
    cluster.remove("nodes", "n2", "")
    eventually(lambda: bench.engine.why_no_card_is_closed() == "")


def test_a_part_of_a_card_is_asked_of_the_kubelet_and_ordered_of_the_agent(
    bench: PodBench, cluster: StandinCluster
) -> None:
    bench.launch = replace(bench.launch, swappable=True)
    bench.engine.apply([starts(1, "train-abcde", part(1))])
    pod = bench.bound("train-abcde-1-0")
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {MILLI: "250"}
    ordered = json.loads(pod["metadata"]["annotations"]["millpond.io/grants"])
    assert ordered["grants"] == [{"device": "GPU-1", "compute_milli": 250, "limit_milli": 250, "memory_mib": 4096}]
    assert ordered["swappable"] is True
    cluster.run("train-abcde-1-0")
    assert bench.next(Confirmed).confinement.slices is SliceHold.GATE


def test_a_slice_by_memory_alone_asks_for_what_the_kubelet_can_count(bench: PodBench) -> None:
    bench.engine.apply([starts(1, "train-abcde", part(0, 0))])
    (container,) = bench.bound("train-abcde-1-0")["spec"]["containers"]
    assert container["resources"]["limits"] == {MILLI: "1"}


def test_pods_are_bound_to_a_node_one_at_a_time_as_its_kubelet_takes_them(
    bench: PodBench, cluster: StandinCluster
) -> None:
    bench.engine.apply([starts(1, "one-aaaaa", part()), starts(2, "two-bbbbb", part(1))])
    bench.engine.apply([Start(3, "cpu-ccccc", 1, Cause.FITS, (Placement(0, "worker", "n1"),))])

    def bound() -> set[str]:
        pods = (cluster.get("pods", name) for name in cluster.names("pods") if name.endswith("-1-0"))
        return {pod["metadata"]["name"] for pod in pods if pod and pod["spec"].get("nodeName")}

    bench.bound("cpu-ccccc-1-0")
    eventually(lambda: len(bound()) == 2)
    (first,) = bound() - {"cpu-ccccc-1-0"}
    (second,) = {"one-aaaaa-1-0", "two-bbbbb-1-0"} - {first}
    assert cluster.get("pods", second) is not None
    cluster.set_state(first, "Pending", {"waiting": {"reason": "ContainerCreating"}})
    bench.bound(second)


def test_cards_of_an_agent_that_is_silent_or_gone_are_given_to_nobody(bench: PodBench, cluster: StandinCluster) -> None:
    add_agent(cluster, milli=0)
    assert set(busy(bench.next(NodeJoined).node)) == {"GPU-0", "GPU-1"}
    cluster.remove("pods", "agent-of-n1", AGENT_NAMESPACE)
    assert "does not answer" in busy(node_of(bench))["GPU-0"]
    add_agent(cluster)
    assert busy(bench.next(NodeJoined).node) == {}


def said_of_cards(cluster: StandinCluster) -> tuple[str, str] | None:
    plain = cluster.get("nodes", "n1", "") or {"status": {}}
    found = [each for each in plain["status"].get("conditions", []) if each["type"] == "MillpondCardsHealthy"]
    return (found[0]["status"], found[0]["message"]) if found else None


def test_a_node_says_how_its_cards_are_and_whether_its_agent_answers(bench: PodBench, cluster: StandinCluster) -> None:
    eventually(lambda: said_of_cards(cluster) == ("True", "2 cards"))
    failing = replace(CARDS[1], health=DeviceHealth.FAULTY, health_detail="it fell off the bus")
    report(cluster, CARDS[0], failing)
    eventually(lambda: said_of_cards(cluster) == ("False", "card 1 (GPU-1): it fell off the bus"))
    report(cluster, *CARDS)
    eventually(lambda: said_of_cards(cluster) == ("True", "2 cards"))
    report(cluster, *CARDS, driver_away="library and driver differ")
    away = "the driver does not say how the cards are: library and driver differ"
    eventually(lambda: said_of_cards(cluster) == ("Unknown", away))
    assert busy(node_of(bench)) == {"GPU-0": away, "GPU-1": away}
    add_agent(cluster, milli=0)
    silent = "Millpond's agent of this node does not answer the kubelet"
    eventually(lambda: said_of_cards(cluster) == ("Unknown", silent))


@pytest.mark.parametrize(("code", "writes_on"), [(403, False), (409, True), (422, True)])
def test_a_node_that_was_changed_at_the_same_moment_says_it_later_and_one_that_may_not_be_changed_is_let_be(
    bench: PodBench, cluster: StandinCluster, code: int, writes_on: bool
) -> None:
    patch = "PATCH /api/v1/nodes/n1/status"
    eventually(lambda: said_of_cards(cluster) == ("True", "2 cards"))
    before = cluster.requests.count(patch)
    cluster.refuses = lambda request, _: refusal(code, "No", "no") if request == patch else None
    report(cluster, CARDS[0])
    eventually(lambda: cluster.requests.count(patch) == before + 1)
    eventually(lambda: len(node_of(bench).devices) == 1)
    cluster.refuses = lambda _request, _body: None
    report(cluster, *CARDS, driver_away="away")
    eventually(lambda: len(busy(node_of(bench))) == 2)
    if writes_on:
        eventually(lambda: (said_of_cards(cluster) or ("",))[0] == "Unknown")
    assert (cluster.requests.count(patch) > before + 1) is writes_on


def report(cluster: StandinCluster, *cards: Device, driver_away: str = "") -> None:
    """The agent of n1 reports its cards anew."""
    agent = cluster.get("pods", "agent-of-n1", AGENT_NAMESPACE)
    assert agent is not None
    agent["metadata"]["annotations"]["millpond.io/cards"] = AgentReport(cards, driver_away=driver_away).text()
    cluster.put("pods", "agent-of-n1", agent, AGENT_NAMESPACE)


def test_what_agents_measured_of_their_own_cards_is_known_until_their_nodes_are_lost(
    bench: PodBench, cluster: StandinCluster
) -> None:
    agent = cluster.get("pods", "agent-of-n1", AGENT_NAMESPACE)
    assert agent is not None
    agent["metadata"]["annotations"][LOADS_ANNOTATION] = loads_text({"GPU-1": 250, "GPU-of-another-node": 900})
    cluster.put("pods", "agent-of-n1", agent, AGENT_NAMESPACE)
    eventually(lambda: bench.engine.card_loads() == {"GPU-1": 250})
    cluster.remove("nodes", "n1", "")
    eventually(lambda: bench.engine.card_loads() == {})


def test_nodes_say_nothing_where_the_server_may_not_write_it(cluster: StandinCluster, tmp_path: Path) -> None:
    def refuses(request: str, _body: object) -> JSONResponse | None:
        return refusal(403, "Forbidden", "nodes/status is forbidden") if request.endswith("/nodes/n1/status") else None

    cluster.refuses = refuses
    add_agent(cluster)
    bench = PodBench(cluster, tmp_path)
    bench.open()
    eventually(lambda: "PATCH /api/v1/nodes/n1/status" in cluster.requests)
    report(cluster, CARDS[0], replace(CARDS[1], health=DeviceHealth.FAULTY))
    bench.next(NodeJoined)
    bench.engine.apply([starts(1, "train-abcde", part(0))])
    bench.bound("train-abcde-1-0")
    assert cluster.requests.count("PATCH /api/v1/nodes/n1/status") == 1
    bench.close()


def test_an_agent_elsewhere_than_in_its_namespace_is_not_believed(bench: PodBench, cluster: StandinCluster) -> None:
    forged = AgentReport((Device("GPU-9", 0, "nvidia", "H200"),)).text()
    meta = {"labels": dict([AGENT_LABEL]), "annotations": {"millpond.io/cards": forged}}
    cluster.put("pods", "forged", {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {}}, "elsewhere")
    add_agent(cluster, link_map="nvswitch-8")
    assert bench.next(NodeJoined).node.devices == CARDS


def test_cards_that_the_vendors_plugin_gave_out_too_are_not_given_out_again(
    bench: PodBench, cluster: StandinCluster
) -> None:
    asks = {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    theirs = {"spec": {"nodeName": "n1", **asks}, "status": {"phase": "Running"}}
    cluster.put("pods", "theirs", theirs, "elsewhere")
    assert all("it is not known which" in why for why in busy(bench.next(NodeJoined).node).values())
    add_agent(cluster, others={"GPU-1": "elsewhere/theirs"})
    assert busy(bench.next(NodeJoined).node) == {"GPU-1": "pod elsewhere/theirs has it from the vendor's device plugin"}


def test_a_card_that_a_forged_order_claims_is_given_to_nobody_else(bench: PodBench, cluster: StandinCluster) -> None:
    order = '{"grants":[{"device":"GPU-0","compute_milli":500,"limit_milli":500,"memory_mib":1}]}'
    meta = {"annotations": {"millpond.io/grants": order}}
    cluster.put("pods", "forged", {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {}}, "elsewhere")
    assert "elsewhere/forged" in busy(bench.next(NodeJoined).node)["GPU-0"]


@pytest.fixture
def adopting(cluster: StandinCluster, tmp_path: Path) -> Iterator[AdoptingBench]:
    add_agent(cluster)
    with AdoptingBench(cluster, tmp_path) as bench:
        yield bench


def asking(cluster: StandinCluster, name: str, env: tuple[str, ...] = (), **requests: str) -> None:
    amounts = {
        "cpu": "1",
        "memory": "1Gi",
        **{f"millpond.io/{key.replace('_', '-')}": text for key, text in requests.items()},
    }
    variables = [{"name": each, "value": "x"} for each in env]
    foreign_pod(cluster, name, containers=[{"name": "task", "env": variables, "resources": {"requests": amounts}}])


def test_a_pod_of_others_is_given_a_part_of_a_card(adopting: AdoptingBench, cluster: StandinCluster) -> None:
    asking(cluster, "theirs", gpu_milli="300", gpu_memory_mib="2048")
    gang = adopting.gang()
    wanted = SliceRequest(300, 2048, 300)
    assert gang.roles[0].request == TaskRequest(1000, 1024, 1, wanted, extras=(("gpu-slices", 1),))
    adopting.stand_for(gang.key)
    adopting.engine.apply([starts(1, JOB, Grant("GPU-0", 300, 300, 2048))])
    annotations = adopting.bound("theirs")["metadata"]["annotations"]
    assert json.loads(annotations["millpond.io/grants"])["grants"][0]["memory_mib"] == 2048


def test_a_pod_of_others_that_cannot_be_bound_holds_up_none_behind_it(
    adopting: AdoptingBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bind_turns, "PATIENCE_S", 600.0)
    cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if request.endswith("/bad/binding") else None
    for number, name in enumerate(("bad", "good"), 1):
        asking(cluster, name, gpu_milli="300")
        (key,) = eventually(lambda name=name: [g.key for g in adopting.engine.gangs() if g.key.name == name])
        adopting.stand_for(key, f"{name}-abcde")
        adopting.engine.apply([starts(number, f"{name}-abcde", part(milli=300))])
    assert adopting.next(Refused).decision == 1
    adopting.bound("good")


def test_whole_cards_and_parts_without_a_memory_are_asked_for_by_their_thousandths(
    adopting: AdoptingBench, cluster: StandinCluster
) -> None:
    asking(cluster, "theirs", gpu_milli="2000")
    assert (adopting.gang().roles[0].request.devices, adopting.gang().roles[0].request.slice) == (2, SliceRequest())
    cluster.remove("pods", "theirs")
    asking(cluster, "part", gpu_milli="10")
    eventually(lambda: adopting.engine.gangs() and adopting.engine.gangs()[0].key.name == "part")
    assert adopting.gang().roles[0].request.slice == SliceRequest(10, SHARE_OF_CARD, 10)


@pytest.mark.parametrize(
    ("requests", "env", "words"),
    [
        ({"gpu_milli": "1500"}, (), "ask for a part of one card, or for whole cards"),
        ({"gpu_milli": "333"}, (), "in steps of 10, one percent of a card"),
        ({"gpu_milli": "1000", "gpu_memory_mib": "1024"}, (), "is of a part of a card"),
        ({"gpu_milli": "200"}, ("LD_PRELOAD",), "its container sets LD_PRELOAD"),
    ],
)
def test_what_cannot_be_given_of_a_card_is_said_on_the_pod(
    adopting: AdoptingBench, cluster: StandinCluster, requests: dict[str, str], env: tuple[str, ...], words: str
) -> None:
    asking(cluster, "theirs", env, **requests)
    assert words in eventually(lambda: condition(cluster, "theirs"))


def test_pods_that_ask_the_vendors_plugin_are_kept_off_nodes_with_agents(
    adopting: AdoptingBench, cluster: StandinCluster
) -> None:
    foreign_pod(cluster, "theirs")
    wanted = adopting.gang().terms.selection
    labels = {node.name: node.labels for node in adopting.engine.inventory().nodes}
    assert [name for name in sorted(labels) if selects(wanted, labels[name])] == ["n2"]
