"""The server as ``deploy/kubernetes`` installs it: a pod, under the rights, limits and probes of these files.

The image is busybox with this machine's programs and libraries mounted, and the pod has the node's network, as no
network leads from pods to an API server on loopback. All else is as it is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import control_plane
import kubelet
import pytest
import yaml
from control_plane import ControlPlane, free_port
from kubelet import IMAGE, Kubelet
from machine_pods import AUTHORITY, put_here

sys.path.insert(0, str(Path(__file__).parents[3] / "end_to_end"))
sys.path.insert(0, str(Path(__file__).parents[1]))
import manifests
from manifests import rendered
from real_pond import POND, until

MISSING = control_plane.missing() or kubelet.missing() or manifests.missing()
pytestmark = [pytest.mark.kubernetes, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        plane.start()
        plane.start_controllers()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def installed(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("installed")
    state = folder / "state"
    state.mkdir()
    os.chown(state, 10001, 10001)  # what `fsGroup` does where the volume is a claim's
    node = Kubelet(folder / "node", plane.kubeconfig())
    try:
        node.start()
        objects = [_on_this_machine(each, plane, node.name) for each in rendered("kubernetes")]
        objects.append(_volume(state))
        kubectl(plane, "apply", "-f", "-", given=yaml.safe_dump_all(objects))
        until(lambda: node.lives() and _ready(plane))
        yield plane
    finally:
        node.stop()


def _on_this_machine(given: dict[str, Any], plane: ControlPlane, node: str) -> dict[str, Any]:
    """An object of the installation, with what this machine has in place of an image and a network."""
    spec = given.get("spec", {})
    if given["kind"] == "ConfigMap":
        given["data"]["pond.yaml"] = f"kubernetes: {{namespace: millpond, image: '{IMAGE}'}}\n"
        given["data"][AUTHORITY] = (plane.folder / "certificates" / "apiserver.crt").read_text()
    elif given["kind"] == "StatefulSet":
        _put_here(spec["template"]["spec"], plane, node)
    return given


def _put_here(pod: dict[str, Any], plane: ControlPlane, node: str) -> None:
    (server,) = pod["containers"]
    (config,) = [each["configMap"]["name"] for each in pod["volumes"] if each["name"] == "config"]
    port = free_port()
    put_here(pod, plane, node, config)
    server["args"] += ["--port", str(port)]
    server["ports"][0]["containerPort"] = port


def _volume(folder: Path) -> dict[str, Any]:
    """What the server's claim gets."""
    spec = {"capacity": {"storage": "50Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(folder)}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "state"}, "spec": spec}


def kubectl(plane: ControlPlane, *words: str, given: str = "") -> str:
    command = ["kubectl", "--kubeconfig", plane.kubeconfig(), "--namespace", "millpond", *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout


def _server(plane: ControlPlane) -> Any:
    """The server's pod; empty where there is none."""
    return json.loads(kubectl(plane, "get", "pod", "millpond-0", "--ignore-not-found", "-o", "json") or "{}")


def _ready(plane: ControlPlane) -> bool:
    conditions = _server(plane).get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def pond(plane: ControlPlane, *words: str) -> str:
    return kubectl(plane, "exec", "millpond-0", "--", str(POND), *words)


def test_the_installed_server_runs_jobs_and_goes_on_in_its_next_pod(installed: ControlPlane) -> None:
    line = "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.1; done"
    job = pond(installed, "run", "--cpus", "0.1", "--memory", "64MiB", "--detach", "--", line).strip()
    until(lambda: "line 5\n" in pond(installed, "logs", job))
    kubectl(installed, "delete", "pod", "millpond-0", "--wait")
    until(lambda: _ready(installed))
    until(lambda: "line 99\n" in pond(installed, "logs", job))
    assert pond(installed, "logs", job) == "".join(f"line {number}\n" for number in range(100))
