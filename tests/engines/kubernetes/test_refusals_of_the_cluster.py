"""What the cluster refuses, or fails to do, for long: said where somebody reads it, and never the engine's end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest
from foreign_pods import JOB, AdoptingBench, events_of, foreign_pod
from pod_bench import PodBench, eventually, start, stop
from standin_cluster import StandinCluster, refusal

from millpond.engines.kubernetes.cluster import cluster_api, cluster_view, reflector
from millpond.engines.kubernetes.pods import live_pods
from millpond.model.errors import UnavailableError
from millpond.model.events import Ended, NodeJoined, Noted, Refused, StopRequested

POD = "train-abcde-1-0"
WEBHOOK = 'admission webhook "guard.example" denied the request'


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pods, "LOG_PATIENCE_S", 0.05)
    monkeypatch.setattr(cluster_api, "REFUSED_AGAIN_S", 0.01)
    monkeypatch.setattr(cluster_api, "ERRORS_FOR_S", 0.05)


@pytest.fixture
def others(cluster: StandinCluster, tmp_path: Path) -> Iterator[AdoptingBench]:
    with AdoptingBench(cluster, tmp_path) as bench:
        yield bench


def refuse(cluster: StandinCluster, *requests: str, code: int, words: str = WEBHOOK) -> None:
    """Requests that match one of these are answered so."""
    patterns = [re.compile(each) for each in requests]
    cluster.refuses = lambda request, _: (
        refusal(code, "Refused", words) if any(each.match(request) for each in patterns) else None
    )


def test_a_limit_that_no_pod_of_a_job_has_is_that_of_a_limit_range(cluster: StandinCluster, bench: PodBench) -> None:
    words = 'spec.containers[0].resources.requests: Invalid value: "4": must be less than or equal to cpu limit'
    refuse(cluster, "POST .*/pods$", code=422, words=words)
    bench.engine.apply([start(1)])
    refused = bench.next(Refused)
    text = "the cluster does not take its pod, as a LimitRange of its namespace has a limit of CPUs: "
    assert (refused.reason, refused.device_fault) == (text + words, False)


@pytest.mark.parametrize("code", [403, 422])
def test_a_pod_that_the_cluster_does_not_let_end_is_told_once_and_asked_to_end_until_it_may(
    cluster: StandinCluster, bench: PodBench, code: int
) -> None:
    bench.started()
    refuse(cluster, "DELETE .*/pods/", code=code)
    bench.engine.apply([stop(2)])
    assert bench.next(Noted).text == f"the cluster does not let its pod {POD} end, and is asked again: {WEBHOOK}"
    asked = cluster.requests.count(f"DELETE /api/v1/namespaces/team/pods/{POD}")
    eventually(lambda: cluster.requests.count(f"DELETE /api/v1/namespaces/team/pods/{POD}") > asked + 2)
    cluster.refuses = lambda _request, _body: None
    eventually(lambda: (cluster.get("pods", POD) or {"metadata": {}})["metadata"].get("deletionTimestamp"))
    cluster.finish(POD, 143)
    bench.next(Ended)
    assert not any(isinstance(event, Noted) for event in bench.seen)


@pytest.mark.parametrize("code", [403, 422])
def test_secrets_and_services_that_the_cluster_keeps_hold_up_no_end(
    cluster: StandinCluster, bench: PodBench, code: int
) -> None:
    bench.started()
    refuse(cluster, "DELETE .*/(secrets|services)/", code=code)
    cluster.finish(POD)
    bench.next(Ended)
    bench.started(2, job="other-abcde")


def test_a_server_that_may_neither_bind_nor_look_at_pods_says_so(cluster: StandinCluster, bench: PodBench) -> None:
    refuse(cluster, "POST .*/binding", "GET .*/pods/", code=403, words="pods is forbidden")
    bench.engine.apply([start(1)])
    refused = bench.next(Refused)
    assert refused.reason == f"pod {POD} cannot be looked at: pods is forbidden"
    cluster.refuses = lambda _request, _body: None
    bench.started(2, attempt=2)


@pytest.mark.parametrize("kind", ["pods", "secrets"])
def test_a_right_that_the_server_lacks_is_named_and_is_not_the_jobs_fault(
    cluster: StandinCluster, bench: PodBench, kind: str
) -> None:
    bench.launch = replace(bench.launch, secrets={"KEY": "x"})
    words = f'{kind} is forbidden: User "millpond" cannot create resource "{kind}" in API group ""'
    refuse(cluster, f"POST .*/{kind}$", code=403, words=words)
    bench.engine.apply([start(1)])
    refused = bench.next(Refused)
    assert refused.reason.endswith(f": {words}")
    assert refused.device_fault
    cluster.refuses = lambda _request, _body: None
    bench.started(2, attempt=2)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (404, 'namespaces "team" not found'),
        (
            403,
            f'pods "{POD}" is forbidden: unable to create new content in namespace team because it is being terminated',
        ),
    ],
)
def test_a_start_in_a_namespace_that_is_away_is_tried_again(
    cluster: StandinCluster, bench: PodBench, code: int, words: str
) -> None:
    refuse(cluster, "POST .*/pods$", code=code, words=words)
    bench.engine.apply([start(1)])
    refused = bench.next(Refused)
    assert refused.reason == f"the cluster does not take its pod: {words}"
    assert refused.device_fault, "the job is not to blame"


def test_a_server_whose_namespace_is_not_there_does_not_begin(cluster: StandinCluster, tmp_path: Path) -> None:
    words = 'namespaces "team" not found'
    refuse(cluster, "POST .*/leases", code=404, words=words)
    with pytest.raises(UnavailableError, match=f"leases in namespace team.*{words}"):
        PodBench(cluster, tmp_path).open()


def test_a_webhook_that_fails_for_long_is_named_and_the_start_tried_again(
    cluster: StandinCluster, bench: PodBench
) -> None:
    words = 'Internal error occurred: failed calling webhook "guard.example"'
    refuse(cluster, "POST .*/pods$", code=500, words=words)
    bench.engine.apply([start(1)])
    refused = bench.next(Refused)
    assert refused.reason == f"the cluster does not take its pod: {words}"
    assert refused.device_fault, "the job is not to blame"
    cluster.refuses = lambda _request, _body: None
    bench.started(2, attempt=2)


def test_a_webhook_that_keeps_a_pod_of_others_from_being_bound_is_named_on_it(
    cluster: StandinCluster, others: AdoptingBench
) -> None:
    foreign_pod(cluster, "theirs")
    others.stand_for(others.gang().key)
    refuse(cluster, "POST .*/binding", code=500)
    others.engine.apply([start(1, JOB)])
    assert others.next(Refused).reason == f"pod theirs cannot be bound to node n1: {WEBHOOK}"
    eventually(
        lambda: f"FailedBinding: pod theirs cannot be bound to node n1: {WEBHOOK}" in events_of(cluster, "theirs")
    )


def test_a_pod_of_others_that_may_not_be_looked_at_does_not_count_as_deleted(
    cluster: StandinCluster, others: AdoptingBench
) -> None:
    foreign_pod(cluster, "theirs")
    others.stand_for(others.gang().key)
    refuse(cluster, "POST .*/binding", "GET .*/pods/", code=403, words="pods is forbidden")
    others.engine.apply([start(1, JOB)])
    assert others.next(Refused).reason == "pod theirs cannot be bound to node n1: pods is forbidden"
    assert not any(isinstance(event, StopRequested) for event in others.engine.events())


@pytest.mark.parametrize(("code", "words"), [(401, "Unauthorized"), (403, 'nodes is forbidden: User "me" cannot list')])
def test_a_server_that_may_not_look_at_nodes_ends_with_the_clusters_words_alone(
    cluster: StandinCluster, tmp_path: Path, code: int, words: str
) -> None:
    refuse(cluster, "GET .*/nodes", code=code, words=words)
    with pytest.raises(UnavailableError) as raised:
        PodBench(cluster, tmp_path).open()
    assert raised.value.cause.endswith(f" cannot be looked at: {code} {HTTPStatus(code).phrase}: {words}")


@pytest.mark.parametrize(("method", "there"), [("POST", False), ("PUT", True)])
def test_a_server_that_may_look_at_its_lease_alone_does_not_begin(
    cluster: StandinCluster, tmp_path: Path, method: str, there: bool
) -> None:
    if there:
        first = PodBench(cluster, tmp_path)
        first.open()
        eventually(lambda: [name for name in cluster.requests if name.startswith("PUT") or "leases" in name][2:])
        first.close()
    refuse(cluster, f"{method} .*/leases", code=403, words="leases is forbidden")
    with pytest.raises(UnavailableError, match=r"leases in namespace team.*roles\.yaml"):
        PodBench(cluster, tmp_path).open()


@pytest.mark.parametrize("kind", ["pods", "nodes"])
def test_nothing_new_starts_where_the_server_may_list_and_not_watch_and_the_nodes_say_why(
    cluster: StandinCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(cluster_view, "BLIND_AFTER_S", 0.0)
    monkeypatch.setattr(cluster_view, "LOOK_AT_LEASE_EVERY_S", 0.01)
    cluster.unwatched = {kind}
    bench = PodBench(cluster, tmp_path)
    bench.open()
    node = bench.next(NodeJoined).node
    assert not node.schedulable
    words = f'{kind} is forbidden: User "me" cannot watch resource "{kind}"'
    assert node.unschedulable_reason.startswith(f"the cluster does not tell the server of its {kind} ({words}): ")
    cluster.unwatched.clear()
    eventually(lambda: all(node.schedulable for node in bench.engine.inventory().nodes))
    bench.started()
    bench.close()


@pytest.mark.parametrize(
    "request_", ["GET .*/events", "GET .*/pods/[^/]*$", "GET .*/log$", "PATCH .*", "DELETE .*/(secrets|services)/"]
)
def test_a_right_that_a_job_can_do_without_keeps_none_from_running(
    cluster: StandinCluster, bench: PodBench, request_: str
) -> None:
    bench.launch = replace(bench.launch, secrets={"KEY": "x"})
    refuse(cluster, request_, code=403, words="it is forbidden")
    bench.started()
    cluster.finish(POD)
    bench.next(Ended)


def test_watches_that_stay_open_and_say_nothing_more_are_opened_anew(
    cluster: StandinCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "WATCH_S", (0, 0))
    monkeypatch.setattr(reflector, "LATE_S", 0.3)
    bench = PodBench(cluster, tmp_path)
    bench.open()
    bench.started()
    cluster.silence_watches()
    cluster.finish(POD)
    bench.next(Ended)
    bench.close()
