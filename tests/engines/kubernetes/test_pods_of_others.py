"""Pods that others made and that name Millpond as their scheduler: grouped, bound, followed, told, made to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from foreign_pods import JOB, OWNER, AdoptingBench, condition, events_of, foreign_pod, nodes_of
from pod_bench import eventually, start, stop
from standin_cluster import NAMESPACE, StandinCluster, refusal

from millpond.engines.kubernetes import engine
from millpond.engines.kubernetes.adoption import evictions, foreign_pods, gang_book, pod_answers
from millpond.engines.kubernetes.adoption.gangs import GangKey, PodRole
from millpond.engines.kubernetes.adoption.pod_demand import PodDemand, demand_of
from millpond.engines.kubernetes.adoption.pod_objects import PodMeta, ScheduledPod
from millpond.engines.kubernetes.claims.claim_requests import ClaimDemand
from millpond.engines.kubernetes.cluster import reflector
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_nodes import TOLERATED
from millpond.engines.kubernetes.pods.pod_marks import SERVER_LABEL
from millpond.model.contents import Content
from millpond.model.decisions import Prefetch
from millpond.model.events import Confirmed, Ended, Event, NodeJoined, Refused, StopRequested
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.node_selection import NodeSelection, selection_text, selects
from millpond.model.reasons import Cause
from millpond.model.resources import TaskRequest
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[AdoptingBench]:
    with AdoptingBench(cluster, tmp_path) as bench:
        yield bench


def job_of(cluster: StandinCluster, parallelism: int, **spec: Any) -> None:
    plain = {"metadata": {"uid": OWNER["uid"]}, "spec": {"parallelism": parallelism, **spec}}
    cluster.put("jobs.batch", "theirs", plain, NAMESPACE)


def pair(cluster: StandinCluster) -> None:
    """A Job of two pods."""
    job_of(cluster, 2)
    foreign_pod(cluster, "theirs-0", owner=OWNER)
    foreign_pod(cluster, "theirs-1", owner=OWNER)


def bound_pair(cluster: StandinCluster, bench: AdoptingBench) -> None:
    pair(cluster)
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB, ("n1", "n2"))])
    for pod in ("theirs-0", "theirs-1"):
        bench.bound(pod)
        cluster.run(pod)
    assert bench.next(Confirmed).decision == 1


def bound_alone(cluster: StandinCluster, bench: AdoptingBench) -> None:
    """A pod without an owner runs."""
    foreign_pod(cluster, "alone")
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB)])
    bench.bound("alone")
    cluster.run("alone")
    assert bench.next(Confirmed).decision == 1


def test_a_gang_that_cannot_be_looked_at_is_told_so_and_holds_up_no_other(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def demand(pod: ScheduledPod, claims: ClaimDemand, extras: Mapping[str, str]) -> PodDemand:
        if pod.metadata.name == "odd":
            raise KeyError("odd")
        return demand_of(pod, claims, extras)

    monkeypatch.setattr(gang_book, "demand_of", demand)
    foreign_pod(cluster, "odd")
    foreign_pod(cluster, "plain")
    assert bench.gang().key.name == "plain"
    assert eventually(lambda: condition(cluster, "odd")).startswith(
        "Pod team/odd cannot be looked at by a defect (KeyE"
    )


def test_a_pod_that_is_bound_while_others_are_told_why_they_wait_keeps_none_of_these_from_being_told() -> None:
    waiting = {
        GangKey("team", "Pod", name): ScheduledPod(metadata=PodMeta(name=name, namespace="team", uid=name))
        for name in ("a", "b", "c")
    }
    told: list[str] = []

    class Api:
        async def ask(self, _method: str, url: str, *_rest: Any, **_more: Any) -> None:
            told.append(url)
            await answers.scheduled(GangKey("team", "Pod", "b"))

    answers = pod_answers.PodAnswers(cast(ClusterApi, Api()), lambda key: [waiting[key]])
    for key in waiting:
        answers.say(key, "no room")
    asyncio.run(answers.write_due())
    assert [url for url in told if url.endswith("/status")] == [
        f"/api/v1/namespaces/team/pods/{name}/status" for name in ("a", "c")
    ]


def test_a_pass_that_fails_does_not_end_the_words_for_all_pods(
    cluster: StandinCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, failures = pod_answers.PodAnswers.write_due, [KeyError("odd")]

    async def failing(answers: pod_answers.PodAnswers) -> None:
        if failures:
            raise failures.pop()
        await write(answers)

    monkeypatch.setattr(pod_answers.PodAnswers, "write_due", failing)
    bench = AdoptingBench(cluster, tmp_path)
    bench.open()
    try:
        job_of(cluster, 2)
        foreign_pod(cluster, "theirs-0", owner=OWNER)
        assert "1 of the 2 pods" in eventually(lambda: condition(cluster, "theirs-0"))
        assert not failures
    finally:
        bench.close()


def test_the_pods_of_a_job_are_one_gang_that_waits_for_its_last_pod(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    job_of(cluster, 2)
    foreign_pod(cluster, "theirs-0", owner=OWNER)
    told = eventually(lambda: condition(cluster, "theirs-0"))
    assert told == "1 of the 2 pods of Job team/theirs are there; they start together, when all are"
    foreign_pod(cluster, "theirs-1", owner=OWNER)
    gang = bench.gang()
    assert gang.key == GangKey("team", "Job", "theirs", "uid-of-theirs")
    assert gang.roles == (PodRole("worker", TaskRequest(2000, 1024, 1), 2, 2),)


def test_a_gang_that_comes_pod_by_pod_is_not_told_each_time_what_is_missing(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_answers, "SETTLED_S", 60.0)
    monkeypatch.setattr(pod_answers, "LEAST_S", 60.0)
    sized = {"millpond.io/gang": "trio", "millpond.io/gang-size": "3"}
    for number in range(2):
        foreign_pod(cluster, f"p{number}", annotations=sized)
    eventually(lambda: any(gang.trouble.startswith("2 of the 3 pods") for gang in bench.engine.gangs()))
    foreign_pod(cluster, "p2", annotations=sized)
    assert bench.gang().roles[0].count == 3
    monkeypatch.setattr(pod_answers, "SETTLED_S", 0.0)
    foreign_pod(cluster, "next", annotations={"millpond.io/nonsense": "1"})
    eventually(lambda: condition(cluster, "next"))
    assert [condition(cluster, f"p{number}") for number in range(3)] == ["", "", ""]


def test_a_job_that_is_partly_done_waits_for_no_more_pods_than_it_makes(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    cluster.put(
        "jobs.batch", "theirs", {"spec": {"parallelism": 4, "completions": 4}, "status": {"succeeded": 3}}, NAMESPACE
    )
    foreign_pod(cluster, "theirs-again", owner=OWNER)
    assert bench.gang().roles[0].count == 1


@pytest.mark.parametrize("gated", [False, True])
def test_a_server_that_begins_has_all_pods_listed_once(cluster: StandinCluster, tmp_path: Path, gated: bool) -> None:
    foreign_pod(cluster, "theirs")
    foreign_pod(cluster, "no-more", labels={SERVER_LABEL: "another"})
    foreign_pod(cluster, "words", schedulerName="default-scheduler", annotations={"a": '"millpond"'})
    labels, gates = {"millpond.io/queue": "default"}, [{"name": "millpond.io/gate"}]
    foreign_pod(cluster, "held", labels=labels, schedulerName="default-scheduler", schedulingGates=gates)
    for number in range(reflector.PAGE):
        cluster.put("pods", f"filler-{number}", {"spec": {}, "status": {"phase": "Succeeded"}}, NAMESPACE)
    bench = AdoptingBench(cluster, tmp_path, gated=gated)
    bench.open()
    found = {gang.key.name for gang in bench.engine.gangs()}
    asked = cluster.requests[: cluster.requests.index("GET /api/v1/nodes")]
    bench.close()
    assert found == {"theirs", *(["held"] if gated else [])}
    assert asked.count("GET /api/v1/pods") == 2, "in two parts"


def test_a_pod_that_cannot_be_read_keeps_no_other_from_being_seen(
    cluster: StandinCluster, bench: AdoptingBench, caplog: pytest.LogCaptureFixture
) -> None:
    foreign_pod(cluster, "newer", priorityClassName=7)
    foreign_pod(cluster, "plain")
    seen = bench.gang().key
    assert f"{NAMESPACE}/newer cannot be read, and is left out" in caplog.text
    bench.close()
    bench.open()
    assert bench.gang().key == seen, "of a list too"


def test_pods_without_an_owner_of_the_table_start_one_by_one(cluster: StandinCluster, bench: AdoptingBench) -> None:
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    foreign_pod(cluster, "web-1", owner=replicas)
    foreign_pod(cluster, "web-2", owner=replicas)
    gangs = eventually(lambda: found if len(found := bench.engine.gangs()) == 2 else None)
    assert {(gang.key.kind, gang.key.name) for gang in gangs} == {("Pod", "web-1"), ("Pod", "web-2")}


@pytest.mark.parametrize("change", [{"labels": {"jobset.sigs.k8s.io/jobset-name": "set"}}, {"ownerReferences": []}])
def test_a_pod_whose_labels_or_owner_change_leaves_nothing_of_itself_in_its_earlier_gang(
    cluster: StandinCluster, bench: AdoptingBench, change: dict[str, Any]
) -> None:
    job_of(cluster, 1)
    cluster.put("jobsets.jobset.x-k8s.io", "set", {"spec": {"replicatedJobs": [{"replicas": 1}]}}, NAMESPACE)
    foreign_pod(cluster, "theirs-0", owner=OWNER)
    before = bench.gang().key
    there = cluster.get("pods", "theirs-0") or {}
    cluster.put("pods", "theirs-0", {**there, "metadata": {**there["metadata"], **change}}, NAMESPACE)
    eventually(lambda: bench.gang().key != before)
    cluster.remove("pods", "theirs-0")
    eventually(lambda: not bench.engine.gangs())


def test_a_gang_is_bound_with_its_marks_and_followed_to_its_end(cluster: StandinCluster, bench: AdoptingBench) -> None:
    bound_pair(cluster, bench)
    assert [bench.bound(f"theirs-{task}")["spec"]["nodeName"] for task in (0, 1)] == ["n1", "n2"]
    cluster.finish("theirs-0")
    cluster.finish("theirs-1", 3)
    ends = [bench.next(Ended), bench.next(Ended)]
    assert {(end.task, end.outcome, end.exit_code) for end in ends} == {
        (0, Outcome.SUCCESS, 0),
        (1, Outcome.USER_ERROR, 3),
    }
    assert cluster.get("pods", "theirs-0") is not None


def test_bound_pods_are_not_counted_as_those_of_others(cluster: StandinCluster, bench: AdoptingBench) -> None:
    bound_pair(cluster, bench)
    nodes = {node.name: node for node in bench.engine.inventory().nodes}
    assert all(device.health is DeviceHealth.OK for device in nodes["n1"].devices)
    assert nodes["n1"].cpu_milli == 32_000


def test_the_end_of_a_pod_changes_nothing_of_its_node(cluster: StandinCluster, bench: AdoptingBench) -> None:
    bound_pair(cluster, bench)
    bench.seen.clear()

    def said(kind: type[Event]) -> list[Any]:
        bench.seen += bench.engine.events()
        return [event for event in bench.seen if isinstance(event, kind)]

    async def hear_of_others_first() -> None:
        foreign = bench.engine._foreign
        assert foreign is not None
        for pod in list(foreign.pods):
            foreign._deleted(pod)

    bench.engine._ask(hear_of_others_first())
    cluster.remove("pods", "theirs-0")
    cluster.remove("pods", "theirs-1")
    eventually(lambda: len(said(Ended)) == 2 and not bench.engine._view.pods)
    cluster.add_node("n3")
    assert [event.node.name for event in eventually(lambda: said(NodeJoined))] == ["n3"]


def test_a_restarted_engine_goes_on_by_the_marks_of_pods(cluster: StandinCluster, bench: AdoptingBench) -> None:
    bound_pair(cluster, bench)
    bench.close()
    cluster.finish("theirs-1")
    tasks = [TaskId(JOB, 1, 0), TaskId(JOB, 1, 1)]
    bench.open(tasks)
    end = bench.next(Ended)
    assert (end.task, end.outcome) == (1, Outcome.SUCCESS)
    nodes = {node.name: node for node in bench.engine.inventory().nodes}
    assert all(device.health is DeviceHealth.OK for device in nodes["n1"].devices)
    assert not bench.engine.gangs()


def test_a_pod_with_the_marks_of_one_of_another_namespace_does_not_stand_for_its_task(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    bound_alone(cluster, bench)
    bench.close()
    marks = bench.bound("alone")["metadata"]["annotations"]
    foreign_pod(cluster, "forged", annotations=marks, namespace="zoo", nodeName="n2")
    bench.open([TaskId(JOB, 1, 0)])
    cluster.finish("alone")
    assert bench.next(Ended).outcome is Outcome.SUCCESS


def test_a_start_that_was_cut_off_is_finished_and_binds_nothing_twice(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    pair(cluster)
    bench.stand_for(bench.gang().key)
    held: list[str] = []

    def refuses(request: str, _body: Any) -> Any:
        if request.endswith("theirs-1/binding") and not held:
            return refusal(503, "ServiceUnavailable", "not now")
        return None

    cluster.refuses = refuses
    decision = start(1, JOB, ("n1", "n2"))
    bench.engine.apply([decision])
    bench.bound("theirs-0")
    bench.close()
    held.append("no more")
    bench.seen.clear()
    bench.open((), [decision])
    bench.bound("theirs-1")
    cluster.run("theirs-0")
    cluster.run("theirs-1")

    def is_confirmed() -> bool:
        bench.seen += bench.engine.events()
        return any(isinstance(event, Confirmed) for event in bench.seen)

    eventually(is_confirmed)
    told = [event.node for event in bench.seen if isinstance(event, NodeJoined)]
    assert all(device.health is DeviceHealth.OK for node in told for device in node.devices)
    assert bench.bound("theirs-0")["spec"]["nodeName"] == "n1"
    assert cluster.requests.count(f"POST /api/v1/namespaces/{NAMESPACE}/pods/theirs-0/binding") == 1


def test_a_pod_that_another_scheduler_took_has_ended_and_the_others_run(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    pair(cluster)
    bench.stand_for(bench.gang().key)

    def taken_first(request: str, body: Any) -> Any:
        if request.endswith("theirs-1/binding"):
            plain = cluster.get("pods", "theirs-1")
            assert plain is not None
            cluster.put("pods", "theirs-1", {**plain, "spec": {**plain["spec"], "nodeName": "elsewhere"}}, NAMESPACE)
        return None

    cluster.refuses = taken_first
    bench.engine.apply([start(1, JOB, ("n1", "n2"))])
    bench.bound("theirs-0")
    cluster.run("theirs-0")
    bench.next(Confirmed)
    end = bench.next(Ended)
    assert (end.task, end.detail) == (
        1,
        "an admission webhook or another scheduler has bound pod theirs-1 to node elsewhere",
    )
    assert eventually(lambda: events_of(cluster, "theirs-1")) == [f"FailedBinding: {end.detail}"]


def test_a_pod_that_was_deleted_before_its_binding_refuses_the_start(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "alone")
    bench.stand_for(bench.gang().key)
    cluster.remove("pods", "alone")
    bench.engine.apply([start(1, JOB)])
    assert bench.next(Refused).reason in (
        "pod alone was deleted before it was bound",
        "the pods of Pod team/alone are not there: its owner has not made them",
    )


def test_a_missing_right_to_bind_is_told_and_the_start_is_tried_again(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    foreign_pod(cluster, "alone")
    bench.stand_for(bench.gang().key)
    cluster.refuses = lambda request, _: (
        refusal(403, "Forbidden", "user millpond may not create pods/binding") if request.endswith("/binding") else None
    )
    bench.engine.apply([start(1, JOB)])
    refused = bench.next(Refused)
    assert refused.reason == "pod alone cannot be bound to node n1: user millpond may not create pods/binding"
    assert refused.device_fault, "it is not the job's fault, so it is tried again"
    assert eventually(lambda: events_of(cluster, "alone")) == [f"FailedBinding: {refused.reason}"]


def test_an_api_server_that_is_not_ready_yet_is_waited_for(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setattr(engine, "LIST_AGAIN_S", 0.01)
    left = [1, 2, 3]
    cluster.refuses = lambda *_: refusal(503, "ServiceUnavailable", "not now") if left and left.pop() else None
    bench.open()
    foreign_pod(cluster, "alone")
    assert bench.gang().key.name == "alone"


def test_deleting_all_pods_of_a_job_is_its_end_and_no_failure(cluster: StandinCluster, bench: AdoptingBench) -> None:
    bound_pair(cluster, bench)
    cluster.remove("pods", "theirs-0")
    assert bench.next(Ended).outcome is Outcome.STOPPED
    cluster.remove("pods", "theirs-1")
    assert bench.next(StopRequested).reason == "its pods were deleted in Kubernetes"
    assert bench.next(Ended).outcome is Outcome.STOPPED


def test_preempting_a_job_pauses_its_owner_and_its_next_start_lets_it_go_on(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    bound_pair(cluster, bench)
    bench.engine.apply([stop(2, JOB)])
    eventually(lambda: (cluster.get("jobs.batch", "theirs") or {})["spec"].get("suspend"))
    assert "Millpond" in eventually(lambda: condition(cluster, "theirs-0", "DisruptionTarget"))
    for pod in ("theirs-0", "theirs-1"):
        cluster.remove("pods", pod)
        assert bench.next(Ended).outcome is Outcome.STOPPED
    bench.engine.apply([start(3, JOB, ("n1", "n2"), attempt=2)])
    eventually(lambda: not (cluster.get("jobs.batch", "theirs") or {})["spec"]["suspend"])
    foreign_pod(cluster, "theirs-2", owner=OWNER)
    foreign_pod(cluster, "theirs-3", owner=OWNER)
    assert bench.bound("theirs-2")["spec"]["nodeName"] == "n1"
    assert bench.bound("theirs-3")["spec"]["nodeName"] == "n2"


def test_a_start_that_waits_for_pods_ends_when_it_is_stopped(cluster: StandinCluster, bench: AdoptingBench) -> None:
    bound_pair(cluster, bench)
    bench.engine.apply([stop(2, JOB)])
    eventually(lambda: (cluster.get("jobs.batch", "theirs") or {})["spec"].get("suspend"))
    for pod in ("theirs-0", "theirs-1"):
        cluster.remove("pods", pod)
        bench.next(Ended)
    bench.engine.apply([start(3, JOB, ("n1", "n2"), attempt=2)])
    eventually(lambda: not (cluster.get("jobs.batch", "theirs") or {})["spec"]["suspend"])
    bench.engine.apply([stop(4, JOB, attempt=2)])
    assert bench.next(Refused).decision == 3
    assert bench.next(Confirmed).decision == 4


def test_an_owner_that_cannot_be_paused_loses_its_pods_by_eviction(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictions, "AGAIN_S", 0.01)
    bound_alone(cluster, bench)
    cluster.guarded.add("alone")
    bench.engine.apply([stop(2, JOB, 7.0)])
    told = eventually(lambda: [text for text in events_of(cluster, "alone") if text.startswith("EvictionRefused")])
    assert "disruption budget" in told[0]
    cluster.guarded.clear()
    pod = eventually(lambda: p if (p := cluster.get("pods", "alone"))["metadata"].get("deletionTimestamp") else None)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
    cluster.remove("pods", "alone")
    assert bench.next(Ended).outcome is Outcome.STOPPED


def test_a_missing_right_to_evict_is_told_on_the_pod_which_is_asked_until_it_may_be(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictions, "AGAIN_S", 0.01)
    bound_alone(cluster, bench)
    words = "user millpond may not create pods/eviction"
    cluster.refuses = lambda request, _: refusal(403, "Forbidden", words) if request.endswith("/eviction") else None
    bench.engine.apply([stop(2, JOB)])
    eventually(lambda: any(e.startswith("EvictionFailed: ") and words in e for e in events_of(cluster, "alone")))
    cluster.refuses = lambda _request, _body: None
    cluster.policies = {"policy/v1", "policy/v1beta1"}
    eventually(lambda: "deletionTimestamp" in (cluster.get("pods", "alone") or {})["metadata"])


def test_a_cluster_that_knows_the_older_eviction_alone_is_asked_for_that(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    cluster.policies = {"policy/v1beta1"}
    bound_alone(cluster, bench)
    bench.engine.apply([stop(2, JOB)])
    eventually(lambda: cluster.get("pods", "alone")["metadata"].get("deletionTimestamp"))  # type: ignore[index]


def test_a_job_that_waits_ends_with_its_pod(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setattr(foreign_pods, "GONE_AFTER_S", 0.2)
    bench.open()
    foreign_pod(cluster, "alone")
    bench.stand_for(bench.gang().key)
    cluster.remove("pods", "alone")
    asked = bench.next(StopRequested)
    assert (asked.job, asked.reason) == (JOB, "Pod team/alone: it has no pods any more")


def test_gated_pods_wait_for_whoever_gated_them(cluster: StandinCluster, bench: AdoptingBench) -> None:
    foreign_pod(cluster, "gated", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    foreign_pod(cluster, "free")
    assert bench.gang().key.name == "free"
    assert condition(cluster, "gated") == ""
    foreign_pod(cluster, "gated")
    eventually(lambda: len(bench.engine.gangs()) == 2)


GROUP = "podgroups.scheduling.k8s.io"
SIGS_GROUP = "podgroups.scheduling.x-k8s.io"


def test_a_pod_group_of_the_cluster_goes_before_the_owner(cluster: StandinCluster, bench: AdoptingBench) -> None:
    cluster.put(GROUP, "trio", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}, NAMESPACE)
    job_of(cluster, 7)
    for number in range(3):
        foreign_pod(cluster, f"p{number}", owner=OWNER, schedulingGroup={"podGroupName": "trio"})
    gang = eventually(lambda: g if (g := bench.gang()).roles[0].count == 3 else None)
    assert (gang.key.kind, gang.roles[0].least) == ("PodGroup (scheduling.k8s.io)", 2)


def test_a_pod_group_that_is_changed_while_its_pods_wait_has_its_new_size(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setattr(gang_book, "LOOK_AGAIN_S", 0.05)
    bench.open()
    cluster.put(SIGS_GROUP, "trio", {"spec": {"minMember": 3}}, NAMESPACE)
    for number in range(3):
        foreign_pod(cluster, f"p{number}", labels={"scheduling.x-k8s.io/pod-group": "trio"})
    assert bench.gang().size == 3
    cluster.put(SIGS_GROUP, "trio", {"spec": {"minMember": 2}}, NAMESPACE)
    assert eventually(lambda: g if (g := bench.gang()).size == 2 else None).roles[0].least == 2
    cluster.put(SIGS_GROUP, "trio", {"spec": {"minMember": 4}}, NAMESPACE)
    told = eventually(lambda: condition(cluster, "p0"))
    assert told.startswith("3 of the 4 pods")


def test_pod_groups_are_told_why_they_wait_and_when_they_are_bound(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    cluster.put(GROUP, "duo", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}, NAMESPACE)
    cluster.put(SIGS_GROUP, "solo", {"spec": {"minMember": 1}}, NAMESPACE)
    foreign_pod(cluster, "duo-0", schedulingGroup={"podGroupName": "duo"})
    foreign_pod(cluster, "solo-0", labels={"scheduling.x-k8s.io/pod-group": "solo"})

    def state(kind: str, name: str) -> Any:
        return (cluster.get(kind, name) or {}).get("status")

    told = eventually(lambda: state(GROUP, "duo"))["conditions"][0]
    assert (told["type"], told["status"], told["reason"]) == ("PodGroupInitiallyScheduled", "False", "Unschedulable")
    assert told["message"].startswith("1 of the 2 pods")
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB)])
    eventually(lambda: state(SIGS_GROUP, "solo") == {"phase": "Scheduled"})


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        (("2", "3"), "the gang disagrees about its size: its pods say 2 and 3 (millpond.io/gang-size)"),
        (("two", "two"), "the annotation millpond.io/gang-size is 'two'; write a number from 1 to 100000"),
        (
            ("9" * 5_000,) * 2,
            f"the annotation millpond.io/gang-size is '{'9' * 40}'; write a number from 1 to 100000",
        ),
    ],
)
def test_gangs_that_disagree_about_their_size_are_told(
    cluster: StandinCluster, bench: AdoptingBench, sizes: tuple[str, str], told: str
) -> None:
    for number, size in enumerate(sizes):
        annotations = {"millpond.io/gang": "g", "millpond.io/gang-size": size}
        foreign_pod(cluster, f"g-{number}", annotations=annotations)
    eventually(lambda: condition(cluster, "g-1") == told)
    assert eventually(lambda: events_of(cluster, "g-0") + events_of(cluster, "g-1"))


def test_a_group_and_its_pods_that_disagree_are_told(cluster: StandinCluster, bench: AdoptingBench) -> None:
    cluster.put(SIGS_GROUP, "duo", {"spec": {"minMember": 2}}, NAMESPACE)
    labels, annotations = {"scheduling.x-k8s.io/pod-group": "duo"}, {"millpond.io/gang-size": "4"}
    foreign_pod(cluster, "duo-0", labels=labels, annotations=annotations)
    told = eventually(lambda: condition(cluster, "duo-0"))
    assert "its pods say 4 (millpond.io/gang-size), and PodGroup (scheduling.x-k8s.io) team/duo says 2" in told


def test_a_pod_that_comes_late_is_told_what_its_gang_was(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_answers, "LEAST_S", 0.05)
    pair(cluster)
    bench.engine.answer(bench.gang().key, "there is no room")
    eventually(lambda: condition(cluster, "theirs-1") == "there is no room")
    foreign_pod(cluster, "theirs-2", owner=OWNER)
    eventually(lambda: condition(cluster, "theirs-2") == "there is no room")
    assert len(events_of(cluster, "theirs-0") + events_of(cluster, "theirs-2")) == 1


def test_a_missing_right_is_named(cluster: StandinCluster, bench: AdoptingBench) -> None:
    cluster.refuses = lambda request, _: (
        refusal(403, "Forbidden", "may not") if request.endswith("/jobs/theirs") else None
    )
    foreign_pod(cluster, "theirs-0", owner=OWNER)
    told = eventually(lambda: condition(cluster, "theirs-0"))
    assert told.startswith("Millpond may not get jobs.batch in namespace team: grant it that")


def asking(**requests: str) -> list[dict[str, Any]]:
    names = {name.replace("__", "/").replace("_", "."): amount for name, amount in requests.items()}
    return [{"name": "task", "resources": {"requests": names}}]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"annotations": {"millpond.io/gpu-memory-mib": "8Gi"}}, "the annotation millpond.io/gpu-memory-mib is '8Gi'"),
        ({"annotations": {"millpond.io/gpu-memory-mib": "lots"}}, "the annotation millpond.io/gpu-memory-mib is"),
        ({"annotations": {"millpond.io/topolgy": "rack"}}, "there is no annotation millpond.io/topolgy; there are"),
        ({"annotations": {"millpond.io/gpu-milli": "250"}}, "millpond.io/gpu-milli is no annotation"),
        ({"containers": asking(millpond_io__x="1")}, "it asks for millpond.io/x, which Millpond does not count: leave"),
        ({"containers": asking(rdma__hca="1")}, "it asks for rdma/hca, which Millpond does not count: have an admin"),
        ({"containers": asking(cpu="1"), "resourceClaims": [{"name": "gpu"}]}, "it has resource claims (DRA)"),
    ],
)
def test_what_cannot_be_done_for_a_pod_is_told(
    cluster: StandinCluster, bench: AdoptingBench, more: dict[str, Any], told: str
) -> None:
    foreign_pod(cluster, "odd", **more)
    assert eventually(lambda: condition(cluster, "odd")).startswith(told)
    assert eventually(lambda: events_of(cluster, "odd"))[0].startswith(f"FailedScheduling: {told}")
    assert all(gang.trouble for gang in bench.engine.gangs())


def selecting(cluster: StandinCluster, bench: AdoptingBench, **spec: Any) -> NodeSelection:
    """What a pod is understood to select."""
    foreign_pod(cluster, "choosy", **spec)
    return bench.gang().terms.selection


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    wanted = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}


def test_a_node_selector_and_a_required_affinity_are_both_kept(cluster: StandinCluster, bench: AdoptingBench) -> None:
    zones = [{"key": "zone", "operator": "In", "values": ["a", "b"]}]
    old = [{"key": "old", "operator": "DoesNotExist"}]
    found = selecting(cluster, bench, nodeSelector={"disk": "ssd"}, affinity=affinity(zones, old, []))
    assert selection_text(found) == "disk=ssd and zone In a, b or disk=ssd and no old"
    labels = {node.name: dict(node.labels) for node in bench.engine.inventory().nodes}
    assert labels["n1"]["millpond.io/pool"] == "default"
    assert labels["n1"]["metadata.name"] == "n1"


def test_the_images_of_a_pod_are_what_its_node_needs_and_come_when_it_starts(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    init = [{"name": "init", "image": "busybox"}, {"name": "odd", "image": "of the node's own"}]
    foreign_pod(
        cluster,
        "large",
        containers=[{"name": "task", "image": "nvcr.io/nvidia/pytorch:24.05-py3"}],
        initContainers=init,
    )
    gang = bench.gang()
    needed = ("image:docker.io/library/busybox:latest", "image:nvcr.io/nvidia/pytorch:24.05-py3")
    assert gang.terms.contents == needed
    bench.stand_for(gang.key)
    bench.engine.apply([Prefetch(1, JOB, 1, Cause.PREFETCHED, "n1", (Content(needed[1]),))])
    refused = bench.next(Refused)
    assert (refused.decision, refused.reason) == (1, "what pods of others need is fetched when they start")


def test_the_label_of_pools_names_the_pool_of_the_job(cluster: StandinCluster, bench: AdoptingBench) -> None:
    foreign_pod(cluster, "choosy", nodeSelector={"millpond.io/pool": "gold"})
    terms = bench.gang().terms
    assert (terms.selection, terms.fields) == ((), (("pool", "gold"),))


def test_pods_go_to_no_node_whose_taint_they_do_not_tolerate(cluster: StandinCluster, bench: AdoptingBench) -> None:
    taints = [{"key": "millpond.io/pool", "value": "gold", "effect": "NoSchedule"}]
    cluster.add_node("n3", taints=taints)
    bench.next(NodeJoined)
    foreign_pod(cluster, "intolerant")
    foreign_pod(cluster, "tolerant", tolerations=[{"key": "millpond.io/pool", "operator": "Exists"}])
    foreign_pod(cluster, "of-gold", tolerations=[{"key": "millpond.io/pool", "value": "gold"}])
    foreign_pod(cluster, "of-lead", tolerations=[{"key": "millpond.io/pool", "value": "lead"}])
    gangs = eventually(lambda: found if len(found := bench.engine.gangs()) == 4 else None)
    selections = {gang.key.name: gang.terms.selection for gang in gangs}
    nodes = {node.name: node.labels for node in bench.engine.inventory().nodes}
    kept_off = {name for name, selection in selections.items() if not selects(selection, nodes["n3"])}
    assert kept_off == {"intolerant", "of-lead"}
    assert all(selects(selection, nodes["n1"]) for selection in selections.values())
    assert selections["tolerant"] == ()


def test_what_pods_of_the_server_tolerate_pods_of_others_have_to_tolerate_themselves(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    bench.close()
    bench.tolerated = (*TOLERATED, "dedicated")
    cluster.add_node("n1", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
    bench.open()
    foreign_pod(cluster, "tolerant", tolerations=[{"key": "dedicated", "operator": "Equal", "value": "x"}])
    foreign_pod(cluster, "intolerant")
    gangs = eventually(lambda: found if len(found := bench.engine.gangs()) == 2 else None)
    assert {gang.key.name: nodes_of(bench, gang) for gang in gangs} == {"tolerant": ["n1", "n2"], "intolerant": ["n2"]}
    assert all(node.schedulable for node in bench.engine.inventory().nodes)


def test_pods_of_one_gang_that_ask_for_other_nodes_are_told(cluster: StandinCluster, bench: AdoptingBench) -> None:
    job_of(cluster, 2)
    foreign_pod(cluster, "theirs-0", owner=OWNER, nodeSelector={"zone": "a"})
    foreign_pod(cluster, "theirs-1", owner=OWNER, nodeSelector={"zone": "b"})
    assert "its pods ask for other nodes" in eventually(lambda: condition(cluster, "theirs-1"))


def claim(cluster: StandinCluster, name: str, phase: str = "Bound", *zones: str) -> None:
    cluster.put(
        "persistentvolumeclaims", name, {"spec": {"volumeName": f"pv-{name}"}, "status": {"phase": phase}}, NAMESPACE
    )
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}
    where = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if zones else {}
    cluster.put("persistentvolumes", f"pv-{name}", {"spec": where})


def volumes(*claims: str) -> list[dict[str, Any]]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def test_a_pod_goes_where_its_volumes_are(cluster: StandinCluster, bench: AdoptingBench) -> None:
    claim(cluster, "data", "Bound", "a", "b")
    claim(cluster, "results", "Bound", "b")
    claim(cluster, "anywhere")
    found = selecting(cluster, bench, volumes=volumes("data", "results", "anywhere"), nodeSelector={"disk": "ssd"})
    assert selection_text(found) == "disk=ssd and zone In a, b and zone=b"


def test_a_claim_that_waits_for_its_pod_is_told_and_looked_at_again(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setattr(gang_book, "LOOK_AGAIN_S", 0.05)
    bench.open()
    claim(cluster, "data", "Pending")
    foreign_pod(cluster, "late", volumes=volumes("data"))
    assert eventually(lambda: condition(cluster, "late")).startswith("its claim data is not bound to a volume")
    claim(cluster, "data")
    assert bench.gang().terms.selection == ()


def test_the_volumes_of_a_pod_that_comes_after_others_of_its_gang_are_looked_at(
    cluster: StandinCluster, bench: AdoptingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setattr(gang_book, "LOOK_AGAIN_S", 60.0)
    bench.open()
    claim(cluster, "data-0", "Bound", "a")
    claim(cluster, "data-1", "Bound", "b")
    job_of(cluster, 2)
    foreign_pod(cluster, "theirs-0", owner=OWNER, volumes=volumes("data-0"))
    eventually(lambda: any("1 of the 2 pods" in gang.trouble for gang in bench.engine.gangs()))
    foreign_pod(cluster, "theirs-1", owner=OWNER, volumes=volumes("data-1"))
    assert selection_text(bench.gang().terms.selection) == "zone=a and zone=b"


def test_pods_for_which_work_leaves_say_which_node_is_made_free(cluster: StandinCluster, bench: AdoptingBench) -> None:
    bound_pair(cluster, bench)
    foreign_pod(cluster, "urgent")
    bench.stand_for(bench.gang().key, "urgent-abcde")
    bench.engine.apply([replace(stop(2, JOB), for_job="urgent-abcde", cause=Cause.PREEMPTED)])
    eventually(lambda: (cluster.get("pods", "urgent") or {})["status"].get("nominatedNodeName") in ("n1", "n2"))
    told = eventually(lambda: condition(cluster, "theirs-0", "DisruptionTarget"))
    assert told == "Millpond: preempted, for job urgent-abcde"


def test_where_nodes_have_cards_of_several_vendors_a_pod_goes_to_those_of_its_own(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    status = {"allocatable": {"cpu": "8", "memory": "8Gi", "amd.com/gpu": "2"}}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster.put("nodes", "red", {"metadata": {"labels": {"millpond.io/pool": "default"}}, "status": status | ready})
    bench.next(NodeJoined)
    foreign_pod(cluster, "green")
    selection = bench.gang().terms.selection
    nodes = {node.name: node.labels for node in bench.engine.inventory().nodes}
    assert [name for name in sorted(nodes) if selects(selection, nodes[name])] == ["n1", "n2"]


def test_a_node_that_is_deleted_while_a_pod_is_bound_to_it_is_told(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    bound_pair(cluster, bench)
    cluster.remove("nodes", "n2", "")
    assert "was lost, or deleted" in eventually(lambda: events_of(cluster, "theirs-1"))[0]
    cluster.finish("theirs-0")
    assert bench.next(Ended).task == 0
