"""The engine goes on through what happens to a cluster and to itself: cuts, restarts, nodes that come and go."""

from __future__ import annotations

from dataclasses import replace
from threading import Event as Moment

import pytest
from pod_bench import PodBench, eventually, start
from standin_cluster import NAMESPACE, StandinCluster, refusal

from millpond.engines.kubernetes import engine
from millpond.engines.kubernetes.cluster import api_channel, cluster_view
from millpond.engines.kubernetes.cluster.cluster_lease import LeaseTimes
from millpond.engines.kubernetes.cluster.cluster_nodes import TOLERATED, NodeRules
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.cluster.reflector import Reflector
from millpond.engines.kubernetes.pods.pod_executor import PodExecutor
from millpond.model.errors import InconsistentStateError, UnavailableError
from millpond.model.events import Confirmed, Ended, Event, NodeJoined, NodeLost
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId

POD = "train-abcde-1-0"
TASK = TaskId("train-abcde", 1, 0)


def node_of(bench: PodBench, name: str) -> Node:
    return next(node for node in bench.engine.inventory().nodes if node.name == name)


def free_cards(node: Node) -> int:
    return sum(device.health is DeviceHealth.OK for device in node.devices)


def foreign_pod(cards: int, cpu: str = "2", memory: str = "4Gi") -> dict[str, object]:
    requests = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(cards)}
    return {
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }


def test_nodes_are_described_as_their_labels_and_kubelets_say(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.add_node(
        "n3", 4, {"millpond.io/pool": "dev", "topology.kubernetes.io/zone": "z1", "millpond.io/rack": "r7"}
    )
    joined = bench.next(NodeJoined).node
    assert (joined.name, joined.pool, joined.zone_name, joined.rack_name) == ("n3", "dev", "z1", "r7")
    assert (joined.cpu_milli, joined.memory_mib, len(joined.devices)) == (32_000, 131_072, 4)
    assert {device.model for device in node_of(bench, "n1").devices} == {"V100"}


def test_nodes_without_the_label_are_not_touched(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.add_node("theirs", labels={})
    cluster.add_node("ours")
    assert bench.next(NodeJoined).node.name == "ours"
    assert {node.name for node in bench.engine.inventory().nodes} == {"n1", "n2", "ours"}


def test_pods_of_others_count_at_once_and_until_they_end(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.put("pods", "theirs", foreign_pod(3), "elsewhere")
    node = bench.next(NodeJoined).node
    assert (free_cards(node), node.cpu_milli, node.memory_mib) == (5, 30_000, 131_072 - 4096)
    cluster.put("pods", "theirs", foreign_pod(3) | {"status": {"phase": "Succeeded"}}, "elsewhere")
    assert free_cards(bench.next(NodeJoined).node) == 8


def test_a_cluster_that_was_restored_from_a_backup_is_followed_from_there(
    cluster: StandinCluster, bench: PodBench
) -> None:
    bench.started()
    for number in range(50):
        cluster.put("pods", f"theirs-{number}", foreign_pod(0), "elsewhere")
    cluster.put("pods", "last", foreign_pod(1), "elsewhere")
    bench.next(NodeJoined)
    cluster.restore()
    cluster.put("pods", "later", foreign_pod(2), "elsewhere")
    cluster.finish(POD)
    assert bench.next(Ended).outcome is Outcome.SUCCESS
    eventually(lambda: free_cards(node_of(bench, "n1")) == 5)


def test_a_pod_that_cannot_be_handled_keeps_none_of_the_others_from_counting(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(view: cluster_view.ClusterView, key: str, pod: PodObject) -> None:
        if pod.metadata.name == "odd":
            raise KeyError("odd")

    monkeypatch.setattr(cluster_view.ClusterView, "_note_neighbour", noted)
    cluster.put("pods", "odd", foreign_pod(1), "elsewhere")
    cluster.put("pods", "theirs", foreign_pod(3), "elsewhere")
    assert free_cards(bench.next(NodeJoined).node) == 4


def test_an_engine_that_cannot_follow_the_cluster_any_more_says_so(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reflector, "_take", _broken)
    cluster.add_node("n3")
    with pytest.raises(InconsistentStateError, match="odd"):
        eventually(lambda: bench.engine.events() and False)


def test_a_decision_that_is_not_carried_out_by_a_defect_ends_the_engine(
    bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PodExecutor, "carry_out", _broken)
    bench.engine.apply([start(1)])
    with pytest.raises(InconsistentStateError, match="odd"):
        eventually(lambda: bench.engine.events() and False)


def _broken(*_arguments: object) -> None:
    raise KeyError("odd")


def test_cards_of_own_pods_are_not_those_that_others_use(cluster: StandinCluster, bench: PodBench) -> None:
    bench.started(cards=2)
    cluster.put("pods", "theirs", foreign_pod(6), "elsewhere")
    node = bench.next(NodeJoined).node
    assert [device.health is DeviceHealth.OK for device in node.devices] == [True, True] + 6 * [False]


def test_a_node_whose_label_is_taken_away_is_closed_until_what_runs_there_has_ended(
    cluster: StandinCluster, bench: PodBench
) -> None:
    bench.started()
    cluster.add_node("n1", labels={})
    closed = bench.next(NodeJoined).node
    assert not closed.schedulable
    assert "millpond.io/pool" in closed.unschedulable_reason
    cluster.finish(POD)
    assert bench.next(Ended).outcome is Outcome.SUCCESS
    assert bench.next(NodeLost).node == "n1"


def test_a_cordon_and_a_silent_kubelet_close_a_node(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.add_node("n1", unschedulable=True)
    closed = bench.next(NodeJoined).node
    assert not closed.schedulable
    assert not closed.is_silent
    assert "cordoned in Kubernetes" in closed.unschedulable_reason
    cluster.add_node("n1", ready=False)
    silent = bench.next(NodeJoined).node
    assert silent.is_silent
    assert "not ready" in silent.unschedulable_reason
    cluster.add_node("n1")
    node = bench.next(NodeJoined).node
    assert (node.schedulable, node.is_silent) == (True, False)


def test_a_node_with_a_taint_is_open_where_pods_are_to_tolerate_that(cluster: StandinCluster, bench: PodBench) -> None:
    bench.close()
    bench.options = replace(bench.options, nodes=NodeRules(tolerated=(*TOLERATED, "dedicated")))
    for name, key in (("n1", "dedicated"), ("n2", "other")):
        cluster.add_node(name, taints=[{"key": key, "value": "x", "effect": "NoSchedule"}])
    bench.open()
    assert node_of(bench, "n1").schedulable
    assert "taint other, which Millpond's pods do not tolerate" in node_of(bench, "n2").unschedulable_reason
    bench.engine.apply([start(1)])
    tolerated = {each["key"] for each in bench.bound(POD)["spec"]["tolerations"]}
    assert tolerated == {"millpond.io/pool", "nvidia.com/gpu", "amd.com/gpu", "dedicated"}


def test_a_node_with_as_many_pods_as_its_kubelet_takes_is_closed_until_one_of_them_ends(
    cluster: StandinCluster, bench: PodBench
) -> None:
    cluster.add_node("n1", others={"pods": "3"})
    cluster.put("pods", "theirs", foreign_pod(0), "elsewhere")
    cluster.put("pods", "done", foreign_pod(0) | {"status": {"phase": "Failed"}}, "elsewhere")
    bench.started()
    eventually(lambda: node_of(bench, "n1").cpu_milli == 30_000)
    assert node_of(bench, "n1").schedulable
    cluster.put("pods", "more", foreign_pod(0), "elsewhere")
    eventually(lambda: node_of(bench, "n1").cpu_milli == 28_000)
    assert "as many pods as its kubelet takes" in node_of(bench, "n1").unschedulable_reason
    cluster.finish(POD)
    eventually(lambda: node_of(bench, "n1").schedulable)
    bench.started(2, job="next-abcde")
    eventually(lambda: not node_of(bench, "n1").schedulable)
    cluster.remove("pods", "more", "elsewhere")
    eventually(lambda: node_of(bench, "n1").schedulable)


def test_a_node_that_is_deleted_is_lost(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.remove("nodes", "n2", "")
    assert bench.next(NodeLost).node == "n2"


def test_a_kubelet_that_stays_silent_loses_its_node_and_what_comes_back_of_it_is_ended(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_view, "LOOK_EVERY_S", 0.01)
    bench.close()
    bench.options = replace(bench.options, node_timeout_s=0.05)
    bench.open()
    bench.started()
    cluster.add_node("n1", ready=False)
    assert bench.next(NodeLost).node == "n1"
    eventually(lambda: (cluster.get("pods", POD) or {}).get("metadata", {}).get("deletionTimestamp"))
    cluster.add_node("n1")
    node = bench.next(NodeJoined).node
    assert (free_cards(node), node.cpu_milli) == (7, 28_000), "what is left of the lost run still has its card"
    cluster.remove("pods", POD)
    assert free_cards(bench.next(NodeJoined).node) == 8


def test_a_node_that_fell_silent_long_before_a_server_began_is_lost_from_its_start_unless_work_may_run_there(
    cluster: StandinCluster, bench: PodBench
) -> None:
    bench.started()
    bench.close()
    for name in ("n1", "n2"):
        cluster.add_node(name, ready=False)
        silent = cluster.get("nodes", name, "")
        assert silent is not None
        silent["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-24T10:00:00Z"
        cluster.put("nodes", name, silent)
    bench.open()
    assert [node.name for node in bench.engine.inventory().nodes] == ["n1"]
    cluster.add_node("n2")
    assert eventually(lambda: [each for each in bench.engine.inventory().nodes if each.name == "n2"])


def test_a_cut_watch_goes_on_where_it_was(cluster: StandinCluster, bench: PodBench) -> None:
    lists = cluster.requests.count("GET /api/v1/pods")
    cluster.cut_watches()
    bench.started()
    cluster.finish(POD)
    assert bench.next(Ended).outcome is Outcome.SUCCESS
    assert cluster.requests.count("GET /api/v1/pods") <= lists + 3


def test_history_that_the_cluster_no_longer_has_is_listed_anew(cluster: StandinCluster, bench: PodBench) -> None:
    bench.started()
    cluster.finish("train-abcde-1-0", 0)
    cluster.remove("nodes", "n2", "")
    cluster.forget_history()
    cluster.cut_watches()
    assert bench.next(Ended).outcome is Outcome.SUCCESS
    assert "n2" not in {node.name for node in bench.engine.inventory().nodes}


def test_lists_are_read_page_by_page(cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        cluster.add_node(f"more-{number}")
    bench.close()
    monkeypatch.setattr("millpond.engines.kubernetes.cluster.reflector.PAGE", 2)
    bench.open()
    assert len(bench.engine.inventory().nodes) == 9


def test_a_server_of_the_api_that_is_away_costs_time_and_nothing_else(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.stop()
    bench.engine.apply([start(1)])
    cluster.start()
    bench.bound(POD)
    cluster.run(POD)
    assert bench.next(Confirmed).decision == 1
    cluster.stop()
    cluster.finish(POD)
    cluster.start()
    assert bench.next(Ended).outcome is Outcome.SUCCESS
    assert cluster.requests.count(f"POST /api/v1/namespaces/{NAMESPACE}/pods") == 1


def test_nothing_new_starts_on_nodes_of_a_cluster_that_is_away_for_long(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setattr("millpond.engines.kubernetes.cluster.cluster_view.LOOK_AT_LEASE_EVERY_S", 0.02)
    bench.options = replace(bench.options, lease=LeaseTimes(lasts_s=0.6, holds_s=0.3, renewed_every_s=0.05))
    bench.open()
    bench.started()
    said: list[Event] = []

    def nodes() -> dict[str, Node]:
        """As they were reported last."""
        said.extend(bench.engine.events())
        return {event.node.name: event.node for event in said if isinstance(event, NodeJoined)}

    cluster.stop()
    eventually(lambda: {name for name, node in nodes().items() if not node.schedulable} == {"n1", "n2"})
    assert "API server of the cluster does not answer: what runs there goes on" in nodes()["n1"].unschedulable_reason
    assert all(node.is_silent for node in nodes().values())
    assert len(bench.engine.inventory().tasks) == 1
    words = 'namespaces "team" not found'
    cluster.refuses = lambda request, _: refusal(404, "NotFound", words) if "leases" in request else None
    cluster.start()
    eventually(lambda: words in nodes()["n1"].unschedulable_reason)
    cluster.refuses = lambda _request, _: None
    eventually(lambda: all(node.schedulable and not node.is_silent for node in nodes().values()))
    assert not any(isinstance(event, NodeLost | Ended) for event in said)


def test_a_server_that_asks_for_patience_is_asked_again(cluster: StandinCluster, bench: PodBench) -> None:
    turned_away: list[str] = []

    def busy(request: str, _: object) -> object:
        if request.startswith("POST") and len(turned_away) < 3:
            turned_away.append(request)
            return refusal(429, "TooManyRequests", "slow down")
        return None

    cluster.refuses = busy  # type: ignore[assignment]
    bench.started()
    assert len(turned_away) == 3


def test_the_next_engine_finds_what_runs_and_what_ended_meanwhile(cluster: StandinCluster, bench: PodBench) -> None:
    bench.started()
    bench.started(2, job="other-abcde")
    bench.close()
    cluster.finish("other-abcde-1-0", 3, "Error")
    bench.open([TASK, TaskId("other-abcde", 1, 0), TaskId("gone-abcde", 1, 0)])
    ends = {event.job: event.outcome for event in (bench.next(Ended), bench.next(Ended))}
    assert ends == {"gone-abcde": Outcome.NODE_LOST, "other-abcde": Outcome.USER_ERROR}
    cluster.finish(POD)
    assert bench.next(Ended).outcome is Outcome.SUCCESS


def test_a_start_that_was_not_answered_is_found_and_not_made_twice(cluster: StandinCluster, bench: PodBench) -> None:
    decision = start(1)
    bench.engine.apply([decision])
    uid = bench.bound(POD)["metadata"]["uid"]
    bench.close()
    cluster.run(POD)
    bench.open([TASK], [decision])
    assert bench.next(Confirmed).decision == 1
    assert bench.bound(POD)["metadata"]["uid"] == uid


def test_pods_of_a_start_that_was_not_answered_are_asked_for_again_only_where_they_are_not_seen_to_be_bound(
    cluster: StandinCluster, bench: PodBench
) -> None:
    whole, half = start(1, nodes=["n1", "n2"]), start(2, job="half-abcde", nodes=["n1", "n2"])
    bench.engine.apply([whole, half])
    pods = [f"{job}-1-{task}" for job in (whole.job, half.job) for task in range(2)]
    for pod in pods:
        bench.bound(pod)
    bench.close()
    cluster.remove("pods", "half-abcde-1-1")
    asked = len(cluster.requests)
    bench.open([TaskId(each.job, 1, task) for each in (whole, half) for task in range(2)], [whole, half])
    bench.bound("half-abcde-1-1")
    for pod in pods:
        cluster.run(pod)
    assert {bench.next(Confirmed).decision, bench.next(Confirmed).decision} == {1, 2}
    made = [each for each in cluster.requests[asked:] if each.startswith("POST") and "/pods" in each]
    assert made == ["POST /api/v1/namespaces/team/pods", "POST /api/v1/namespaces/team/pods/half-abcde-1-1/binding"]


def test_pods_of_a_start_that_was_not_answered_are_never_taken_for_those_of_others(
    cluster: StandinCluster, bench: PodBench
) -> None:
    decision = start(1)
    bench.engine.apply([decision])
    bench.bound(POD)
    bench.close()
    bench.seen.clear()
    bench.open([TASK], [decision])
    cluster.run(POD)

    def is_confirmed() -> bool:
        bench.seen += bench.engine.events()
        return any(isinstance(event, Confirmed) for event in bench.seen)

    eventually(is_confirmed)
    told = [event.node for event in bench.seen if isinstance(event, NodeJoined)]
    assert [free_cards(node) for node in (*told, node_of(bench, "n1"))] == [8] * (len(told) + 1)


def test_a_pod_of_ours_that_the_core_does_not_know_is_ended_and_those_of_others_are_not(
    cluster: StandinCluster, bench: PodBench
) -> None:
    bench.started()
    bench.close()
    cluster.put("pods", "theirs", foreign_pod(1), NAMESPACE)
    cluster.put("secrets", "train-abcde-1", {}, NAMESPACE)
    bench.open()
    eventually(lambda: cluster.names("secrets") == [])
    eventually(lambda: (cluster.get("pods", POD) or {}).get("metadata", {}).get("deletionTimestamp"))
    assert (cluster.get("pods", "theirs") or {})["metadata"].get("deletionTimestamp") is None


def test_an_unreachable_cluster_is_said_with_its_address(cluster: StandinCluster, bench: PodBench) -> None:
    bench.close()
    cluster.stop()
    with pytest.raises(UnavailableError, match=f"{cluster.address}"):
        bench.open()
    cluster.start()
    bench.open()


def test_an_api_server_that_turns_lists_away_is_given_up_and_one_that_answers_is_waited_for_as_long_as_it_takes(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    with monkeypatch.context() as impatient:
        impatient.setattr(engine, "READY_WITHIN_S", 0.0)
        cluster.refuses = lambda request, _: refusal(503, "ServiceUnavailable", "busy") if "nodes" in request else None
        with pytest.raises(UnavailableError, match="busy"):
            bench.open()
        cluster.refuses = lambda _request, _: None
        bench.open()


def test_an_api_server_that_is_late_with_a_list_is_asked_again(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setattr(api_channel, "REQUEST_WITHIN_S", 0.3)
    given_up, late = Moment(), [True]

    def keep_waiting(request: str, _: object) -> None:
        if "nodes" in request and late:
            late.pop()
            given_up.wait(0.5)

    cluster.refuses = keep_waiting
    bench.open()
    assert not late
    assert {node.name for node in bench.engine.inventory().nodes} == {"n1", "n2"}


def test_a_list_whose_rest_the_cluster_no_longer_has_is_begun_anew_at_the_start(
    cluster: StandinCluster, bench: PodBench
) -> None:
    bench.close()
    expired = [refusal(410, "Expired", "The provided continue parameter is too old")]
    cluster.refuses = lambda request, _: expired.pop() if "nodes" in request and expired else None
    bench.open()
    assert {node.name for node in bench.engine.inventory().nodes} == {"n1", "n2"}


def test_a_part_of_a_list_that_does_not_come_is_asked_for_again_without_those_before_it(
    cluster: StandinCluster, bench: PodBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_node("n3")
    bench.close()
    monkeypatch.setattr("millpond.engines.kubernetes.cluster.reflector.PAGE", 1)
    asked = cluster.requests.count("GET /api/v1/nodes")
    answers = [refusal(429, "TooManyRequests", "busy"), refusal(503, "ServiceUnavailable", "busy"), None]
    cluster.refuses = lambda request, _: answers.pop() if "nodes" in request and answers else None
    bench.open()
    assert {node.name for node in bench.engine.inventory().nodes} == {"n1", "n2", "n3"}
    assert cluster.requests.count("GET /api/v1/nodes") - asked <= 3 + 2 + 1  # parts, again, and a watch


def test_all_nodes_are_taken_where_the_configuration_says_so(cluster: StandinCluster, bench: PodBench) -> None:
    cluster.add_node("theirs", labels={})
    bench.close()
    bench.options = replace(bench.options, nodes=NodeRules(all_nodes=True))
    bench.open()
    assert node_of(bench, "theirs").pool == "default"
