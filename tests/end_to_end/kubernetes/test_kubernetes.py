"""The real server and command line on a stand-in for a Kubernetes cluster."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from real_pond import PATIENCE_S, Pond, asked, until
from standin_agent import add_agent
from standin_cluster import StandinCluster

VOLUMES = "{words: {claim: words, path: /datasets/words, read_only: true}, scratch: {host_path: /mnt/scratch}}"


@pytest.fixture(scope="module")
def config(cluster: StandinCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pond")
    config = folder / "pond.yaml"
    config.write_text(
        f"kubernetes: {{kubeconfig: {cluster.kubeconfig(folder)}, image: 'registry.example/train:1', "
        f"volumes: {VOLUMES}}}\n"
    )
    return config


@pytest.fixture(scope="module")
def _server(config: Path) -> Iterator[Pond]:
    pond = Pond(config.parent / "state")
    yield pond
    pond("down", "--keep-jobs")


@pytest.fixture
def pond(_server: Pond, config: Path) -> Pond:
    """One server for all tests of the file; another, where the test before has ended it."""
    if not _server.server_pid:
        _server.printed("up", "--detach", "--config", str(config))
    return _server


def submit(pond: Pond, *arguments: str) -> str:
    return pond.printed("run", "--detach", *arguments)


def test_a_job_runs_as_a_pod_and_outlives_its_server(pond: Pond, cluster: StandinCluster) -> None:
    job = submit(pond, "--gpus", "2", "--", "python", "train.py")
    pod = f"{job}-1-0"
    until(lambda: (cluster.get("pods", pod) or {"spec": {}})["spec"].get("nodeName") == "n1")
    (container,) = [each for each in cluster.get("pods", pod)["spec"]["containers"] if each["name"] == "task"]
    assert "PATH" not in [each["name"] for each in container["env"]]
    cluster.logs[pod] = ["2026-11-24T10:00:01Z epoch 1\n"]
    cluster.run(pod)
    until(lambda: pond.job(job)["state"] == "running")
    inside = pond("exec", job, "--", "sh", "-c", "cat; exit 3", given="typed\n")
    assert (inside.returncode, inside.stdout, inside.stderr) == (3, "typed\n", "")
    pond.kill_server()
    cluster.logs[pod] += ["2026-11-24T10:00:02Z epoch 2\n"]
    cluster.finish(pod)
    pond.printed("up", "--detach")
    until(lambda: pond.job(job)["state"] == "succeeded")
    assert pond.printed("logs", job) == "epoch 1\nepoch 2"
    over = pond("exec", job, "--", "ls")
    assert f"task 0 of job {job} is succeeded" in over.stderr


def test_a_job_that_names_no_image_goes_to_the_node_that_holds_the_configured_one(
    pond: Pond, cluster: StandinCluster
) -> None:
    image = {"names": ["registry.example/train:1"], "sizeBytes": 9 * 10**9}
    cluster.add_node("n9", images=[image])
    until(lambda: "registry.example/train:1" in pond("nodes", "n9").stdout)
    pod = f"{submit(pond, '--gpus', '1', '--', 'train')}-1-0"
    until(lambda: (cluster.get("pods", pod) or {"spec": {}})["spec"].get("nodeName") == "n9")
    cluster.finish(pod)
    cluster.remove("nodes", "n9", "")
    until(lambda: pond("nodes", "n9").returncode)


@pytest.mark.long
def test_a_service_is_reached_in_its_pods_and_another_revision_takes_its_place(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    answers = {"one": answering(b"one"), "two": answering(b"two")}
    file = tmp_path / "web.yaml"
    text = "kind: service\ntasks: {desired: 1, min: 1, max: 2}\nserve: {ready: /}\ncommand: serve one\n"
    file.write_text(text)
    service = pond.printed("submit", str(file))
    comes_up(cluster, "one", answers["one"])
    until(lambda: asked(pond, service) == (200, b"one"))
    file.write_text(text.replace("one", "two"))
    pond.printed("apply", "-y", "--update", service, str(file))
    comes_up(cluster, "two", answers["two"])
    until(lambda: asked(pond, service) == (200, b"two"))
    forward = pond.start("forward", f"{service}.r2", "0")
    assert forward.stderr is not None
    address = forward.stderr.readline().split()[1]
    with urllib.request.urlopen(f"http://{address}/", timeout=PATIENCE_S) as answer:
        assert answer.read() == b"two"
    forward.kill()
    forward.wait()
    for port in answers.values():
        port.shutdown()


def answering(text: bytes) -> ThreadingHTTPServer:
    """A program on this machine that stands for one in a pod."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def comes_up(cluster: StandinCluster, word: str, program: ThreadingHTTPServer) -> None:
    """The kubelet starts the pod whose command has the word; the program is what answers in it."""

    def bound() -> str:
        pods = [cluster.get("pods", name) for name in cluster.names("pods")]
        named = [pod for pod in pods if pod and word in pod["spec"]["containers"][0]["command"][-1]]
        return next((pod["metadata"]["name"] for pod in named if pod["spec"].get("nodeName")), "")

    until(bound)
    cluster.ports[bound(), 8080] = program.server_address[1]
    cluster.run(bound())


@pytest.mark.long
def test_a_part_of_a_card_is_for_a_node_with_an_agent_alone_and_ordered_of_it(
    pond: Pond, cluster: StandinCluster
) -> None:
    part = ("--gpus", "0.25", "--set", "share_class=online", "--", "python", "serve.py")
    none = pond("run", "--detach", *part)
    assert none.returncode != 0
    assert "no node has an agent that gives out parts" in none.stderr
    add_agent(cluster, "n2")
    until(lambda: len(json.loads(pond.printed("nodes", "-o", "json"))["nodes"]) == 2)
    job = submit(pond, *part)
    until(lambda: (cluster.get("pods", f"{job}-1-0") or {"spec": {}})["spec"].get("nodeName") == "n2")
    order = json.loads(cluster.get("pods", f"{job}-1-0")["metadata"]["annotations"]["millpond.io/grants"])
    (grant,) = order["grants"]
    assert (grant["compute_milli"], grant["memory_mib"], order["share_class"]) == (250, 4096, "online")
    cluster.run(f"{job}-1-0")
    until(lambda: pond.job(job)["state"] == "running")
    assert "gate" in pond.printed("get", job)


@pytest.mark.long
def test_what_pods_are_not_given_is_refused_at_submission(pond: Pond, tmp_path: Path) -> None:
    preloaded = pond("run", "--detach", "--gpus", "0.5", "--set", "env.LD_PRELOAD=x.so", "--", "true")
    assert preloaded.returncode == 2
    assert "LD_PRELOAD of their own beside a part of a card" in preloaded.stderr
    seeing = pond("run", "--detach", "--gpus", "1", "--set", "env.NVIDIA_VISIBLE_DEVICES=all", "--", "true")
    assert seeing.returncode == 2
    assert "NVIDIA_VISIBLE_DEVICES of their own yet" in seeing.stderr
    adapters = pond("run", "--detach", "--set", "extras.rdma=1", "--", "true")
    assert adapters.returncode == 2
    assert "no resource of the cluster is called rdma" in adapters.stderr
    assert "kubernetes.extras" in adapters.stderr
    job_file = tmp_path / "job.yaml"
    job_file.write_text("kind: dev\nserve: {listen: socket}\ncommand: serve\n")
    unreached = pond("submit", str(job_file))
    assert unreached.returncode == 2
    assert "listen on Unix sockets" in unreached.stderr


@pytest.mark.long
def test_folders_of_volumes_lie_in_pods_where_job_files_name_them(
    pond: Pond, cluster: StandinCluster, tmp_path: Path
) -> None:
    job_file = tmp_path / "job.yaml"
    job_file.write_text(
        "command: train\nworkdir: /mnt/scratch/ada\noutput: /mnt/scratch/run1\n"
        "data: {a: /datasets/words/a, all: /datasets/words}\n"
    )
    pod = f"{pond.printed('submit', str(job_file))}-1-0"
    until(lambda: cluster.get("pods", pod))
    spec = (cluster.get("pods", pod) or {})["spec"]
    assert spec["volumes"] == [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        {"name": "volume-scratch", "hostPath": {"path": "/mnt/scratch", "type": "Directory"}},
        {"name": "volume-words", "persistentVolumeClaim": {"claimName": "words", "readOnly": True}},
    ]
    (container,) = spec["containers"]
    assert container["volumeMounts"] == [
        {"name": "shared-memory", "mountPath": "/dev/shm"},
        {"name": "volume-words", "mountPath": "/datasets/words", "readOnly": True},
        {"name": "volume-words", "mountPath": "/datasets/words/a", "readOnly": True, "subPath": "a"},
        {"name": "volume-scratch", "mountPath": "/mnt/scratch/ada", "subPath": "ada"},
        {"name": "volume-scratch", "mountPath": "/mnt/scratch/run1", "subPath": "run1"},
    ]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert container["workingDir"] == "/mnt/scratch/ada"
    assert variables["MILLPOND_DATA_A"] == "/datasets/words/a"
    assert variables["MILLPOND_OUTPUT"] == "/mnt/scratch/run1"


@pytest.mark.long
def test_a_folder_in_no_volume_is_refused_at_submission(pond: Pond) -> None:
    refused = pond("run", "--detach", "--data", "x=/etc", "--", "true")
    assert refused.returncode == 2
    assert "/etc lies in no volume" in refused.stderr
    assert "/datasets/words, /mnt/scratch" in refused.stderr


@pytest.mark.long
def test_the_check_of_a_cluster_says_what_is_missing(pond: Pond, cluster: StandinCluster, config: Path) -> None:
    done = pond("kube", "check", "--config", str(config))
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "may not list nodes" in said, "the stand-in gives no rights to those who ask"
    assert "that is all of the rights in that namespace" in said
    assert "8 x nvidia.com/gpu" in done.stdout
    assert "there is no claim words in namespace team" in done.stdout
    assert "set kubernetes.server_url" in said
    cluster.stop()
    away = pond("kube", "check", "--config", str(config), "-o", "json")
    cluster.start()
    assert json.loads(away.stdout)[0]["grade"] == "broken"


@pytest.mark.long
def test_a_server_whose_lease_another_one_has_ends_and_says_why(pond: Pond, cluster: StandinCluster) -> None:
    (lease,) = cluster.names("leases.coordination.k8s.io")
    cluster.put("leases.coordination.k8s.io", lease, {"spec": {"holderIdentity": "another"}}, "team")
    until(lambda: not (pond.state_dir / "server.json").exists())
    said = (pond.state_dir / "server.log").read_text()
    assert f"another server has the lease {lease} of namespace team (another)" in said
    assert "start it again" in said
    assert "defect" not in said
    cluster.remove("leases.coordination.k8s.io", lease, "team")


@pytest.mark.long
def test_a_server_of_one_machine_moves_to_a_cluster(own_cluster: StandinCluster, tmp_path: Path) -> None:
    before = Pond(tmp_path / "machine")
    before.up()
    before.printed("queue", "add", "lab", "guarantee=2")
    done = submit(before, "--queue", "lab", "--", "true")
    until(lambda: before.job(done)["state"] == "succeeded")
    first = ("--priority", "high")  # else what has waited for longer than this has run goes before it
    running = submit(before, "--gpus", "4", "--name", "long", *first, "--", "sleep", "600")
    until(lambda: before.job(running)["state"] == "running")
    waiting = submit(before, "--gpus", "4", "--tasks", "2", "--name", "wide", "--", "train")
    archive = tmp_path / "pond.tar.gz"
    before.printed("backup", str(archive))
    before.printed("stop", running)
    before.printed("down")

    config = tmp_path / "pond.yaml"
    config.write_text(
        f"kubernetes: {{kubeconfig: {own_cluster.kubeconfig(tmp_path)}, image: 'registry.example/train:1'}}\n"
    )
    after = Pond(tmp_path / "cluster")
    after.printed("restore", str(archive), "--state-dir", str(after.state_dir))
    try:
        refused = after("up", "--detach", "--take-over", "--config", str(config))
        assert "--fake-gpus none" in refused.stderr
        after.printed("up", "--detach", "--take-over", "--fake-gpus", "none", "--config", str(config))
        assert after.job(done)["state"] == "succeeded"
        until(lambda: f"{running}-2-0" in own_cluster.names("pods"))
        own_cluster.add_node("n2")
        until(lambda: {f"{waiting}-1-0", f"{waiting}-1-1"} <= set(own_cluster.names("pods")))
        assert "of 2 guaranteed" in after.printed("queue", "show", "lab")
    finally:
        after("down", "--keep-jobs")


@pytest.mark.long
def test_a_job_that_waited_for_its_image_on_one_machine_waits_no_more_in_a_cluster(
    config: Path, cluster: StandinCluster, tmp_path: Path
) -> None:
    pond = Pond(tmp_path / "moved")
    pond.printed("up", "--detach", "--fake-gpus", "1:V100-32GB")
    job = submit(pond, "--gpus", "1", "--image", "registry.example/train:1", "--", "train")
    until(lambda: "it waits for image" in pond.printed("why", job))
    pond.kill_server()
    pond.printed("up", "--detach", "--config", str(config), "--fake-gpus", "none")
    try:
        until(lambda: cluster.get("pods", f"{job}-1-0"))
    finally:
        pond("down", "--keep-jobs")
