"""Standard input goes into pods whole and once, whatever happens to the connection or the server meanwhile."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pod_bench import PodBench, eventually, start
from standin_cluster import StandinCluster, refusal

from millpond.engines.kubernetes.pods.pod_marks import INPUT_FOLDER
from millpond.engines.kubernetes.pods.pod_volumes import SHARED_MEMORY
from millpond.engines.kubernetes.streams import pod_input
from millpond.model.events import Noted, Refused
from millpond.node.task.input import ROOM_BYTES, InputRing
from millpond.node.task.records import TaskFiles, TaskId

TASK = TaskId("train-abcde", 1, 0)
POD = "train-abcde-1-0"


class Reader:
    """A job that reads: its pod, and its program as a process of this machine."""

    def __init__(self, bench: PodBench, cluster: StandinCluster, command: str, *, starts: bool = True) -> None:
        self.bench = bench
        folder = bench.folder / "input"
        folder.mkdir()
        cluster.input_folder = str(folder)
        needs = replace(bench.launch.roles["worker"], command=command)
        bench.launch = replace(bench.launch, reads_input=True, roles={"worker": needs})
        bench.started()
        (container,) = bench.bound(POD)["spec"]["containers"]
        assert [each["mountPath"] for each in container["volumeMounts"]] == [SHARED_MEMORY, INPUT_FOLDER]
        self.words = [word.replace(INPUT_FOLDER, str(folder)) for word in container["command"]]
        self.pipe = folder / "in"
        self.files = TaskFiles.of(bench.folder / "state", TASK)
        eventually(self.files.input.exists)
        if starts:
            self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )

    def send(self, data: bytes, *, end: bool = False) -> None:
        with InputRing(self.files.input) as ring:
            while data:
                data = data[eventually(functools.partial(ring.put, data)) :]
            if end:
                ring.end()

    @property
    def is_closed(self) -> bool:
        with InputRing(self.files.input) as ring:
            return ring.closed

    def fed(self) -> int:
        with InputRing(self.files.input) as ring:
            return ring.fed

    def output(self) -> bytes:
        return self.process.communicate(timeout=60)[0]

    def end(self) -> None:
        """As a pod ends: with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def digest(bench: PodBench, cluster: StandinCluster) -> Iterator[Reader]:
    reader = Reader(bench, cluster, "sha256sum")
    yield reader
    reader.end()


def sum_of(data: bytes) -> bytes:
    return f"{hashlib.sha256(data).hexdigest()}  -\n".encode()


def test_input_arrives_whole_with_its_end(digest: Reader) -> None:
    data = os.urandom(ROOM_BYTES + 300_001)
    digest.send(data, end=True)
    assert digest.output() == sum_of(data)
    eventually(lambda: digest.is_closed)


def test_a_cut_connection_loses_and_repeats_nothing(digest: Reader, cluster: StandinCluster) -> None:
    first, second = os.urandom(200_001), os.urandom(200_002)
    digest.send(first)
    eventually(digest.fed)
    cluster.stop()
    digest.send(second, end=True)
    cluster.start()
    assert digest.output() == sum_of(first + second)


def test_the_next_server_goes_on_where_the_one_before_was(digest: Reader) -> None:
    first, second = os.urandom(200_001), os.urandom(200_002)
    digest.send(first)
    eventually(digest.fed)
    digest.bench.close()
    digest.send(second, end=True)
    digest.bench.open(expected=[TASK])
    assert digest.output() == sum_of(first + second)


def test_a_program_that_reads_no_more_takes_no_more(bench: PodBench, cluster: StandinCluster) -> None:
    reader = Reader(bench, cluster, "read line; exec <&-; echo got $line; sleep 1000")
    reader.send(b"one\n")
    assert reader.process.stdout is not None
    assert reader.process.stdout.readline() == b"got one\n"
    reader.send(b"two\n")
    eventually(lambda: reader.is_closed)
    reader.end()


def test_a_script_that_comes_after_the_program_closed_its_input_does_not_wait_for_its_end(
    bench: PodBench, cluster: StandinCluster
) -> None:
    reader = Reader(bench, cluster, "read line; exec <&-; echo got $line; sleep 1000")
    reader.send(b"one\n")
    assert reader.process.stdout is not None
    assert reader.process.stdout.readline() == b"got one\n"
    eventually(reader.fed)
    cluster.stop()
    cluster.start()
    reader.send(b"two\n")
    eventually(lambda: reader.is_closed)
    reader.end()


def test_input_that_comes_before_the_pod_has_made_its_pipe_arrives(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_input, "_FIRST_WAIT_S", 0.02)
    reader = Reader(bench, cluster, "sha256sum", starts=False)
    reader.send(b"early", end=True)
    eventually(lambda: cluster.requests.count(f"GET /api/v1/namespaces/team/pods/{POD}/exec") > 1)
    reader.start()
    assert reader.output() == sum_of(b"early")
    reader.end()


def test_a_script_that_leaves_at_once_does_not_end_the_input(bench: PodBench, cluster: StandinCluster) -> None:
    reader = Reader(bench, cluster, "read line; echo got $line", starts=False)
    never = reader.pipe.with_name("never")
    os.mkfifo(never)
    before, aside, after = reader.words[2].partition("(")
    reader.words[2] = f"{before}{aside}: <{never}; {after}"  # what holds the pipe open beside the program is late
    reader.start()
    eventually(reader.pipe.is_fifo)
    reader.pipe.open("wb").close()
    assert reader.process.stdout is not None
    assert not select.select([reader.process.stdout], [], [], 0.1)[0]
    reader.pipe.write_bytes(b"one\n")
    assert reader.process.stdout.readline() == b"got one\n"
    reader.end()


def test_a_server_that_may_not_enter_pods_says_so_and_passes_the_input_on_when_it_may(
    digest: Reader, cluster: StandinCluster
) -> None:
    words = "cannot create resource pods/exec"
    cluster.refuses = lambda request, _: refusal(403, "Forbidden", words) if request.endswith("/exec") else None
    digest.send(b"one", end=True)
    told = digest.bench.next(Noted).text
    assert told == f"its standard input cannot be passed on, and is tried again: pod {POD} cannot be entered: {words}"
    cluster.refuses = lambda _request, _body: None
    assert digest.output() == sum_of(b"one")


def test_a_second_run_is_refused_when_the_first_was_sent_input(digest: Reader) -> None:
    digest.send(b"one", end=True)
    digest.output()
    bench = digest.bench
    bench.engine.apply([start(2, attempt=2)])
    assert "comes once only" in bench.next(Refused).reason


def test_a_task_without_input_has_neither_pipe_nor_folder(bench: PodBench) -> None:
    bench.started()
    spec = bench.bound(POD)["spec"]
    assert spec["containers"][0]["command"] == ["python", "train.py"]
    assert spec["volumes"] == [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    assert not TaskFiles.of(Path(bench.folder) / "state", TASK).input.exists()
