"""Parts of one card in pods of a real kubelet: the agent as ``deploy/kubernetes-agent`` installs it, the real gate, and
a pretended driver. No card of NVIDIA's, and no container runtime of its, is in this.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import control_plane
import kubelet
import pytest
import yaml
from control_plane import ControlPlane, free_port
from kubelet import Kubelet
from machine_pods import AUTHORITY, mount_here, put_here
from test_real_cluster import ROLES, SERVER, apply, call, nodes

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[3] / "end_to_end"))
import manifests
from manifests import rendered
from real_pond import Pond, until

from fake_driver import calls
from fake_driver.building import what_is_missing
from fake_driver.driver import FakeDriver

MISSING = control_plane.missing() or kubelet.missing() or manifests.missing() or what_is_missing()
pytestmark = [pytest.mark.kubernetes, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
MIB = 2**20
AGENTS = "millpond-agents"


@dataclass
class SharedNode:
    """A node with one pretended card, its agent, and a server.

    Attributes:
        folder: with the driver, at the same path in the pods of jobs.
        slices: where the agent keeps what pods have.
        metrics: where the agent tells what its card does.
    """

    plane: ControlPlane
    pond: Pond
    folder: Path
    slices: Path
    driver: FakeDriver
    metrics: str

    def run(self, gpus: str, *commands: str, then: str = "sleep 600") -> str:
        """A job that does this on its part of the card, and then holds on to it."""
        driver = {"LD_LIBRARY_PATH": self.folder / "lib", "MILLPOND_FAKE_DRIVER": self.folder / "fake-driver-state"}
        variables = [word for name, value in driver.items() for word in ("--set", f"env.{name}={value}")]
        asked = ["--cpus", "0.1", "--memory", "64MiB", "--gpus", gpus, "--set", "checkpoint.grace=1s", *variables]
        words = "; ".join(f"echo {each}" for each in commands)
        line = f"({words}; {then}) | /usr/bin/python3 program.py"
        return self.pond.printed("run", "--detach", *asked, "--", line, cwd=self.folder)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedNode]:
    folder = tmp_path_factory.mktemp("node")
    plane = ControlPlane(folder / "plane", [SERVER])
    node, pond = Kubelet(folder / "node", plane.kubeconfig_place()), Pond(folder / "state")
    place = folder / "card"
    place.mkdir()
    driver = FakeDriver(place)
    shutil.copytree(driver.libraries, place / "lib")
    for name in ("libdl.so.2", "libpthread.so.0"):  # as in any image with glibc; this one has what Python needs alone
        shutil.copy(Path("/lib/x86_64-linux-gnu") / name, place / "lib")
    shutil.copy(calls.__file__, place / "program.py")
    settings = {
        "kubeconfig": str(plane.kubeconfig_place("server-token", "millpond")),
        "image": kubelet.PYTHON_IMAGE,
        "volumes": {"card": {"host_path": str(place)}},
        "adopt": {"namespaces": {"default": "default"}},
    }
    (folder / "pond.yaml").write_text(yaml.safe_dump({"kubernetes": settings}))
    try:
        plane.start()
        plane.start_controllers()
        for file in (ROLES, ROLES.with_name("adopt-roles.yaml")):
            for document in yaml.safe_load_all(file.read_text()):
                apply(plane, document)
        plane.kubeconfig("server-token", "millpond")
        node.kubeconfig = plane.kubeconfig()
        node.start()
        node.add_python_image()
        metrics = f"127.0.0.1:{free_port()}"
        for document in rendered("kubernetes-agent-metrics"):
            apply(plane, _on_this_machine(document, plane, node, place, metrics))
        pond.printed("up", "--detach", "--config", str(folder / "pond.yaml"))
        until(lambda: node.lives() and _cards(pond) == {driver.cards[0].uuid: "ok"})
        yield SharedNode(plane, pond, place, place / "millpond" / "slices", driver, metrics)
    finally:
        pond("down")
        node.stop()
        plane.stop()


def _on_this_machine(given: Any, plane: ControlPlane, node: Kubelet, place: Path, metrics: str) -> Any:
    """An object of the installation, with what this machine has in place of an image, a network and a card."""
    if given["kind"] == "Namespace":
        return given
    if given["kind"] == "ServiceAccount":  # before anything that names it
        certificate = (plane.folder / "certificates" / "apiserver.crt").read_text()
        meta = {"name": "authority", "namespace": AGENTS}
        apply(plane, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {AUTHORITY: certificate}})
    if given["kind"] == "DaemonSet":
        pod = given["spec"]["template"]["spec"]
        put_here(pod, plane, node.name, "authority")
        mount_here(pod, place, read_only=False)
        (container,) = pod["containers"]
        container["args"][container["args"].index("--metrics-listen") + 1] = metrics
        del container["ports"]  # the pod has the network of this machine
        container["args"] += ["--folder", str(place / "millpond"), "--swap-memory", "4GiB"]
        container["env"] += [
            {"name": "LD_LIBRARY_PATH", "value": str(place / "lib")},
            {"name": "MILLPOND_FAKE_DRIVER", "value": str(place / "fake-driver-state")},
        ]
        for volume in pod["volumes"]:
            if volume["name"] == "resources":
                volume["hostPath"]["path"] = str(node.folder / "kubelet" / "pod-resources")
            if volume["name"] == "state":
                volume["hostPath"]["path"] = str(place / "millpond")
    return given


def _cards(pond: Pond) -> dict[str, str]:
    found = json.loads(pond.printed("nodes", "-o", "json"))["nodes"]
    return {device["uuid"]: device["health"] for each in found for device in each["devices"]}


def _lines(shared: SharedNode, job: str, count: int) -> list[str]:
    until(lambda: len(shared.pond("logs", job).stdout.split("\n")) > count)
    return shared.pond.printed("logs", job).splitlines()


def test_two_slices_of_one_card_are_held_by_the_gate_and_free_it_at_their_ends(shared: SharedNode) -> None:
    one = shared.run("{memory: 1GiB, compute: 50%}", "start", f"alloc {400 * MIB}", f"alloc {400 * MIB}", "info")
    two = shared.run("{memory: 2GiB, compute: 25%}", "start", f"alloc {1200 * MIB}", f"alloc {900 * MIB}", "info")
    for job, memory_mib in ((one, 1024), (two, 2048)):
        started, fits, beyond, info = _lines(shared, job, 4)
        assert (started, fits.split()[0], beyond.split()[0]) == ("0", "0", "2")
        assert int(info.split()[2]) == memory_mib * MIB
    assert len(list(shared.slices.iterdir())) == 2
    third = shared.run("{memory: 2GiB, compute: 25%}", "start")
    assert "0.25 GPUs are free" in shared.pond.printed("why", third)
    shared.pond.printed("stop", one)
    until(lambda: shared.pond.job(third)["state"] == "running")
    for job in (two, third):
        shared.pond.printed("stop", job)
    until(lambda: not list(shared.slices.iterdir()))


def test_what_a_slice_uses_is_scraped_from_the_agent_of_its_node(shared: SharedNode) -> None:
    job = shared.run("0.25", "start", f"alloc {300 * MIB}")
    assert _lines(shared, job, 2)[1].split()[0] == "0"
    line = re.compile(r'^millpond_slice_memory_used_bytes{node="127.0.0.2",device="0",.*,slice="0"} (\d+)$', re.M)

    def used() -> int:
        with urllib.request.urlopen(f"http://{shared.metrics}/metrics") as answer:
            found = line.search(answer.read().decode())
        return int(found[1]) if found else 0

    until(lambda: used() >= 300 * MIB)
    shared.pond.printed("stop", job)
    until(lambda: used() == 0)
    until(lambda: not list(shared.slices.iterdir()))


def test_what_pods_have_outlives_the_agent_and_the_next_one_goes_on(shared: SharedNode) -> None:
    job = shared.run("0.25", "start", f"alloc {100 * MIB}", "info")
    assert _lines(shared, job, 3)[1].split()[0] == "0"
    before = set(_agents(shared))
    for name in before:
        call(shared.plane, "DELETE", f"/api/v1/namespaces/{AGENTS}/pods/{name}")
    until(lambda: (now := _agents(shared)) and not before & set(now) and set(now.values()) == {"Running"})
    another = shared.run("0.5", "start", "info")
    assert int(_lines(shared, another, 2)[1].split()[2]) == 2048 * MIB
    assert shared.pond.job(job)["state"] == "running"
    assert len(list(shared.slices.iterdir())) == 2
    whole = shared.run("1", "start", "info")
    for each in (job, another):
        shared.pond.printed("stop", each)
    assert int(_lines(shared, whole, 2)[1].split()[2]) == 4096 * MIB
    shared.pond.printed("stop", whole)
    until(lambda: not list(shared.slices.iterdir()))


def test_a_suspended_pod_frees_its_card_and_comes_back(shared: SharedNode) -> None:
    (card,) = shared.driver.cards
    again = "while :; do echo info; sleep 0.2; done"
    one = shared.run("1", "start", f"alloc {3000 * MIB}", then=again)
    assert _lines(shared, one, 3)[1].split()[0] == "0"
    bounds = _memory_bounds(shared, one)
    assert 64 * MIB in bounds
    shared.pond.printed("suspend", "--swap", one)
    until(lambda: _task_state(shared, one) == "swapped")
    assert shared.driver.used_bytes(card) == 0
    assert _memory_bounds(shared, one) == [each + 4096 * MIB if each < 2**60 else each for each in bounds]
    so_far = len(shared.pond.printed("logs", one).splitlines())
    two = shared.run("1", "start", f"alloc {3000 * MIB}", "info")
    assert _lines(shared, two, 3)[1].split()[0] == "0"
    for name in _agents(shared):  # the next agent knows who is where
        call(shared.plane, "DELETE", f"/api/v1/namespaces/{AGENTS}/pods/{name}")
    shared.pond.printed("resume", one)
    assert "as soon as its devices are free" in shared.pond.printed("why", one)
    shared.pond.printed("stop", two)
    until(lambda: _task_state(shared, one) == "running")
    assert int(_lines(shared, one, so_far + 3)[so_far + 2].split()[2]) == 4096 * MIB
    assert _memory_bounds(shared, one) == bounds
    shared.pond.printed("suspend", one)
    until(lambda: _task_state(shared, one) == "frozen")
    assert shared.driver.used_bytes(card) == 3000 * MIB
    shared.pond.printed("stop", one)
    until(lambda: not list(shared.slices.iterdir()))


def _task_state(shared: SharedNode, job: str) -> str:
    (task,) = shared.pond.job(job)["tasks"]
    return str(task["state"])


def _memory_bounds(shared: SharedNode, job: str) -> list[int]:
    """Of the control groups of a job's only pod, that of its container among them."""
    pods = call(shared.plane, "GET", "/api/v1/namespaces/millpond/pods")["items"]
    (uid,) = [each["metadata"]["uid"] for each in pods if each["metadata"]["name"].startswith(f"{job}-")]
    found = Path("/sys/fs/cgroup/memory").glob(f"**/pod{uid}/**/memory.limit_in_bytes")
    return [int(each.read_text()) for each in sorted(found)]


def _agents(shared: SharedNode) -> dict[str, str]:
    """The pods of agents, and how far they are."""
    listed = call(shared.plane, "GET", f"/api/v1/namespaces/{AGENTS}/pods")["items"]
    return {each["metadata"]["name"]: each["status"]["phase"] for each in listed}


def test_a_pod_of_others_has_its_part_of_the_card(shared: SharedNode) -> None:
    place = str(shared.folder)
    line = "(echo start; echo info; sleep 600) | /usr/bin/python3 program.py > adopted.out"
    container = {
        "name": "c",
        "image": kubelet.PYTHON_IMAGE,
        "command": ["/bin/sh", "-c", line],
        "workingDir": place,
        "env": [
            {"name": "LD_LIBRARY_PATH", "value": f"{place}/lib"},
            {"name": "MILLPOND_FAKE_DRIVER", "value": f"{place}/fake-driver-state"},
        ],
        "resources": {"limits": {"millpond.io/gpu-milli": "300", "millpond.io/gpu-memory-mib": "1500"}},
        "volumeMounts": [{"name": "card", "mountPath": place}],
    }
    spec = {
        "schedulerName": "millpond",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "card", "hostPath": {"path": place}}],
    }
    meta = {"name": "theirs", "namespace": "default"}
    apply(shared.plane, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    output = shared.folder / "adopted.out"
    until(lambda: output.exists() and output.read_text().count("\n") == 2)
    assert output.read_text().splitlines()[1].split()[2] == str(1500 * MIB)
    call(shared.plane, "DELETE", "/api/v1/namespaces/default/pods/theirs")
    until(lambda: not list(shared.slices.iterdir()))


def test_the_check_says_that_the_agent_answers(shared: SharedNode) -> None:
    config = shared.plane.folder / "check.yaml"
    config.write_text(f"kubernetes: {{kubeconfig: {shared.plane.kubeconfig('server-token', 'millpond')}}}\n")
    checked = json.loads(shared.pond("kube", "check", "--config", str(config), "-o", "json").stdout)
    found = {each["what"]: each for each in checked}
    assert found["agents"]["found"] == "on 1 of 1 nodes, cards are given out in parts"
    assert found["cards"]["found"] == "2064 x millpond.io/gpu-milli"


def test_a_card_that_fails_is_said_on_its_node_and_its_job_starts_again_when_it_is_back(shared: SharedNode) -> None:
    (card,) = shared.driver.cards

    def said() -> tuple[str, str]:
        conditions = call(shared.plane, "GET", "/api/v1/nodes/127.0.0.2")["status"]["conditions"]
        found = next((each for each in conditions if each["type"] == "MillpondCardsHealthy"), {})
        return found.get("status", ""), found.get("message", "")

    until(lambda: said() == ("True", "1 card"))
    job = shared.run("0.25", "start")
    _lines(shared, job, 1)
    shared.driver.set_card(card, lost=1)
    until(lambda: said()[0] == "False")
    assert said()[1].startswith(f"card 0 ({card.uuid}): ")
    until(lambda: shared.pond.job(job)["state"] == "queued")
    shared.driver.set_card(card, lost=0)
    until(lambda: said() == ("True", "1 card"))
    until(lambda: shared.pond.job(job)["state"] == "running")
    shared.pond.printed("stop", job)
    until(lambda: not list(shared.slices.iterdir()))


def test_a_pod_that_asks_past_the_scheduler_gets_no_card(shared: SharedNode) -> None:
    container = {
        "name": "c",
        "image": kubelet.IMAGE,
        "command": ["sleep", "600"],
        "resources": {"limits": {"millpond.io/gpu-milli": "100"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "namespace": "default"},
        "spec": {"nodeName": "127.0.0.2", "containers": [container]},
    }
    apply(shared.plane, pod)

    def state() -> Any:
        return call(shared.plane, "GET", "/api/v1/namespaces/default/pods/stranger")["status"]

    until(lambda: state()["phase"] == "Failed")
    assert "Millpond has bound no pod to this node that asks for 100" in state()["message"]
    assert nodes(shared.pond)[0]["state"] == "open"
