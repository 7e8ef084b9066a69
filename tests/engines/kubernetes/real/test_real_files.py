"""Files into real pods and out of them: the carriers run in an image with Python, the jobs in one without."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import control_plane
import kubelet
import pytest
import yaml
from control_plane import ControlPlane, free_port
from kubelet import Kubelet
from test_real_cluster import ROLES, SERVER, apply, nodes, run, submitted

sys.path.insert(0, str(Path(__file__).parents[3] / "end_to_end"))
from real_pond import Pond, until

MISSING = control_plane.missing() or kubelet.missing()
pytestmark = [pytest.mark.kubernetes, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder, port = tmp_path_factory.mktemp("node"), free_port()
    plane = ControlPlane(folder / "plane", [SERVER])
    node, pond = Kubelet(folder / "node", plane.kubeconfig_place()), Pond(folder / "state")
    (folder / "scratch").mkdir()
    settings = {
        "kubeconfig": str(plane.kubeconfig_place("server-token", "millpond")),
        "image": kubelet.IMAGE,
        "helper_image": kubelet.PYTHON_IMAGE,
        "server_url": f"http://{kubelet.HOST}:{port}",
        "volumes": {"scratch": {"host_path": str(folder / "scratch"), "path": "/scratch"}},
    }
    (folder / "pond.yaml").write_text(yaml.safe_dump({"kubernetes": settings}))
    try:
        plane.start()
        plane.start_controllers()
        for document in yaml.safe_load_all(ROLES.read_text()):
            apply(plane, document)
        plane.kubeconfig("server-token", "millpond")
        node.kubeconfig = plane.kubeconfig()
        node.start()
        node.add_python_image()
        config = str(folder / "pond.yaml")
        pond.printed("up", "--detach", "--host", "0.0.0.0", "--port", str(port), "--config", config)
        until(lambda: node.lives() and [each["state"] for each in nodes(pond)] == ["open"])
        yield pond
    finally:
        pond("down")
        node.stop()
        plane.stop()


def test_a_sent_folder_is_in_its_pod_and_what_the_job_leaves_is_fetched(pond: Pond, tmp_path: Path) -> None:
    large = os.urandom(3 * 2**20)
    (tmp_path / "below").mkdir()
    (tmp_path / "large").write_bytes(large)
    for number in range(1_500):
        (tmp_path / "below" / str(number)).write_text(f"{number}\n")
    line = "ls below | wc -l; cp large $MILLPOND_OUTPUT/copy; echo changed > below/1; exit 3"
    done = pond("run", "--cpus", "0.1", "--memory", "64MiB", "--ship", "--", line, cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (3, ["1500"])
    job = json.loads(pond.printed("ps", "-a", "-o", "json"))["jobs"][0]["id"]
    pond.printed("get-output", job, "-o", str(tmp_path / "got"))
    assert hashlib.sha256((tmp_path / "got" / "copy").read_bytes()).digest() == hashlib.sha256(large).digest()


def test_a_stopped_task_brings_back_what_it_saved_in_its_grace(pond: Pond) -> None:
    line = (
        "trap 'sleep 2; echo late > $MILLPOND_OUTPUT/late; exit 0' TERM; "
        "echo early > $MILLPOND_OUTPUT/early; echo ready; while true; do sleep 0.1; done"
    )
    job = submitted(pond, "--", line)
    until(lambda: "ready" in pond("logs", job).stdout)
    pond.printed("stop", job)
    until(lambda: '"cancelled"' in pond("get", job, "-o", "json").stdout)
    assert pond.printed("output", "ls", job, "-o", "name").split() == ["early", "late"]


def test_a_folder_of_the_node_is_where_the_job_file_says(pond: Pond, tmp_path: Path) -> None:
    done = run(pond, "--output", "/scratch/run1", "--", "echo one > $MILLPOND_OUTPUT/one")
    assert done.returncode == 0, done.stderr
    assert (pond.state_dir.parent / "scratch" / "run1" / "one").read_text() == "one\n"
    absent = run(pond, "--data", "x=/elsewhere", "--", "true")
    assert "lies in no volume" in absent.stderr
