"""Files into pods and out of them: a real server and the carriers' own program, on a stand-in for the cluster."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_kubelet import ProcessKubelet
from real_pond import Pond, until
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.pods.pod_marks import pod_name
from millpond.node.task.records import TaskId
from own_address import free_port, own_address

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pond(cluster: StandinCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder = tmp_path_factory.mktemp("pond")
    config, host, port = folder / "pond.yaml", own_address(), free_port(own_address())
    config.write_text(
        f"kubernetes: {{kubeconfig: {cluster.kubeconfig(folder)}, image: 'registry.example/train:1', "
        f"server_url: 'http://{host}:{port}'}}\n"
    )
    pond = Pond(folder / "state")
    pond.env |= {"MILLPOND_PORT": str(port)}
    pond.printed("up", "--detach", "--host", host, "--config", str(config))
    yield pond
    pond.printed("down", "--keep-jobs")


def submitted(pond: Pond, cluster: StandinCluster, folder: Path, *arguments: str) -> tuple[str, ProcessKubelet]:
    """A job, and the kubelet of its pod, when that is bound."""
    done = pond("run", "--detach", "--cpus", "1", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    return job, kubelet_of(cluster, f"{job}-1-0", folder)


def kubelet_of(cluster: StandinCluster, pod: str, folder: Path) -> ProcessKubelet:
    until(lambda: (cluster.get("pods", pod) or {"spec": {}})["spec"].get("nodeName"))
    return ProcessKubelet(cluster, pod, folder / f"pod-{pod}")


def test_a_sent_folder_and_a_dataset_are_in_the_pod_and_what_it_leaves_comes_back(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    project, words = tmp_path / "project", tmp_path / "words"
    (project / "below" / "deep").mkdir(parents=True)
    words.mkdir()
    large = os.urandom(3 * 2**20)
    (project / "large").write_bytes(large)
    (project / "tool").write_text("#!/bin/sh\necho tool\n")
    (project / "tool").chmod(0o755)
    (project / "below" / "link").symlink_to("../tool")
    for number in range(2_500):
        (project / "below" / "deep" / f"{number}.txt").write_text(f"{number}\n")
    (words / "hamlet").write_text("to be\n")
    pond.printed("data", "put", "words", str(words))
    line = (
        "set -e; ./below/link; cat $MILLPOND_DATA_WORDS/hamlet; ls below/deep | wc -l; sha256sum < large; "
        "mkdir -p $MILLPOND_OUTPUT/deep; cp large $MILLPOND_OUTPUT/large; echo one > $MILLPOND_OUTPUT/deep/one; "
        "ln -s /etc/passwd $MILLPOND_OUTPUT/passwd; mkfifo $MILLPOND_OUTPUT/pipe; echo changed >> tool; exit 3"
    )
    job, node = submitted(pond, cluster, project, "--ship", "--data", "words=dataset/words", "--", line)
    assert node.bring_in() == 0
    node.start()
    assert node.end_of("task") == 3
    log = (node.folder / "task.log").read_text().split()
    assert log == ["tool", "to", "be", "2500", hashlib.sha256(large).hexdigest(), "-"]
    assert node.end_of("files") == 0
    until(lambda: pond.job(job)["state"] == "failed")
    assert pond.printed("output", "ls", job, "-o", "name").split() == ["deep/one", "large"]
    pond.printed("get-output", job, "-o", str(tmp_path / "got"))
    assert (tmp_path / "got" / "large").read_bytes() == large


def test_a_stopped_task_brings_back_what_it_saves_in_its_grace(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    line = "echo early > $MILLPOND_OUTPUT/early; trap 'sleep 1; echo late > $MILLPOND_OUTPUT/late; exit 0' TERM; "
    job, node = submitted(pond, cluster, tmp_path, "--", line + "touch ready; while true; do sleep 0.1; done")
    assert node.bring_in() == 0
    node.start()
    until((node.folder / "ready").exists)
    pond.printed("stop", job)
    until(lambda: "deletionTimestamp" in (cluster.get("pods", node.pod) or {})["metadata"])
    node.terminate()
    assert node.end_of("task", tells=False) == 0
    assert node.end_of("files", tells=False) == 0, "the carrier sees the end though nobody reports it"
    until(lambda: pond.job(job)["state"] == "cancelled")
    assert pond.printed("output", "ls", job, "-o", "name").split() == ["early", "late"]


def test_what_a_task_leaves_waits_for_a_server_that_is_away(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    line = "until [ -e go ]; do sleep 0.1; done; echo weights > $MILLPOND_OUTPUT/model"
    job, node = submitted(pond, cluster, tmp_path, "--", line)
    assert node.bring_in() == 0
    node.start()
    until(lambda: pond.job(job)["state"] == "running")
    pond.kill_server()
    (node.folder / "go").touch()
    assert node.end_of("task") == 0
    until(lambda: "not reached" in (node.folder / "files.log").read_text())
    pond.printed("up", "--detach", "--host", own_address())
    assert node.end_of("files") == 0
    until(lambda: pond.job(job)["state"] == "succeeded")
    assert pond.printed("output", "ls", job, "-o", "name").split() == ["model"]


def test_what_cannot_be_kept_fails_its_job_with_the_reason(pond: Pond, cluster: StandinCluster, tmp_path: Path) -> None:
    job, node = submitted(pond, cluster, tmp_path, "--", "echo a > $MILLPOND_OUTPUT/a")
    assert node.bring_in() == 0
    order = node.folder / "carrier" / "order.json"
    order.write_text(json.dumps(json.loads(order.read_text()) | {"token": "pondrun_other"}))
    node.start()
    assert node.end_of("task") == 0
    assert node.end_of("files") == 3
    until(lambda: pond.job(job)["state"] == "failed")
    assert "its output is not kept: the token is missing" in " ".join(pond.printed("get", job).split())


def test_an_image_without_python_runs_what_needs_nothing_brought_and_refuses_the_rest(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    bare = {"PATH": str(programs)}
    _, node = submitted(pond, cluster, tmp_path, "--ship", "--", "true")
    node.env = bare
    assert node.bring_in() == 5
    job, node = submitted(pond, cluster, tmp_path, "--", "exit 0")
    node.env = bare
    assert node.bring_in() == 0
    node.start()
    assert node.end_of("task") == 0
    assert node.end_of("files") == 5
    until(lambda: pond.job(job)["state"] == "succeeded")
    assert "kubernetes.helper_image" in pond.printed("get", job)


def test_a_run_has_a_way_to_its_own_files_alone_and_only_while_it_lives(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    (tmp_path / "name").write_text("ada")
    job, node = submitted(pond, cluster, tmp_path, "--ship", "--", "true")
    order = json.loads((node.folder / "carrier" / "order.json").read_text())
    other, _ = submitted(pond, cluster, tmp_path, "--", "true")

    def ask(path: str, body: bytes | None = None, token: str = order["token"]) -> int:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{order['server']}/api/v1{path}", body, headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    own = hashlib.sha256(b"ada").hexdigest()
    assert ask(f"/runs/{job}/1/0/contents/{own}") == 200
    assert ask(f"/runs/{job}/1/0/contents/{'0' * 64}") == 404
    assert ask(f"/runs/{other}/1/0/contents/{own}") == 404, "of another job"
    assert ask(f"/runs/{job}/1/1/contents/{own}") == 403, "of a task that there is not"
    assert ask(f"/runs/{job}/2/0/contents/{own}") == 404, "of another run"
    assert ask(f"/jobs/{job}") == 403
    assert ask("/jobs") == 403
    said, _, signature = order["token"].partition(".")
    assert ask(f"/runs/{job}/1/0/contents/{own}", token=f"{said}x.{signature}") == 401
    bad = {"files": [{"path": "../up", "digest": own, "size": 3, "executable": False}], "links": []}
    text = json.dumps(bad).encode()
    digest = hashlib.sha256(text).hexdigest()
    put = urllib.request.Request(
        f"{order['server']}/api/v1/blobs/{digest}", text, {"Authorization": f"Bearer {order['token']}"}, method="PUT"
    )
    urllib.request.urlopen(put).close()
    assert ask(f"/runs/{job}/1/0/output", json.dumps({"snapshot": digest}).encode()) == 422
    cluster.remove("pods", node.pod)
    until(lambda: ask(f"/runs/{job}/1/0/contents/{own}") == 401)
    assert ask("/blobs/missing", b'{"digests": []}') == 401


def test_metrics_arrive_while_a_task_runs_and_results_when_it_has_ended(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    point = '{"at": 1, "step": 1, "values": {"loss": 0.5}}'
    line = f"echo '{point}' >> $MILLPOND_METRICS; until [ -e go ]; do sleep 0.1; done; echo two >> $MILLPOND_RESULT"
    job, node = submitted(pond, cluster, tmp_path, "--", line)
    assert node.bring_in() == 0
    node.start()
    until(lambda: "loss" in pond("metrics", job).stdout)
    (node.folder / "go").touch()
    assert node.end_of("task") == 0
    assert node.end_of("files") == 0
    until(lambda: pond.job(job)["state"] == "succeeded")


def test_a_function_is_in_the_pod_and_what_it_returns_comes_back(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import millpond\njob = millpond.submit(pow, 2, 5)\nprint(job.id, flush=True)\nprint(job.result())\n"
    )
    with subprocess.Popen(
        [sys.executable, str(program)], env=pond.env, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        try:
            node = kubelet_of(cluster, f"{client.stdout.readline().strip()}-1-0", tmp_path)
            assert node.bring_in() == 0
            node.start()
            assert node.end_of("task") == 0
            assert node.end_of("files") == 0
            assert client.stdout.read() == "32\n"
        finally:
            client.kill()  # it waits for its result for ever


def test_trials_of_a_sweep_report_from_their_pods(pond: Pond, cluster: StandinCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from millpond import job; job.report(loss=float('{x}'), step=1)"]
    sweep_of = {"parameters": {"x": [3, 1]}, "metric": {"name": "loss", "goal": "minimize"}}
    job_file = tmp_path / "sweep.yaml"
    job_file.write_text(json.dumps({"command": command, "sweep": sweep_of}))
    sweep = pond.printed("submit", str(job_file)).splitlines()[-1].split()[0]
    for index in range(2):
        node = kubelet_of(cluster, pod_name(TaskId(f"{sweep}.{index}", 1, 0)), tmp_path)
        assert node.bring_in() == 0
        node.start()
        assert node.end_of("task") == 0
        assert node.end_of("files") == 0
    until(lambda: pond.job(sweep)["state"] == "succeeded")
    best = pond.printed("get", sweep)
    assert "trial 1: loss 1 at step 1, with x=1" in best
