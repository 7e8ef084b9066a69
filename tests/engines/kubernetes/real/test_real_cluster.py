"""Jobs as pods of a real cluster: API server, controller manager and kubelet, under the rights of ``roles.yaml``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import control_plane
import kubelet
import pytest
import yaml
from control_plane import ADMIN, ControlPlane
from kubelet import Kubelet

from millpond.engines.kubernetes.cluster import reflector
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel, ErrorAnswerError
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.engines.kubernetes.cluster.objects import MetaOnly
from millpond.engines.kubernetes.cluster.reflector import ObjectKind, Reflector

sys.path.insert(0, str(Path(__file__).parents[3] / "end_to_end"))
from real_pond import PATIENCE_S, Pond, asked, until

ROLES = Path(__file__).parents[4] / "deploy" / "kubernetes" / "roles.yaml"
SERVER = 'server-token,millpond,2,"people"'
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
        for document in yaml.safe_load_all(ROLES.read_text()):
            apply(plane, document)
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def pond(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder = tmp_path_factory.mktemp("node")
    node = Kubelet(folder / "node", plane.kubeconfig())
    config = folder / "pond.yaml"
    way = plane.kubeconfig("server-token", "millpond")
    config.write_text(f"kubernetes: {{kubeconfig: {way}, image: '{kubelet.IMAGE}'}}\n")
    pond = Pond(folder / "state")
    try:
        node.start()
        pond.printed("up", "--detach", "--config", str(config))
        until(lambda: node.lives() and [each["state"] for each in nodes(pond)] == ["open"])
        yield pond
    finally:
        pond("down")
        node.stop()


def call(plane: ControlPlane, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(plane.url + path, data, headers, method=method)
    with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as answer:
        return json.load(answer)


def apply(plane: ControlPlane, document: Any) -> None:
    group = document["apiVersion"]
    space = document["metadata"].get("namespace")
    root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    kind = f"{document['kind'].lower()}s".replace("ys", "ies")
    call(plane, "POST", f"{root}/{f'namespaces/{space}/' if space else ''}{kind}", document)


def nodes(pond: Pond) -> list[dict[str, Any]]:
    listed = json.loads(pond.printed("nodes", "-o", "json"))["nodes"]
    return [each | {"state": "open" if each["schedulable"] else "closed"} for each in listed]


SMALL = ("--cpus", "0.1", "--memory", "64MiB")


def run(pond: Pond, *arguments: str) -> Any:
    return pond("run", *SMALL, *arguments)


def submitted(pond: Pond, *arguments: str) -> str:
    return pond.printed("run", "--detach", *SMALL, *arguments)


def test_a_list_whose_rest_the_cluster_has_forgotten_meanwhile_is_begun_anew(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "PAGE", 1)
    asked: list[int] = []

    class ForgetfulChannel(ApiChannel):
        async def get(self, path: str, params: Mapping[str, str]) -> bytes:
            if "continue" in params and not asked:
                document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}}
                await asyncio.to_thread(apply, plane, document)
                await asyncio.to_thread(plane.forget_history)
                with pytest.raises(ErrorAnswerError) as told:
                    await super().get(path, params)
                asked.append(told.value.status_code)
                raise told.value
            return await super().get(path, params)

    async def follow() -> set[str]:
        channel = ForgetfulChannel(find_config(ClusterAccess(str(plane.kubeconfig()))), 0)
        kind = ObjectKind("/api/v1/namespaces", MetaOnly)
        namespaces = Reflector(channel, kind, lambda _: None, lambda _: None)
        following = asyncio.create_task(namespaces.run())
        await namespaces.ready.wait()
        following.cancel()
        await asyncio.wait([following])
        await channel.aclose()
        return {item.metadata.name for item in namespaces.objects.values()}

    assert asyncio.run(follow()) >= {"default", "kube-system", "late"}
    assert asked == [reflector.GONE]


def test_the_rights_of_the_roles_are_all_that_is_needed(pond: Pond, plane: ControlPlane) -> None:
    config = plane.folder / "check.yaml"
    config.write_text(f"kubernetes: {{kubeconfig: {plane.kubeconfig('server-token', 'millpond')}}}\n")
    checked = json.loads(pond("kube", "check", "--config", str(config), "-o", "json").stdout)
    assert {each["what"]: each["grade"] for each in checked} == {
        "way to the cluster": "ok",
        "rights": "ok",
        "way from pods": "limited",
        "nodes": "ok",
        "cards": "limited",
    }


@contextlib.contextmanager
def lacking(plane: ControlPlane, verb: str, resource: str) -> Iterator[None]:
    """The server may not do something meanwhile."""
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/millpond/roles/millpond-runs-jobs"

    def grant(rules: list[dict[str, Any]]) -> None:
        call(plane, "PUT", role, {**call(plane, "GET", role), "rules": rules})

    whole = call(plane, "GET", role)["rules"]
    fewer = [[each for each in rule["verbs"] if each != verb or resource not in rule["resources"]] for rule in whole]
    grant([{**rule, "verbs": verbs} for rule, verbs in zip(whole, fewer, strict=True) if verbs])
    try:
        yield
    finally:
        grant(whole)


@pytest.mark.parametrize(("verb", "resource"), [("create", "pods"), ("create", "pods/binding"), ("get", "pods/log")])
def test_a_right_that_is_missing_is_named_and_waited_for(
    pond: Pond, plane: ControlPlane, verb: str, resource: str
) -> None:
    with lacking(plane, verb, resource):
        job = submitted(pond, "--", "echo done")
        until(lambda: f'User "millpond" cannot {verb} resource "{resource}"' in pond("events", job).stdout)
    until(lambda: pond("logs", job).stdout == "done\n")
    until(lambda: "it succeeded" in pond("why", job).stdout)


def test_a_job_waits_for_room_in_the_quota_of_its_namespace(pond: Pond, plane: ControlPlane) -> None:
    first = submitted(pond, "--", "sleep 1000")
    until(lambda: "running on" in pond("why", first).stdout)
    quotas = "/api/v1/namespaces/millpond/resourcequotas"
    call(plane, "POST", quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "100m"}}})
    try:
        until(lambda: call(plane, "GET", f"{quotas}/small").get("status", {}).get("used"))
        second = submitted(pond, "--", "echo done")
        until(lambda: "exceeded quota: small" in pond("events", second).stdout)
        pond.printed("stop", first)
        until(lambda: pond("logs", second).stdout == "done\n")
    finally:
        call(plane, "DELETE", f"{quotas}/small")


def test_a_program_runs_and_its_output_and_exit_code_arrive(pond: Pond) -> None:
    done = run(pond, "--", "echo hello from $MILLPOND_NODE; echo '$$ $(RANK)'; exit 3")
    assert (done.returncode, done.stdout) == (3, "hello from 127.0.0.2\n$$ $(RANK)\n")


def test_shared_memory_is_bounded_by_the_memory_of_the_program_alone(pond: Pond) -> None:
    write = "dd if=/dev/zero of=/dev/shm/batches bs=1M count=100 2>/dev/null && echo written"
    assert pond("run", "--cpus", "0.1", "--memory", "256MiB", "--", write).stdout == "written\n"


def test_what_cannot_run_is_refused_with_the_reason(pond: Pond) -> None:
    absent = run(pond, "--", "/bin/nosuch", "thing")
    assert absent.returncode != 0
    assert "/bin/nosuch" in absent.stderr


def test_a_program_beyond_its_memory_is_said_to_be(pond: Pond) -> None:
    done = run(pond, "--", 'x=$(head -c 200000000 /dev/zero | tr "\\0" x); echo ${#x}')
    assert "more memory" in done.stderr


def test_a_stopped_program_has_its_notice(pond: Pond) -> None:
    line = 'trap "echo saved; exit 0" TERM; echo ready; while true; do sleep 0.1; done'
    job = submitted(pond, "--", line)
    until(lambda: "ready" in pond("logs", job).stdout)
    pond.printed("stop", job)
    until(lambda: "\nsaved\n" in pond("logs", job).stdout)  # busybox adds of its own child that it was terminated


@pytest.mark.parametrize(("signal", "saves"), [("USR1", "checkpoint={signal: SIGUSR1, grace: 60s}"), ("TERM", "")])
def test_a_program_below_the_shell_of_its_line_hears_the_notice_too(pond: Pond, signal: str, saves: str) -> None:
    line = f"""sh -c 'trap "echo saved; exit 0" {signal}; echo ready; while true; do sleep 0.1; done'; exit $?"""
    job = submitted(pond, *(("--set", saves) if saves else ()), "--", line)
    until(lambda: "ready" in pond("logs", job).stdout)
    pond.printed("stop", job)
    until(lambda: "\nsaved\n" in pond("logs", job).stdout)  # busybox adds of its own child that it was terminated


def test_jobs_outlive_a_killed_server_and_their_logs_go_on(pond: Pond) -> None:
    line = "i=0; while [ $i -lt 150 ]; do echo line $i; i=$((i+1)); sleep 0.1; done"
    job = submitted(pond, "--", line)
    until(lambda: "line 5\n" in pond("logs", job).stdout)
    pond.kill_server()
    pond.printed("up", "--detach")
    until(lambda: "line 149\n" in pond("logs", job).stdout)
    assert pond.printed("logs", job).splitlines() == [f"line {number}" for number in range(150)]


def test_a_job_goes_on_while_the_api_server_is_away(pond: Pond, plane: ControlPlane) -> None:
    job = started(pond, "until [ -e /tmp/go ]; do sleep 0.1; done; sleep 3; echo done")
    pond.printed("exec", job, "--", "touch", "/tmp/go")
    plane.kill("kube-apiserver")
    time.sleep(4)
    plane.start_api_server()
    until(lambda: pond("logs", job).stdout == "done\n")
    until(lambda: '"succeeded"' in pond("get", job, "-o", "json").stdout)


def started(pond: Pond, line: str) -> str:
    job = submitted(pond, "--", line)
    until(lambda: '"running"' in pond("get", job, "-o", "json").stdout)
    return job


def processes(pond: Pond, job: str, word: str) -> list[str]:
    listed = pond("exec", "-n", job, "--", "ps").stdout.splitlines()
    return [line for line in listed if word in line and "while read" not in line]


def test_commands_run_beside_a_program_with_streams_and_exit_codes(pond: Pond) -> None:
    job = started(pond, "sleep 1000")
    done = pond("exec", job, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    fed = pond("exec", job, "--", "cat", given="x" * 300_000)
    assert (fed.returncode, fed.stdout) == (0, "x" * 300_000)
    assert pond("exec", job, "--", "sh", "-c", "kill -9 $$").returncode == 137
    absent = pond("exec", job, "--", "/bin/nosuch")
    assert absent.returncode == 127
    assert "/bin/nosuch: not found" in absent.stderr
    typed = pond("exec", "-t", job, "--", "sh", given="stty size; tty\nexit 4\n")
    assert typed.returncode == 4
    assert "/dev/pts/" in typed.stdout


@pytest.mark.parametrize("terminal", ["-t", "-T"])
def test_a_command_whose_client_is_killed_ends(pond: Pond, terminal: str) -> None:
    job = started(pond, "sleep 1000")
    client = pond.start("exec", terminal, job, "--", "sh", "-c", "sleep 777; true", stdin=subprocess.PIPE)
    until(lambda: processes(pond, job, "sleep 777"))
    client.kill()
    until(lambda: not processes(pond, job, "sleep 777"))
    assert processes(pond, job, "sleep 1000")


def test_a_command_ends_with_the_server_and_the_next_one_runs_others(pond: Pond) -> None:
    job = started(pond, "sleep 1000")
    client = pond.start("exec", job, "--", "sh", "-c", "sleep 778; true", stdin=subprocess.PIPE)
    until(lambda: processes(pond, job, "sleep 778"))
    pond.kill_server()
    client.wait(PATIENCE_S)
    pond.printed("up", "--detach")
    until(lambda: not processes(pond, job, "sleep 778"))


def test_a_command_whose_pod_is_deleted_says_so(pond: Pond, plane: ControlPlane) -> None:
    job = started(pond, "sleep 1000")
    client = pond.start("exec", job, "--", "sh", "-c", "echo ready; sleep 779; true", stdin=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    call(plane, "DELETE", f"/api/v1/namespaces/millpond/pods/{job}-1-0?gracePeriodSeconds=1")
    assert client.wait(PATIENCE_S) in (137, 143, 255)  # the notice goes to all processes of the pod, this one too


def test_standard_input_goes_on_after_the_server_was_killed(pond: Pond) -> None:
    line = "while read -r line; do echo got $line; done; echo end"
    sender = pond.start("run", "-i", "--cpus", "0.1", "--memory", "64MiB", "--", line, stdin=subprocess.PIPE)
    assert sender.stdin is not None
    assert sender.stdout is not None
    sender.stdin.write("one\n")
    sender.stdin.flush()
    assert sender.stdout.readline() == "got one\n"
    pond.kill_server()
    pond.printed("up", "--detach")
    sender.stdin.write("two\n")
    sender.stdin.close()
    assert sender.stdout.read() == "got two\nend\n"
    assert sender.wait(PATIENCE_S) == 0


def test_the_trials_of_a_sweep_report_what_they_print(pond: Pond, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "cpus: 0.1\nmemory: 64MiB\ncommand: echo step=1 loss=$MILLPOND_PARAM_LR\n"
        "sweep: {parameters: {lr: [0.3, 0.1, 0.2]}, metric: {name: loss, goal: minimize}}\n"
    )
    job = pond.printed("submit", str(file))
    until(lambda: "3 succeeded" in pond("get", job).stdout)
    until(lambda: "trial 1: loss 0.1 at step 1" in pond("get", job).stdout)


SERVICE = """
kind: service
tasks: {desired: 2, min: 1, max: 3}
cpus: 0.1
memory: 64MiB
serve: {ready: /, drain: 5s}
command: "mkdir /tmp/w; echo WORD > /tmp/w/index.html; exec httpd -f -p 127.0.0.1:$MILLPOND_PORT -h /tmp/w"
"""


def test_a_service_answers_all_requests_while_a_revision_takes_its_place(pond: Pond, tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(SERVICE.replace("WORD", "one"))
    service = pond.printed("submit", str(file))
    until(lambda: asked(pond, service) == (200, b"one\n"))
    seen: set[tuple[int, bytes]] = set()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            seen.add(asked(pond, service))

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    file.write_text(SERVICE.replace("WORD", "two"))
    pond.printed("apply", "-y", "--update", service, str(file))
    until(lambda: "revision 2 replaced it" in pond("rollout", "status", service).stdout)
    stop.set()
    for client in clients:
        client.join()
    assert seen == {(200, b"one\n"), (200, b"two\n")}
    forward = pond.start("forward", f"{service}.r2", "0:9999")
    assert forward.stderr is not None
    address = forward.stderr.readline().split()[1]
    with pytest.raises(ConnectionError):
        urllib.request.urlopen(f"http://{address}/", timeout=20)
    forward.kill()
    pond.printed("stop", service)


def test_a_replica_whose_pod_is_deleted_is_replaced(pond: Pond, plane: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(SERVICE.replace("WORD", "one").replace("desired: 2", "desired: 1"))
    service = pond.printed("submit", str(file))
    until(lambda: asked(pond, service) == (200, b"one\n"))
    call(plane, "DELETE", f"/api/v1/namespaces/millpond/pods/{service}-1-0?gracePeriodSeconds=1")
    until(lambda: asked(pond, service)[0] == 503)
    until(lambda: asked(pond, service) == (200, b"one\n"))
    pond.printed("stop", service)


def test_a_pod_that_somebody_deletes_is_run_again(pond: Pond, plane: ControlPlane) -> None:
    line = "if [ $MILLPOND_ATTEMPT = 1 ]; then sleep 600; else echo again; fi"
    job = submitted(pond, "--", line)
    until(lambda: '"running"' in pond("get", job, "-o", "json").stdout)
    call(plane, "DELETE", f"/api/v1/namespaces/millpond/pods/{job}-1-0?gracePeriodSeconds=1")
    until(lambda: "again" in pond("logs", job).stdout)
