"""One process of a server changes the cluster: the next waits for its lease, and one that lost it does nothing more."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pod_bench import PodBench, eventually, start
from standin_cluster import NAMESPACE, Plain, StandinCluster, refusal

from millpond.engines.kubernetes.cluster.cluster_lease import LeaseTimes
from millpond.engines.kubernetes.engine import KubernetesEngine
from millpond.model.errors import LeadershipLostError, UnavailableError

LEASES = "leases.coordination.k8s.io"
LEASE = "millpond-this-server"
QUICK = LeaseTimes(lasts_s=0.4, holds_s=0.2, renewed_every_s=0.05)
LASTING = LeaseTimes(lasts_s=600.0, holds_s=300.0, renewed_every_s=0.05)


@contextmanager
def another(cluster: StandinCluster, folder: Path, times: LeaseTimes) -> Iterator[PodBench]:
    folder.mkdir()
    bench = PodBench(cluster, folder)
    bench.options = replace(bench.options, lease=times)
    with bench:
        yield bench


@contextmanager
def process(cluster: StandinCluster, folder: Path) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    program = Path(__file__).with_name("engine_process.py")
    command = [sys.executable, str(program), cluster.address, str(folder), str(QUICK.lasts_s), str(QUICK.holds_s)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def say(child: subprocess.Popen[str], job: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{job}\n")
    child.stdin.flush()


def holder(cluster: StandinCluster) -> str:
    plain = cluster.get(LEASES, LEASE)
    return "" if plain is None else str(plain["spec"].get("holderIdentity") or "")


def cut_off(job: str) -> Callable[[str, Plain], object]:
    """A cluster in which the lease cannot be renewed any more by whoever has it now."""

    def refuses(request: str, body: Plain) -> object:
        is_lease = f"/{LEASE}" in request and request.startswith("PUT")
        return refusal(500, "InternalError", job) if is_lease and body["spec"]["holderIdentity"] == job else None

    return refuses


def test_a_lease_that_is_asked_for_when_an_engine_ends_is_given_back(cluster: StandinCluster, tmp_path: Path) -> None:
    asked, is_closed = threading.Event(), threading.Event()

    def slowly(request: str, body: Plain) -> object:
        if "/leases" in request and not request.startswith("GET") and body["spec"]["holderIdentity"]:
            asked.set()
            is_closed.wait(0.2)  # the answer comes while the engine ends
        return None

    cluster.refuses = slowly  # type: ignore[assignment]
    with another(cluster, tmp_path / "short", LASTING):
        assert asked.wait(60)
    is_closed.set()
    assert cluster.get(LEASES, LEASE) is not None
    assert holder(cluster) == ""


def test_a_lease_is_given_back_however_far_its_request_was_sent_when_an_engine_ends(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    async def ends_while_it_asks(engine: KubernetesEngine, steps: int) -> None:
        engine._lease.asking = asyncio.create_task(engine._lease._ask_for_it())
        for _ in range(steps):
            await asyncio.sleep(0)
        await engine._end()

    for steps in range(12):
        with another(cluster, tmp_path / str(steps), LeaseTimes()) as bench:
            eventually(lambda: holder(cluster))
            asyncio.run_coroutine_threadsafe(ends_while_it_asks(bench.engine, steps), bench.engine._loop).result()
            assert holder(cluster) == "", steps


def test_the_next_process_waits_until_the_lease_is_given_back(
    cluster: StandinCluster, bench: PodBench, tmp_path: Path
) -> None:
    bench.started()
    with another(cluster, tmp_path / "next", LASTING) as later:
        later.engine.apply([start(2, "later-abcde")])
        seen = cluster.requests.count(f"GET /apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}")
        path = f"GET /apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
        eventually(lambda: cluster.requests.count(path) > seen + 3)
        assert cluster.get("pods", "later-abcde-1-0") is None
        bench.close()
        later.bound("later-abcde-1-0")


def test_one_that_is_cut_off_stops_before_the_next_begins_and_ends_when_it_sees_that(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    with another(cluster, tmp_path / "first", QUICK) as first:
        first.started()
        cluster.refuses = cut_off(holder(cluster))  # type: ignore[assignment]
        with another(cluster, tmp_path / "next", QUICK) as later:
            later.started(2, job="later-abcde")
            first.engine.apply([start(3, "never-abcde")])
            with pytest.raises(LeadershipLostError, match=r"another server has the lease.*\(process \d+ on ") as told:
                eventually(lambda: first.engine.events() and None)
            assert "start it again" in told.value.remedy
    assert cluster.get("pods", "never-abcde-1-0") is None


@pytest.mark.long
def test_a_process_that_stood_still_binds_nothing_when_it_goes_on(cluster: StandinCluster, tmp_path: Path) -> None:
    with process(cluster, tmp_path / "first") as first:
        say(first, "first-abcde")
        eventually(lambda: (cluster.get("pods", "first-abcde-1-0") or {"spec": {}})["spec"].get("nodeName"))
        first.send_signal(signal.SIGSTOP)
        say(first, "never-abcde")
        with another(cluster, tmp_path / "next", QUICK) as later:
            later.started(2, job="later-abcde")
            first.send_signal(signal.SIGCONT)
            assert first.stdout is not None
            said = eventually(lambda: next((line for line in first.stdout if line.startswith("failed")), ""))
    assert "another server has the lease" in said
    assert cluster.get("pods", "never-abcde-1-0") is None


@pytest.mark.long
def test_a_process_that_was_killed_is_not_waited_for(cluster: StandinCluster, tmp_path: Path) -> None:
    with process(cluster, tmp_path / "first") as first:
        eventually(lambda: holder(cluster))
        first.kill()
        first.wait()
        with another(cluster, tmp_path / "next", LASTING) as later:
            later.started(2, job="later-abcde")


def test_a_server_without_the_right_to_leases_does_not_begin(cluster: StandinCluster, tmp_path: Path) -> None:
    cluster.refuses = lambda request, _: refusal(403, "Forbidden", "no") if "/leases" in request else None
    with pytest.raises(UnavailableError, match=r"leases in namespace team.*roles\.yaml"):
        PodBench(cluster, tmp_path).open()


def test_what_a_deposed_process_had_made_last_is_ended(cluster: StandinCluster, bench: PodBench) -> None:
    bench.started()
    made = cluster.get("pods", "train-abcde-1-0")
    assert made is not None
    mark = made["metadata"]["annotations"]["millpond.io/task"].replace("train-abcde", "late-abcde")
    meta = {"labels": made["metadata"]["labels"], "annotations": {"millpond.io/task": mark}}
    cluster.put("pods", "late-abcde-1-0", {"metadata": meta, "spec": {"containers": []}, "status": {}}, NAMESPACE)
    eventually(lambda: cluster.get("pods", "late-abcde-1-0") is None)
    assert cluster.get("pods", "train-abcde-1-0") is not None
