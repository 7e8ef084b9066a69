"""Programs of pods are reached at their ports: through the API server, or straight from within the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pod_bench import PodBench, eventually
from standin_cluster import NAMESPACE, StandinCluster, refusal

from millpond.engines.kubernetes.cluster import silent_peers
from millpond.engines.kubernetes.pods.pod_template import SERVICE_PORT
from millpond.engines.kubernetes.streams import pod_access
from millpond.engines.task_access import ServingPlace, TaskUnreachedError
from millpond.model.events import Ended, Noted
from millpond.node.task.records import TaskId

TASK = TaskId("train-abcde", 1, 0)
POD = "train-abcde-1-0"
WITHIN_S = 60.0


class Program:
    """What listens in a pod: it answers each connection with its bytes in capitals, as soon as it is told to stop."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.left = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            while data := client.recv(65_536):
                client.sendall(data.upper())
                if data.endswith(b"."):
                    return
        self.left.set()


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    yield made
    made.listener.close()


@pytest.fixture
def serving(bench: PodBench, cluster: StandinCluster, program: Program) -> PodBench:
    bench.launch = replace(bench.launch, serves=True)
    bench.started()
    eventually(lambda: bench.engine.access.serving(TASK))
    cluster.ports[POD, SERVICE_PORT] = program.port
    return bench


def connected(bench: PodBench, port: int = SERVICE_PORT, task: TaskId = TASK) -> socket.socket:
    connection = asyncio.run(bench.engine.access.connect(task, port, WITHIN_S))
    connection.setblocking(True)
    connection.settimeout(WITHIN_S)
    return connection


def whole(connection: socket.socket) -> bytes:
    said = b""
    while data := connection.recv(65_536):
        said += data
    return said


def test_a_task_that_serves_has_a_port_of_its_own_network(serving: PodBench, cluster: StandinCluster) -> None:
    assert serving.engine.access.serving(TASK) == ServingPlace(SERVICE_PORT)
    (container,) = serving.bound(POD)["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert (env["MILLPOND_PORT"], env["MILLPOND_NETWORK"]) == (str(SERVICE_PORT), "private")
    plain = cluster.get("pods", POD)
    assert plain is not None
    assert json.loads(plain["metadata"]["annotations"]["millpond.io/task"])["port"] == SERVICE_PORT


def test_bytes_go_both_ways_until_the_program_is_done(serving: PodBench) -> None:
    data = os.urandom(150_000).hex().encode() + b"."
    with connected(serving) as connection:
        sending = threading.Thread(target=connection.sendall, args=(data,))
        sending.start()
        assert whole(connection) == data.upper()
        sending.join()


def test_a_client_that_leaves_is_gone_for_the_program_too(serving: PodBench, program: Program) -> None:
    with connected(serving) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"HELLO"
    assert program.left.wait(WITHIN_S)


def test_a_client_that_has_nothing_more_to_say_still_gets_its_answer(serving: PodBench) -> None:
    with connected(serving) as connection:
        connection.sendall(b"hello.")
        connection.shutdown(socket.SHUT_WR)
        assert whole(connection) == b"HELLO."


def test_where_no_program_listens_is_said(serving: PodBench) -> None:
    with pytest.raises(ConnectionRefusedError, match="no program of pod train-abcde-1-0 listens on port 9999"):
        connected(serving, 9999)


def test_a_server_that_may_not_forward_ports_says_so_once_to_the_job_and_each_time_to_who_asks(
    serving: PodBench, cluster: StandinCluster
) -> None:
    words = "cannot create resource pods/portforward"
    cluster.refuses = lambda request, _: refusal(403, "Forbidden", words) if request.endswith("/portforward") else None
    for _ in range(2):
        with pytest.raises(TaskUnreachedError, match=words) as told:
            connected(serving)
        assert "pond kube check" in told.value.remedy
    cluster.refuses = lambda _request, _body: None
    connected(serving).close()
    cluster.finish(POD)

    def ended() -> bool:
        serving.seen += serving.engine.events()
        return any(isinstance(each, Ended) for each in serving.seen)

    eventually(ended)
    (note,) = (each.text for each in serving.seen if isinstance(each, Noted))
    assert note == f"its ports cannot be reached, and are tried again: pod {POD} cannot be entered: {words}"


def test_one_that_stops_listening_is_noticed(serving: PodBench, cluster: StandinCluster) -> None:
    with connected(serving) as connection:
        connection.sendall(b"hello.")
        assert whole(connection) == b"HELLO."
    del cluster.ports[POD, SERVICE_PORT]
    with connected(serving) as connection:  # it answered just now, so it is believed to be there
        assert whole(connection) == b""

    def refused() -> bool:
        try:
            connected(serving).close()
        except ConnectionRefusedError:
            return True
        return False

    eventually(refused)


def test_a_pod_that_is_over_is_not_asked(serving: PodBench, cluster: StandinCluster) -> None:
    cluster.finish(POD)
    eventually(lambda: serving.engine.access.serving(TASK) is None)
    with pytest.raises(ConnectionRefusedError, match="runs no more"):
        connected(serving)


def test_a_server_in_the_cluster_connects_straight_and_else_through_the_api_server(
    bench: PodBench, cluster: StandinCluster, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    bench.open()
    bench.started()
    eventually(lambda: bench.engine.access.serving(TASK))
    forwarded = f"GET /api/v1/namespaces/{NAMESPACE}/pods/{POD}/portforward"
    with connected(bench, program.port) as connection:
        connection.sendall(b"hello.")
        assert whole(connection) == b"HELLO."
    assert forwarded not in cluster.requests
    with socket.socket() as silent:  # it has the port, so that no other program listens there
        silent.bind(("127.0.0.1", 0))
        at_loopback = silent.getsockname()[1]
        cluster.ports[POD, at_loopback] = program.port
        with connected(bench, at_loopback) as connection:
            connection.sendall(b"hello.")
            assert whole(connection) == b"HELLO."
    assert forwarded in cluster.requests


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_connection_whose_other_end_is_gone_without_a_word_ends_for_its_client(
    bench: PodBench, cluster: StandinCluster, program: Program, monkeypatch: pytest.MonkeyPatch, is_inside: bool
) -> None:
    bench.close()
    monkeypatch.setattr(silent_peers, "LOOK_EVERY_S", 0.01)
    if is_inside:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    bench.open()
    bench.started()
    eventually(lambda: bench.engine.access.serving(TASK))
    cluster.ports[POD, program.port] = program.port
    with connected(bench, program.port) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"HELLO"
        monkeypatch.setattr(silent_peers, "MOST_UNANSWERED", 0)  # as if all had been sent again and again
        assert connection.recv(100) == b""


def test_a_node_whose_pods_do_not_answer_keeps_no_other_from_being_connected_to_straight(
    bench: PodBench, cluster: StandinCluster, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.close()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(pod_access, "_STRAIGHT_WITHIN_S", 0.05)
    bench.open()
    bench.started(nodes=("n1", "n2"))
    silent, other = TASK, replace(TASK, task=1)
    eventually(lambda: bench.engine.access.serving(other))
    with _full_listener() as full:
        cluster.ports[POD, full] = program.port
        connected(bench, full).close()
    cluster.ports[POD, program.port] = program.port
    for task in (silent, other):
        with connected(bench, program.port, task) as connection:
            connection.sendall(b"hello.")
            assert whole(connection) == b"HELLO."
    forwarded = [asked for asked in cluster.requests if asked.endswith("/portforward")]
    assert forwarded == 2 * [f"GET /api/v1/namespaces/{NAMESPACE}/pods/{POD}/portforward"]


@contextmanager
def _full_listener() -> Iterator[int]:
    """A port that answers nobody, as those do that lie behind a network policy."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as waiting:
        for _ in range(2):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])


def test_the_processor_time_of_a_task_is_read_in_its_container_where_it_can_be(serving: PodBench) -> None:
    used = serving.engine.access.cpu_s(TASK)
    assert used is None or used >= 0  # the stand-in's container is this machine, with or without control groups
    assert serving.engine.access.cpu_s(TaskId("never-was", 1, 0)) is None
