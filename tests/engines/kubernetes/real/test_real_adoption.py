"""Pods of others on a real cluster: a Job, a Deployment, conditions, evictions, under the rights of the roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import control_plane
import kubelet
import pytest
import yaml
from control_plane import ControlPlane
from kubelet import Kubelet
from test_real_cluster import ROLES, SERVER, Pond, apply, call, nodes, until

from millpond.engines.kubernetes.adoption.gated_pods import pinned

SPACE = "theirs"
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(
        bool(control_plane.missing() or kubelet.missing()), reason=control_plane.missing() or kubelet.missing()
    ),
]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), [SERVER])
    try:
        plane.start()
        plane.start_controllers()
        for file in (ROLES, ROLES.with_name("adopt-roles.yaml")):
            for document in yaml.safe_load_all(file.read_text()):
                apply(plane, document)
        apply(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        yield plane
    finally:
        plane.stop()


def config_of(plane: ControlPlane, folder: Path) -> Path:
    config = folder / "pond.yaml"
    way = plane.kubeconfig("server-token", "millpond")
    config.write_text(f"kubernetes: {{kubeconfig: {way}, adopt: {{namespaces: {{{SPACE}: default}}}}}}\n")
    return config


@pytest.fixture(scope="module")
def pond(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder = tmp_path_factory.mktemp("node")
    node = Kubelet(folder / "node", plane.kubeconfig())
    pond = Pond(folder / "state")
    try:
        node.start()
        pond.printed("up", "--detach", "--config", str(config_of(plane, folder)))
        until(lambda: node.lives() and [each["state"] for each in nodes(pond)] == ["open"])
        yield pond
    finally:
        pond("down")
        node.stop()


def template(line: str, cpu: str = "50m", restart: str = "Never", **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": kubelet.IMAGE,
        "command": ["/bin/sh", "-c", line],
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
    }
    spec = {"schedulerName": "millpond", "restartPolicy": restart, "containers": [container], **spec}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"terminationGracePeriodSeconds": 2, **spec}}


def make(plane: ControlPlane, api: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    apply(plane, {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": SPACE}, "spec": spec})


def pods(plane: ControlPlane, begin: str) -> list[dict[str, Any]]:
    found = call(plane, "GET", f"/api/v1/namespaces/{SPACE}/pods")["items"]
    return [each for each in found if each["metadata"]["name"].startswith(begin)]


def condition(pod: dict[str, Any], kind: str = "PodScheduled") -> dict[str, Any]:
    return next((each for each in pod["status"].get("conditions", []) if each["type"] == kind), {})


def jobs(pond: Pond, name: str) -> list[dict[str, Any]]:
    listed = json.loads(pond.printed("ps", "-a", "-o", "json"))["jobs"]
    return [each for each in listed if each["name"].startswith(name)]


def test_the_rights_of_the_roles_are_all_that_adoption_needs(pond: Pond, plane: ControlPlane) -> None:
    config = config_of(plane, plane.folder)
    checked = json.loads(pond("kube", "check", "--config", str(config), "-o", "json").stdout)
    assert {each["what"]: each["grade"] for each in checked}["pods of others"] == "ok"


def test_a_job_of_two_pods_is_one_job_and_runs_to_its_end(pond: Pond, plane: ControlPlane) -> None:
    make(plane, "batch/v1", "Job", "pair", {"parallelism": 2, "completions": 2, "template": template("sleep 1")})
    until(lambda: [each["state"] for each in jobs(pond, "pair")] == ["succeeded"])
    (job,) = jobs(pond, "pair")
    assert (job["user"], len(job["tasks"])) == ("theirs:default", 2)
    assert call(plane, "GET", f"/apis/batch/v1/namespaces/{SPACE}/jobs/pair")["status"]["succeeded"] == 2


def test_the_pods_of_a_deployment_are_jobs_that_end_when_it_is_deleted(pond: Pond, plane: ControlPlane) -> None:
    labels = {"matchLabels": {"app": "x"}}
    spec = {"replicas": 2, "selector": labels, "template": template("sleep 600", restart="Always")}
    make(plane, "apps/v1", "Deployment", "web", spec)
    until(lambda: [each["state"] for each in jobs(pond, "web")] == ["running"] * 2)
    call(plane, "DELETE", f"/apis/apps/v1/namespaces/{SPACE}/deployments/web?propagationPolicy=Background")
    until(lambda: [each["state"] for each in jobs(pond, "web")] == ["cancelled"] * 2)


def test_a_pod_that_finds_no_node_has_a_condition_and_an_event(pond: Pond, plane: ControlPlane) -> None:
    make(plane, "v1", "Pod", "huge", template("true", cpu="900")["spec"])
    until(lambda: condition(pods(plane, "huge")[0]).get("reason") == "Unschedulable")
    told = condition(pods(plane, "huge")[0])["message"]
    assert told.startswith("a task asks for 900 CPUs")

    def said() -> list[str]:
        events = call(plane, "GET", f"/api/v1/namespaces/{SPACE}/events")["items"]
        return [each["message"] for each in events if each["involvedObject"]["name"] == "huge"]

    until(lambda: told in said())  # the event is written behind the condition
    call(plane, "DELETE", f"/api/v1/namespaces/{SPACE}/pods/huge")


def test_a_stopped_job_has_its_pod_evicted(pond: Pond, plane: ControlPlane) -> None:
    make(plane, "v1", "Pod", "lone", template("trap 'exit 0' TERM; while true; do sleep 0.1; done")["spec"])
    until(lambda: [each["state"] for each in jobs(pond, "lone")] == ["running"])
    (job,) = jobs(pond, "lone")
    pond.printed("stop", job["id"])
    until(lambda: not pods(plane, "lone"))
    until(lambda: [each["state"] for each in jobs(pond, "lone")] == ["cancelled"])


def test_pods_go_to_the_nodes_that_they_select_or_hear_that_there_are_none(pond: Pond, plane: ControlPlane) -> None:
    for name, zone in (("there", "127.0.0.2"), ("nowhere", "elsewhere")):
        make(plane, "v1", "Pod", name, template("true", nodeSelector={"kubernetes.io/hostname": zone})["spec"])
    until(lambda: [each["state"] for each in jobs(pond, "there")] == ["succeeded"])
    until(lambda: condition(pods(plane, "nowhere")[0]).get("reason") == "Unschedulable")
    told = condition(pods(plane, "nowhere")[0])["message"]
    assert told.startswith("no node of pool 'default' is as it asks: kubernetes.io/hostname=elsewhere")


def test_replicas_that_must_be_spread_wait_rather_than_lie_unevenly(pond: Pond, plane: ControlPlane) -> None:
    host = "kubernetes.io/hostname"
    ghost = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost", "labels": {host: "ghost"}}}
    apply(plane, ghost)
    labels = {"matchLabels": {"app": "x"}}
    spread = {"topologyKey": host, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": labels}
    made = template("sleep 600", restart="Always", topologySpreadConstraints=[spread])
    make(plane, "apps/v1", "Deployment", "even", {"replicas": 2, "selector": labels, "template": made})

    def told() -> list[str]:
        waiting = (condition(each) for each in pods(plane, "even") if not each["spec"].get("nodeName"))
        return [each.get("message", "") for each in waiting]

    until(lambda: len(told()) == 1 and "surplus(app=x of theirs" in told()[0])
    call(plane, "DELETE", "/api/v1/nodes/ghost")
    until(lambda: [each["state"] for each in jobs(pond, "even")] == ["running"] * 2)
    call(plane, "DELETE", f"/apis/apps/v1/namespaces/{SPACE}/deployments/even?propagationPolicy=Background")
    until(lambda: not pods(plane, "even"))


def test_kube_scheduler_binds_pods_to_the_one_node_that_a_release_leaves_them(plane: ControlPlane) -> None:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "100"}
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    for name in ("pin-a", "pin-b", "pin-c"):
        status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
        meta = {"name": name, "labels": {"disk": "ssd"}}
        apply(plane, {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
    asked = {"key": "disk", "operator": "In", "values": ["ssd"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
    selective = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    for number, (affinity, node) in enumerate((({}, "pin-b"), (selective, "pin-b"), (selective, "pin-c"))):
        spec = {**template("true")["spec"], "schedulerName": "default-scheduler", "affinity": pinned(affinity, node)}
        make(plane, "v1", "Pod", f"pinned-{number}-to-{node}", spec)
    plane.start_scheduler()
    until(lambda: all(each["spec"].get("nodeName") for each in pods(plane, "pinned")))
    for each in pods(plane, "pinned"):
        assert each["metadata"]["name"].endswith(f"-to-{each['spec']['nodeName']}")
        call(plane, "DELETE", f"/api/v1/namespaces/{SPACE}/pods/{each['metadata']['name']}?gracePeriodSeconds=0")
    for name in ("pin-a", "pin-b", "pin-c"):
        call(plane, "DELETE", f"/api/v1/nodes/{name}")
    plane.kill("kube-scheduler")


def test_pods_outlive_a_killed_server_and_are_found_again(pond: Pond, plane: ControlPlane) -> None:
    make(plane, "batch/v1", "Job", "long", {"template": template("sleep 20")})
    until(lambda: [each["state"] for each in jobs(pond, "long")] == ["running"])
    pond.kill_server()
    pond.printed("up", "--detach")
    until(lambda: [each["state"] for each in jobs(pond, "long")] == ["succeeded"])


def test_a_pod_that_another_scheduler_binds_is_let_be(pond: Pond, plane: ControlPlane) -> None:
    spec = {**template("sleep 1")["spec"], "schedulerName": "somebody-else"}
    make(plane, "v1", "Pod", "other", spec)
    target = {"apiVersion": "v1", "kind": "Node", "name": "127.0.0.2"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "other"}, "target": target}
    call(plane, "POST", f"/api/v1/namespaces/{SPACE}/pods/other/binding", binding)
    until(lambda: pods(plane, "other")[0]["status"]["phase"] == "Succeeded")
    with pytest.raises(HTTPError, match="409"):
        call(plane, "POST", f"/api/v1/namespaces/{SPACE}/pods/other/binding", binding)
    assert jobs(pond, "other") == []
