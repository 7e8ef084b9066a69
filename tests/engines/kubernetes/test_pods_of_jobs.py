"""The engine on a stand-in cluster: decisions become pods, and what becomes of pods is reported."""

from __future__ import annotations

import errno
import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pod_bench import PodBench, eventually, start, stop
from standin_cluster import NAMESPACE, Plain, StandinCluster, refusal
from starlette.responses import JSONResponse

from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.pods import copied_logs, live_pods, pod_executor, slow_starts
from millpond.engines.kubernetes.pods.pod_files import CarriedFiles
from millpond.engines.kubernetes.pods.pod_states import StopNotice, verdict_on
from millpond.engines.kubernetes.pods.pod_template import PodLaunch, RoleNeeds
from millpond.engines.kubernetes.pods.pod_volumes import PodMount
from millpond.model.decisions import Suspend
from millpond.model.events import Confirmed, Ended, Noted, Refused
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.carrier.order import CarryOrder
from millpond.node.task.records import TaskFiles, TaskId

POD = "train-abcde-1-0"
ORDER = CarryOrder("http://server", "token", "train-abcde", 1)


def test_output_that_the_disk_had_no_room_for_is_copied_when_it_has(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_in, failures = copied_logs._place_in, [OSError(errno.ENOSPC, "No space left on device")]

    def full(path: Path) -> tuple[int, int]:
        if failures:
            raise failures.pop()
        return place_in(path)

    monkeypatch.setattr(copied_logs, "_place_in", full)
    cluster.logs[POD] = ["2026-11-24T10:00:01Z one\n"]
    bench.started()
    files = TaskFiles.of(bench.folder / "state", TaskId("train-abcde", 1, 0))
    eventually(lambda: files.log.exists() and files.log.read_text() == "one\n")


def test_output_that_the_cluster_refuses_is_named_once_in_the_log_and_comes_when_it_may(
    bench: PodBench, cluster: StandinCluster, caplog: pytest.LogCaptureFixture
) -> None:
    left = [refusal(403, "Forbidden", "cannot get resource pods/log") for _ in range(3)]
    cluster.refuses = lambda request, _body: left.pop() if left and request.endswith("/log") else None
    cluster.logs[POD] = ["2026-11-24T10:00:01Z one\n"]
    bench.started()
    files = TaskFiles.of(bench.folder / "state", TaskId("train-abcde", 1, 0))
    eventually(lambda: files.log.exists() and files.log.read_text() == "one\n")
    (told,) = [record for record in caplog.records if "output of" in record.message and record.levelname == "WARNING"]
    assert f"the output of {POD} cannot be read: " in told.message
    assert "403 Forbidden" in told.message
    noted = [event.text for event in [*bench.seen, *bench.engine.events()] if isinstance(event, Noted)]
    assert noted == ["its output cannot be read, and is asked for again: cannot get resource pods/log"]


def test_a_task_runs_as_a_pod_with_what_it_was_given(bench: PodBench, cluster: StandinCluster) -> None:
    bench.started(nodes=["n2"], cards=2)
    pod = bench.bound(POD)
    (container,) = pod["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert pod["spec"]["nodeName"] == "n2"
    assert pod["spec"]["schedulerName"] == "millpond"
    assert container["command"] == ["python", "train.py"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert container["resources"]["requests"] == {"cpu": "4000m", "memory": "1024Mi", "nvidia.com/gpu": "2"}
    assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == ("0", "1", "127.0.0.1")
    assert json.loads(pod["metadata"]["annotations"]["millpond.io/task"])["decision"] == 1
    cluster.finish(POD)
    ended = bench.next(Ended)
    assert (ended.job, ended.attempt, ended.task, ended.outcome, ended.exit_code) == (
        "train-abcde",
        1,
        0,
        Outcome.SUCCESS,
        0,
    )


def test_an_api_server_need_not_write_back_the_pods_that_are_made(bench: PodBench, cluster: StandinCluster) -> None:
    bench.started(nodes=("n1", "n2"))
    assert sorted(cluster.told_in_short) == [POD, "train-abcde-1-1"]


def test_a_pod_without_cards_sees_none_whatever_its_image_asks_of_nvidias_runtime(bench: PodBench) -> None:
    bench.launch = replace(
        bench.launch,
        env={"NVIDIA_VISIBLE_DEVICES": "all"},
        files=CarriedFiles("train:1", lambda attempt: replace(ORDER, attempt=attempt)),
    )
    bench.engine.apply([start(1, cards=0), start(2, job="cards-abcde")])
    spec = bench.bound(POD)["spec"]
    told = [
        [each["value"] for each in container["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
        for container in (*spec["initContainers"], *spec["containers"])
    ]
    assert told == [["void"]] * 3
    container, _ = bench.bound("cards-abcde-1-0")["spec"]["containers"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} not in container["env"]


def test_a_gang_is_bound_when_all_of_its_pods_are_made_and_finds_its_first_task_by_name(
    bench: PodBench, cluster: StandinCluster
) -> None:
    bench.started(nodes=["n1", "n1", "n2"])
    writes = [each for each in cluster.requests if each.startswith("POST")]
    first_binding = next(place for place, each in enumerate(writes) if each.endswith("/binding"))
    assert sum(each.endswith("/pods") for each in writes[:first_binding]) == 3
    env = {each["name"]: each["value"] for each in bench.bound("train-abcde-1-2")["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == "train-abcde-1-0.train-abcde-1.team.svc"
    service = cluster.get("services", "train-abcde-1")
    assert service is not None
    assert service["spec"]["clusterIP"] == "None"
    assert bench.bound(POD)["spec"]["subdomain"] == "train-abcde-1"


def test_of_a_gang_that_the_cluster_does_not_take_whole_nothing_remains(
    bench: PodBench, cluster: StandinCluster
) -> None:
    def quota(request: str, body: Plain) -> JSONResponse | None:
        if request.endswith("/pods") and body.get("metadata", {}).get("name") == "train-abcde-1-1":
            return refusal(403, "Forbidden", "exceeded quota: cards, used: nvidia.com/gpu=8")
        return None

    cluster.refuses = quota
    bench.engine.apply([start(1, nodes=["n1", "n2"])])
    refused = bench.next(Refused)
    assert refused.decision == 1
    assert "exceeded quota" in refused.reason
    assert not refused.device_fault
    assert cluster.names("pods") == []
    assert not any(each.endswith("/binding") for each in cluster.requests)


USED_UP = "requested: pods=1,requests.cpu=300m, used: pods=3,requests.cpu=900m, limited: "


@pytest.mark.parametrize(
    ("limited", "passes"),
    [
        ("pods=3,requests.cpu=1", True),
        ("pods=2,requests.cpu=600m", True),
        ("pods=1,requests.cpu=1", False),
        ("pods=3,requests.cpu=500m", False),
    ],
)
def test_a_gang_that_a_quota_has_room_for_is_tried_again_when_others_have_ended(
    bench: PodBench, cluster: StandinCluster, limited: str, *, passes: bool
) -> None:
    words = f'pods "{POD}" is forbidden: exceeded quota: q, {USED_UP}{limited}'
    cluster.refuses = lambda request, _: refusal(403, "Forbidden", words) if request.endswith("/pods") else None
    bench.engine.apply([start(1, nodes=["n1", "n2"])])
    refused = bench.next(Refused)
    assert (refused.device_fault, refused.reason) == (passes, f"the cluster does not take its pod: {words}")


def test_a_node_that_goes_while_a_pod_is_bound_to_it_is_to_blame_and_not_the_job(
    bench: PodBench, cluster: StandinCluster
) -> None:
    cluster.refuses = lambda request, _: (
        refusal(404, "NotFound", 'nodes "n1" not found') if request.endswith("binding") else None
    )
    bench.engine.apply([start(1)])
    refused = bench.next(Refused)
    assert refused.device_fault
    assert cluster.names("pods") == []


def test_what_a_kubelet_turns_away_is_tried_elsewhere(bench: PodBench, cluster: StandinCluster) -> None:
    bench.engine.apply([start(1)])
    bench.bound(POD)
    cluster.set_state(POD, "Failed", {}, "OutOfnvidia.com/gpu", "Pod was rejected: not enough cards")
    refused = bench.next(Refused)
    assert refused.device_fault
    assert "OutOfnvidia.com/gpu" in refused.reason


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"waiting": {"reason": "InvalidImageName", "message": "couldn't parse"}}, "couldn't parse"),
        ({"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}}, "no such file"),
    ],
)
def test_what_can_never_run_is_refused_with_the_kubelets_words(
    bench: PodBench, cluster: StandinCluster, state: Plain, words: str
) -> None:
    bench.engine.apply([start(1)])
    bench.bound(POD)
    cluster.set_state(POD, "Pending", state)
    eventually(lambda: (cluster.get("pods", POD) or {}).get("metadata", {}).get("deletionTimestamp"))
    cluster.remove("pods", POD)
    refused = bench.next(Refused)
    assert words in refused.reason
    assert not refused.device_fault


def test_an_image_that_does_not_come_is_told_once_and_waited_for_a_while(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_executor, "PULL_PATIENCE_S", 0.1)
    bench.engine.apply([start(1)])
    bench.bound(POD)
    cluster.set_state(POD, "Pending", {"waiting": {"reason": "ErrImagePull", "message": "registry: no route"}})
    cluster.set_state(POD, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "registry: no route"}})
    trouble = "its image cannot be pulled (registry: no route); check its name, and the login"
    assert bench.next(Noted).text == f"{trouble}; its start is given up after 0.1s of that"
    eventually(lambda: (cluster.get("pods", POD) or {}).get("metadata", {}).get("deletionTimestamp"))
    cluster.remove("pods", POD)
    assert not any(isinstance(event, Noted) for event in bench.seen)
    assert bench.next(Refused).reason == trouble


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition"),
        ("CreateContainerError", 'failed to reserve container name "task_1": name "task_1" is reserved for "5f"'),
        ("CreateContainerError", "context deadline exceeded"),
    ],
)
def test_a_container_that_a_slow_node_has_not_made_yet_is_waited_for_a_while(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch, reason: str, words: str
) -> None:
    slow = {"waiting": {"reason": reason, "message": words}}
    bench.engine.apply([start(1)])
    bench.bound(POD)
    cluster.set_state(POD, "Pending", slow)
    cluster.run(POD)
    assert bench.next(Confirmed).decision == 1
    monkeypatch.setattr(pod_executor, "PULL_PATIENCE_S", 0.1)
    bench.engine.apply([start(2, job="other-abcde")])
    bench.bound("other-abcde-1-0")
    cluster.set_state("other-abcde-1-0", "Pending", slow)
    eventually(lambda: (cluster.get("pods", "other-abcde-1-0") or {}).get("metadata", {}).get("deletionTimestamp"))
    cluster.remove("pods", "other-abcde-1-0")
    refused = bench.next(Refused)
    assert refused.device_fault, "it is tried again"
    assert words in refused.reason


def test_the_notice_reaches_all_processes_of_a_pod_whatever_the_job_says_of_saving(
    bench: PodBench, cluster: StandinCluster
) -> None:
    bench.launch = PodLaunch("i:1", {"worker": RoleNeeds("train && echo done", 1000, 0)})
    bench.started()
    container = bench.bound(POD)["spec"]["containers"][0]
    assert container["lifecycle"]["preStop"]["exec"]["command"][-1].startswith("kill -TERM 1; kill -TERM -1;")


def test_a_stopped_task_whose_pod_outstays_its_grace_is_told_of_once(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pods, "STAYS_AFTER_S", 0.01)
    bench.started()
    bench.engine.apply([stop(2, grace_s=60.0), stop(3, grace_s=0.01)])
    assert bench.next(Noted).text == f"its pod {POD} is to end, and node n1 has not said that it has"
    cluster.finish(POD, 143)
    bench.next(Ended)
    assert not any(isinstance(event, Noted) for event in bench.seen)


def test_a_stopped_task_has_its_grace_and_keeps_what_it_saved(bench: PodBench, cluster: StandinCluster) -> None:
    bench.launch = PodLaunch("i:1", {"worker": RoleNeeds("train", 1000, 0)}, notice_signal="SIGUSR1", grace_s=60.0)
    bench.started()
    container = bench.bound(POD)["spec"]["containers"][0]
    assert container["lifecycle"]["preStop"]["exec"]["command"][-1].startswith("kill -USR1 1; kill -USR1 -1;")
    assert {"name": "MILLPOND_NOTICE_SIGNAL", "value": "SIGUSR1"} in container["env"]
    bench.engine.apply([stop(2, grace_s=45.0)])
    assert bench.next(Confirmed).decision == 2
    meta = eventually(
        lambda: (cluster.get("pods", POD) or {})["metadata"].get("deletionTimestamp") and cluster.get("pods", POD)
    )
    assert meta["metadata"]["deletionGracePeriodSeconds"] == 45
    cluster.finish(POD, 0)
    cluster.remove("pods", POD)
    ended = bench.next(Ended)
    assert ended.outcome is Outcome.STOPPED
    assert ended.service_s is not None
    assert ended.service_s > 0


@pytest.mark.parametrize(("node_ahead_s", "saved_s"), [(0, 100), (3_600, 85), (-3_600, 130)])
def test_what_a_stopped_task_saved_is_within_what_it_ran_however_far_its_nodes_clock_is_off(
    node_ahead_s: int, saved_s: int
) -> None:
    noticed = datetime(2026, 11, 24, 10, tzinfo=UTC)
    began = noticed + timedelta(seconds=node_ahead_s - 100)
    end = {"exitCode": 0, "startedAt": began.isoformat(), "finishedAt": (began + timedelta(seconds=130)).isoformat()}
    statuses = [{"name": "task", "state": {"terminated": end}}]
    plain = {"metadata": {"name": POD}, "status": {"phase": "Succeeded", "containerStatuses": statuses}}
    pod = msgspec.convert(plain, PodObject)
    assert verdict_on(pod, StopNotice(noticed.timestamp(), 45.0), saves=True).service_s == saved_s


def test_a_task_that_is_killed_after_its_grace_keeps_nothing(bench: PodBench, cluster: StandinCluster) -> None:
    bench.launch = PodLaunch("i:1", {"worker": RoleNeeds("train", 1000, 0)}, notice_signal="SIGUSR1")
    bench.started()
    bench.engine.apply([stop(2)])
    bench.next(Confirmed)
    cluster.finish(POD, 137, "Error")
    ended = bench.next(Ended)
    assert (ended.outcome, ended.service_s) == (Outcome.STOPPED, None)
    assert "killed" in ended.detail


def test_a_start_that_is_stopped_before_it_runs_is_given_up(bench: PodBench, cluster: StandinCluster) -> None:
    bench.engine.apply([start(1)])
    bench.bound(POD)
    bench.engine.apply([stop(2)])
    eventually(lambda: (cluster.get("pods", POD) or {}).get("metadata", {}).get("deletionTimestamp"))
    cluster.remove("pods", POD)
    assert bench.next(Refused).decision == 1
    assert bench.next(Confirmed).decision == 2


@pytest.mark.parametrize(
    ("code", "reason", "outcome"),
    [
        (3, "Error", Outcome.USER_ERROR),
        (255, "Error", Outcome.USER_ERROR),
        (137, "OOMKilled", Outcome.OUT_OF_MEMORY),
        (0, "Completed", Outcome.SUCCESS),
        (137, "ContainerStatusUnknown", Outcome.NODE_LOST),
        (255, "Unknown", Outcome.NODE_LOST),
    ],
)
def test_how_a_program_ended_decides_what_its_end_counts_as(
    bench: PodBench, cluster: StandinCluster, code: int, reason: str, outcome: Outcome
) -> None:
    bench.started()
    cluster.finish(POD, code, reason)
    assert bench.next(Ended).outcome is outcome


def test_a_pod_that_others_delete_or_evict_counts_as_a_lost_node(bench: PodBench, cluster: StandinCluster) -> None:
    bench.started()
    cluster.remove("pods", POD)
    assert bench.next(Ended).outcome is Outcome.NODE_LOST
    bench.started(2, job="other-abcde")
    cluster.set_state("other-abcde-1-0", "Failed", {}, "Evicted", "the node was low on memory")
    ended = bench.next(Ended)
    assert ended.outcome is Outcome.NODE_LOST
    assert "low on memory" in ended.detail


def test_the_output_of_a_pod_is_copied_before_its_end_is_reported(bench: PodBench, cluster: StandinCluster) -> None:
    cluster.logs[POD] = ["2026-11-24T10:00:01.5Z one\n", "2026-11-24T10:00:01.5Z two\n"]
    bench.started()
    files = TaskFiles.of(bench.folder / "state", TaskId("train-abcde", 1, 0))
    eventually(lambda: files.log.exists() and files.log.read_text() == "one\ntwo\n")
    cluster.logs[POD] += ["2026-11-24T10:00:01.5Z three\n", "2026-11-24T10:00:02Z four"]
    cluster.finish(POD)
    bench.next(Ended)
    assert files.log.read_text() == "one\ntwo\nthree\nfour"


def test_the_values_of_secrets_are_not_in_the_pods_text(bench: PodBench, cluster: StandinCluster) -> None:
    needs = {"worker": RoleNeeds("train", 1000, 0)}
    bench.launch = PodLaunch("i:1", needs, {"VISIBLE": "yes"}, {"HF_TOKEN": "hf_very_secret"})
    bench.started()
    assert "hf_very_secret" not in json.dumps(bench.bound(POD))
    secret = cluster.get("secrets", "train-abcde-1")
    assert secret is not None
    assert secret["stringData"] == {"HF_TOKEN": "hf_very_secret"}


def test_suspension_is_refused_with_the_reason(bench: PodBench) -> None:
    bench.started()
    bench.engine.apply([Suspend(2, "train-abcde", 1, Cause.SUSPEND_REQUESTED)])
    refused = bench.next(Refused)
    assert refused.decision == 2
    assert "no cards of Millpond's agent, which alone suspends pods" in refused.reason


def test_a_replica_that_is_replaced_alone_gets_the_name_of_the_one_before(
    bench: PodBench, cluster: StandinCluster
) -> None:
    bench.started(nodes=["n1", "n2"])
    cluster.finish(POD, 1)
    assert bench.next(Ended).outcome is Outcome.USER_ERROR
    replace_first_task(bench, cluster)


def test_a_pod_that_an_admission_webhook_has_bound_to_another_node_does_not_start_there(
    bench: PodBench, cluster: StandinCluster
) -> None:
    def elsewhere(request: str, _body: object) -> JSONResponse | None:
        if not request.endswith(f"{POD}/binding"):
            return None
        plain = cluster.get("pods", POD)
        assert plain is not None
        cluster.put("pods", POD, {**plain, "spec": {**plain["spec"], "nodeName": "n2"}}, NAMESPACE)
        return JSONResponse({}, 201)

    cluster.refuses = elsewhere
    bench.engine.apply([start(1)])
    eventually(lambda: (cluster.get("pods", POD) or {"metadata": {}})["metadata"].get("deletionTimestamp"))
    cluster.remove("pods", POD)
    refused = bench.next(Refused)
    assert (refused.reason, refused.device_fault) == (f"pod {POD} was bound to node n2, and not to n1", True)


def test_a_pod_whose_container_an_admission_webhook_renames_fails_its_job_with_that_reason(
    bench: PodBench, cluster: StandinCluster
) -> None:
    def renamed(request: str, body: Any) -> None:
        if request == f"POST /api/v1/namespaces/{NAMESPACE}/pods":
            body["spec"]["containers"][0]["name"] = "main"

    cluster.refuses = renamed
    bench.engine.apply([start(1)])
    eventually(lambda: (cluster.get("pods", POD) or {"metadata": {}})["metadata"].get("deletionTimestamp"))
    cluster.remove("pods", POD)
    refused = bench.next(Refused)
    text = "its pod has no container called task any more: an admission webhook has renamed or removed it"
    assert (refused.reason, refused.device_fault) == (text, False)


def test_a_sidecar_of_others_that_fails_and_is_started_again_keeps_no_program_from_running(
    bench: PodBench, cluster: StandinCluster
) -> None:
    def injected(request: str, body: Any) -> None:
        if request == f"POST /api/v1/namespaces/{NAMESPACE}/pods":
            body["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]

    cluster.refuses = injected
    bench.engine.apply([start(1)])
    pod = bench.bound(POD)
    ended = {"name": "proxy", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    cluster.put("pods", POD, {**pod, "status": {"phase": "Pending", "initContainerStatuses": [ended]}}, NAMESPACE)
    cluster.run(POD)
    assert bench.next(Confirmed).decision == 1


def test_a_pod_in_which_others_have_put_what_goes_on_after_its_program_is_ended(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pods, "REST_AFTER_S", 0.0)
    monkeypatch.setattr(live_pods, "LOG_PATIENCE_S", 0.05)
    bench.started()
    end = {"exitCode": 0, "reason": "Completed", "startedAt": "2026-11-24T10:00:00Z"}
    cluster.set_state(POD, "Running", {"terminated": end})
    assert bench.next(Ended).outcome is Outcome.SUCCESS
    eventually(lambda: (cluster.get("pods", POD) or {})["metadata"].get("deletionTimestamp"))


def test_an_ended_pod_is_deleted_after_a_while_and_not_the_one_that_has_its_name_since(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pods, "KEEP_ENDED_S", 0.2)
    bench.started(nodes=["n1", "n2"])
    cluster.finish(POD, 1)
    bench.next(Ended)
    replace_first_task(bench, cluster)
    cluster.finish("train-abcde-1-1")
    bench.next(Ended)
    eventually(lambda: cluster.names("pods") == [POD])


@pytest.mark.parametrize("is_restarted", [False, True], ids=["by its server", "by the next server"])
def test_of_a_run_that_shared_nothing_only_its_pod_is_deleted_unless_an_earlier_server_began_it(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    monkeypatch.setattr(live_pods, "KEEP_ENDED_S", 0.0)
    bench.started()
    if is_restarted:
        bench.close()
        bench.open([TaskId("train-abcde", 1, 0)])
    cluster.finish(POD)
    bench.next(Ended)
    eventually(lambda: cluster.names("pods") == [])
    deleted = [request for request in cluster.requests if request.startswith("DELETE ")]
    assert len(deleted) == (4 if is_restarted else 1)


def test_the_secret_of_a_run_goes_before_its_pod_so_that_a_server_killed_in_between_leaves_none(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pods, "KEEP_ENDED_S", 0.0)
    bench.launch = PodLaunch("i:1", {"worker": RoleNeeds("train", 1000, 0)}, secrets={"HF_TOKEN": "hf_very_secret"})
    bench.started()
    cluster.refuses = lambda request, _: refusal(503, "ServiceUnavailable", "") if "/secrets/" in request else None
    cluster.finish(POD)
    bench.next(Ended)
    secret = f"DELETE /api/v1/namespaces/{NAMESPACE}/secrets/train-abcde-1"
    eventually(lambda: cluster.requests.count(secret) > 1)
    assert cluster.names("pods") == [POD]
    bench.close()
    cluster.refuses = lambda _request, _: None
    bench.open()
    eventually(lambda: cluster.names("secrets") == [])


def test_the_secret_of_a_start_that_is_given_up_is_gone_when_that_is_answered(
    bench: PodBench, cluster: StandinCluster
) -> None:
    bench.launch = PodLaunch("i:1", {"worker": RoleNeeds("train", 1000, 0)}, secrets={"HF_TOKEN": "hf_very_secret"})
    cluster.refuses = lambda request, _: refusal(422, "Invalid", "no") if request.endswith("/pods") else None
    bench.engine.apply([start(1)])
    bench.next(Refused)
    assert cluster.names("secrets") == []


def test_the_program_that_carries_files_is_made_once_for_all_runs_and_again_where_it_may_be_gone(
    bench: PodBench, cluster: StandinCluster
) -> None:
    bench.launch = replace(bench.launch, files=CarriedFiles("train:1", lambda attempt: replace(ORDER, attempt=attempt)))
    bench.started()
    (program,) = (name for name in cluster.names("secrets") if name.startswith("millpond-carrier-"))
    secret, own = cluster.get("secrets", program) or {}, cluster.get("secrets", "train-abcde-1-files") or {}
    assert (list(secret["data"]), secret["immutable"], "data" in own) == (["carrier.pyz"], True, False)
    sources = next(each["projected"] for each in bench.bound(POD)["spec"]["volumes"] if "projected" in each)["sources"]
    assert [each["secret"]["name"] for each in sources] == [program, "train-abcde-1-files"]
    cluster.remove("secrets", program)
    bench.started(2, job="other-abcde")
    assert program not in cluster.names("secrets")
    cluster.refuses = lambda request, _: refusal(404, "NotFound", "gone") if request.endswith("/pods") else None
    bench.engine.apply([start(3, job="third-abcde")])
    bench.next(Refused)
    cluster.refuses = lambda _request, _body: None
    bench.started(4, job="third-abcde", attempt=2)
    assert program in cluster.names("secrets")
    cluster.finish(POD)
    bench.next(Ended)
    assert program in cluster.names("secrets")


def test_what_the_pods_of_a_start_share_is_made_again_where_others_delete_it_before_they_run(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_starts, "SHARED_AGAIN_S", 0.01)
    bench.launch = replace(bench.launch, files=CarriedFiles("train:1", lambda attempt: ORDER), secrets={"KEY": "x"})
    bench.started()
    made = sorted(cluster.names("secrets"))
    cluster.remove("secrets", next(name for name in made if name.startswith("millpond-carrier-")))
    bench.engine.apply([start(2, job="other-abcde", nodes=("n1", "n2"))])
    pods = ("other-abcde-1-0", "other-abcde-1-1")
    for pod in pods:
        bench.bound(pod)
    cluster.remove("secrets", "other-abcde-1")
    cluster.set_state(
        pods[0],
        "Pending",
        {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "other-abcde-1" not found'}},
    )
    again = [*made, "other-abcde-1", "other-abcde-1-files"]
    eventually(lambda: sorted(cluster.names("secrets")) == sorted(again))
    for pod in pods:
        cluster.run(pod)
    assert bench.next(Confirmed).decision == 2


def test_what_is_made_again_of_a_start_that_is_given_up_meanwhile_is_deleted_again(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_starts, "SHARED_AGAIN_S", 0.01)
    bench.launch = replace(bench.launch, secrets={"KEY": "x"})
    making, is_over = f"POST /api/v1/namespaces/{NAMESPACE}/secrets", threading.Event()
    cluster.refuses = lambda request, _: (
        refusal(503, "Unavailable", "later")
        if request == making and cluster.requests.count(making) > 1 and not is_over.is_set()
        else None
    )
    bench.engine.apply([start(1)])
    bench.bound(POD)
    eventually(lambda: cluster.requests.count(making) > 1)
    bench.engine.apply([stop(2)])
    eventually(lambda: "deletionTimestamp" in (cluster.get("pods", POD) or {})["metadata"])
    cluster.remove("pods", POD)
    bench.next(Refused)
    is_over.set()
    deleting = f"DELETE /api/v1/namespaces/{NAMESPACE}/secrets/train-abcde-1"
    eventually(lambda: cluster.requests.count(deleting) > 1)
    eventually(lambda: cluster.names("secrets") == [])


def replace_first_task(bench: PodBench, cluster: StandinCluster) -> None:
    bench.engine.apply([start(2)])

    def is_bound() -> bool:
        pod = cluster.get("pods", POD)
        mark = {} if pod is None else json.loads(pod["metadata"]["annotations"]["millpond.io/task"])
        return pod is not None and mark["decision"] == 2 and "nodeName" in pod["spec"]

    eventually(is_bound)
    cluster.run(POD)
    assert bench.next(Confirmed).decision == 2


def test_a_volume_that_lies_where_shared_memory_does_is_that_instead(bench: PodBench) -> None:
    bench.launch = replace(bench.launch, mounts=(PodMount("fast", "/dev/shm", claim="fast"),))
    bench.engine.apply([start(1)])
    spec = bench.bound(POD)["spec"]
    assert [each["name"] for each in spec["volumes"]] == ["volume-fast"]
    assert [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]] == ["/dev/shm"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("FailedMount", "its volumes do not come"),
        ("FailedCreatePodSandBox", "its node cannot make a place and a network for it"),
    ],
)
def test_a_start_that_lacks_something_on_its_node_is_given_up_with_the_clusters_words(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch, reason: str, words: str
) -> None:
    monkeypatch.setattr(slow_starts, "SHARED_AGAIN_S", 0.0)
    monkeypatch.setattr(slow_starts, "TOLD_AFTER_S", 0.0)
    monkeypatch.setattr(slow_starts, "WAIT_PATIENCE_S", 0.05)
    for number, (kind, message) in enumerate((("Scheduled", "fine"), (reason, "nothing there"))):
        said = {"reason": kind, "message": message, "involvedObject": {"name": "train-abcde-1-0"}}
        cluster.put("events", f"event-{number}", said, NAMESPACE)
    bench.engine.apply([start(1)])
    assert bench.next(Noted).text == f"{words}: nothing there; its start is given up after 0.05s of that"
    eventually(lambda: "deletionTimestamp" in (cluster.get("pods", POD) or {})["metadata"])
    cluster.remove("pods", POD)
    refused = bench.next(Refused)
    assert refused.reason == f"{words}: nothing there"
    assert refused.device_fault
    assert cluster.names("pods") == []


def test_of_a_pod_that_its_node_does_not_begin_with_the_history_says_so(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_starts, "SHARED_AGAIN_S", 0.0)
    monkeypatch.setattr(slow_starts, "TOLD_AFTER_S", 0.01)
    bench.engine.apply([start(1)])
    assert bench.next(Noted).text == f"its pod {POD} is to begin, and node n1 has not said that it has"
    cluster.run(POD)
    assert bench.next(Confirmed).decision == 1


def test_what_brings_files_in_says_why_it_does_not(bench: PodBench, cluster: StandinCluster) -> None:
    bench.engine.apply([start(1)])
    bench.bound("train-abcde-1-0")
    end = {"terminated": {"exitCode": 3, "message": "the content 0123 is not here"}}
    status = {"phase": "Failed", "initContainerStatuses": [{"name": "bring-files", "state": end}]}
    pod = cluster.get("pods", "train-abcde-1-0")
    cluster.put("pods", "train-abcde-1-0", {**(pod or {}), "status": status}, NAMESPACE)
    refused = bench.next(Refused)
    assert refused.reason == "its files could not be brought into its pod: the content 0123 is not here"
    assert not refused.device_fault


@pytest.mark.parametrize(
    ("code", "carried", "outcome", "detail"),
    [
        (0, {"exitCode": 0}, Outcome.SUCCESS, ""),
        (0, {"exitCode": 3, "message": "full"}, Outcome.USER_ERROR, "its output is not kept: full"),
        (0, {"exitCode": 5, "message": "no python3"}, Outcome.SUCCESS, "its output is not kept: no python3"),
        (1, {"exitCode": 3, "message": "full"}, Outcome.USER_ERROR, "exit code 1; its output is not kept: full"),
        (0, None, Outcome.NODE_LOST, "its output is not kept: its pod was gone before it was carried back"),
    ],
)
def test_a_task_has_ended_when_what_it_left_is_carried_or_given_up(
    bench: PodBench,
    cluster: StandinCluster,
    code: int,
    carried: dict[str, object] | None,
    outcome: Outcome,
    detail: str,
) -> None:
    bench.launch = replace(bench.launch, files=CarriedFiles("python", lambda attempt: ORDER))
    bench.started()
    pod = cluster.get("pods", "train-abcde-1-0")
    ended = {"name": "task", "state": {"terminated": {"exitCode": code}}}
    status = {"phase": "Running", "containerStatuses": [ended, {"name": "files", "state": {"running": {}}}]}
    cluster.put("pods", "train-abcde-1-0", {**(pod or {}), "status": status}, NAMESPACE)
    eventually(lambda: bench.options.runs.has_ended(TaskId("train-abcde", 1, 0)))
    assert not [event for event in bench.engine.events() if isinstance(event, Ended)], "its output is on its way"
    if carried is None:
        cluster.remove("pods", "train-abcde-1-0")
    else:
        status["containerStatuses"] = [ended, {"name": "files", "state": {"terminated": carried}}]
        cluster.put("pods", "train-abcde-1-0", {**(pod or {}), "status": status}, NAMESPACE)
    end = bench.next(Ended)
    assert (end.outcome, end.detail) == (outcome, detail)
    assert not bench.options.runs.has(TaskId("train-abcde", 1, 0))


@pytest.mark.parametrize(("left_in_time", "grace_s"), [(True, 300), (False, 1)])
def test_a_pod_outlives_a_task_that_left_within_its_grace_until_its_output_is_carried(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch, left_in_time: bool, grace_s: int
) -> None:
    monkeypatch.setattr(live_pods, "_LATE_S", 0.2)
    bench.launch = replace(bench.launch, files=CarriedFiles("python", lambda attempt: ORDER))
    bench.started()
    bench.engine.apply([stop(2, grace_s=0.0)])
    eventually(lambda: "deletionTimestamp" in (cluster.get("pods", POD) or {})["metadata"])
    if left_in_time:
        bench.options.runs.note_word(TaskId("train-abcde", 1, 0))
    asked = f"DELETE /api/v1/namespaces/{NAMESPACE}/pods/{POD}"
    if not left_in_time:
        eventually(lambda: cluster.requests.count(asked) == 2)
    pod = cluster.get("pods", POD) or {}
    assert pod["metadata"]["deletionGracePeriodSeconds"] == grace_s
