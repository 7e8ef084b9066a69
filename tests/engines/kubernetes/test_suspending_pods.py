"""Jobs leave their cards and come back by the agents of their nodes; the tests answer for these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pod_bench import PodBench, eventually
from standin_agent import add_agent
from standin_cluster import StandinCluster

from millpond.engines.kubernetes.pods import pod_suspensions
from millpond.engines.kubernetes.pods.suspension_order import (
    ANSWERS_ANNOTATION,
    SuspensionAnswer,
    SuspensionOrder,
    answers_text,
)
from millpond.model.decisions import Grant, Placement, Resume, Start, Stop, Suspend, SuspendMode
from millpond.model.events import Confirmed, Ended, Noted, Refused
from millpond.model.reasons import Cause
from millpond.node.sharing.desired_state import DesiredState
from millpond.node.task.records import TaskId

JOB = "train-abcde"
PODS = (f"{JOB}-1-0", f"{JOB}-1-1")
SUSPEND = Suspend(2, JOB, 1, Cause.SUSPEND_REQUESTED, SuspendMode.SWAP)
RESUME = Resume(3, JOB, 1, Cause.RESUME_REQUESTED)


@pytest.fixture
def bench(cluster: StandinCluster, tmp_path: Path) -> Iterator[PodBench]:
    add_agent(cluster, swap_mib=65_536)
    with PodBench(cluster, tmp_path) as bench:
        yield bench


def gang(bench: PodBench) -> None:
    """A job of two tasks with half a card each runs on n1."""
    placements = tuple(
        Placement(task, "worker", "n1", (Grant(f"GPU-{task}", 500, 500, 8192),)) for task in range(len(PODS))
    )
    bench.engine.apply([Start(1, JOB, 1, Cause.FITS, placements)])
    bound = 0
    while bound < len(PODS):  # a node takes them one at a time
        pod = eventually(lambda: next((each for each in PODS if is_waiting(bench.cluster, each)), None))
        bench.cluster.run(pod)
        bound += 1
    bench.next(Confirmed)


def is_waiting(cluster: StandinCluster, pod: str) -> bool:
    plain = cluster.get("pods", pod)
    return plain is not None and bool(plain["spec"].get("nodeName")) and not plain["status"].get("containerStatuses")


def order_of(cluster: StandinCluster, pod: str) -> SuspensionOrder | None:
    plain = cluster.get("pods", pod)
    return None if plain is None else SuspensionOrder.of(plain["metadata"].get("annotations", {}))


def answer(cluster: StandinCluster, *refusals: str, is_lost: bool = False) -> None:
    """The agent answers the orders of all pods, with a reason why not or none for each."""
    answers = {}
    for pod, refusal in zip(PODS, refusals, strict=True):
        plain, order = cluster.get("pods", pod), order_of(cluster, pod)
        assert plain is not None
        assert order is not None
        answers[plain["metadata"]["uid"]] = SuspensionAnswer(order, refusal, is_lost)
    agent = cluster.get("pods", "agent-of-n1", "millpond-agents")
    assert agent is not None
    annotations = {**agent["metadata"]["annotations"], ANSWERS_ANNOTATION: answers_text(answers)}
    cluster.put(
        "pods",
        "agent-of-n1",
        {**agent, "metadata": {**agent["metadata"], "annotations": annotations}},
        "millpond-agents",
    )


def are_wanted(cluster: StandinCluster, desired: DesiredState, decision: int) -> bool:
    return all(order_of(cluster, pod) == SuspensionOrder(decision, desired) for pod in PODS)


def test_a_gang_is_suspended_when_the_agent_says_so_of_all_its_pods_and_resumed(
    bench: PodBench, cluster: StandinCluster
) -> None:
    gang(bench)
    assert bench.engine.why_nothing_is_halted() == ""
    bench.engine.apply([SUSPEND, RESUME])
    eventually(lambda: are_wanted(cluster, DesiredState.SWAPPED, 2))
    assert bench.engine.events() == []
    answer(cluster, "", "")
    assert bench.next(Confirmed).decision == 2
    eventually(lambda: are_wanted(cluster, DesiredState.RUNNING, 3))
    answer(cluster, "", "")
    assert bench.next(Confirmed).decision == 3


def test_a_gang_of_which_one_cannot_leave_goes_on_as_a_whole(bench: PodBench, cluster: StandinCluster) -> None:
    gang(bench)
    bench.engine.apply([SUSPEND])
    eventually(lambda: are_wanted(cluster, DesiredState.SWAPPED, 2))
    answer(cluster, "", "it holds managed memory")
    eventually(lambda: are_wanted(cluster, DesiredState.RUNNING, 2))
    answer(cluster, "", "")
    assert bench.next(Refused).reason == "it holds managed memory"


def test_a_gang_that_the_driver_does_not_bring_back_is_told_to_be_no_fault_of_the_job(
    bench: PodBench, cluster: StandinCluster
) -> None:
    gang(bench)
    bench.engine.apply([SUSPEND])
    eventually(lambda: are_wanted(cluster, DesiredState.SWAPPED, 2))
    answer(cluster, "", "")
    bench.engine.apply([RESUME])
    eventually(lambda: are_wanted(cluster, DesiredState.RUNNING, 3))
    answer(cluster, "", "its memory cannot be brought back", is_lost=True)
    bench.next(Confirmed)
    assert bench.next(Refused).device_fault


def test_an_agent_that_never_answers_is_waited_for_and_then_it_is_refused(
    bench: PodBench, cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang(bench)
    monkeypatch.setattr(pod_suspensions, "move_deadline_s", lambda mib: 0.05)
    monkeypatch.setattr(pod_suspensions, "AGENT_PATIENCE_S", 0.05)
    monkeypatch.setattr(pod_suspensions, "LOOK_EVERY_S", 0.01)
    bench.engine.apply([SUSPEND])
    assert "the agent of node n1 has not answered" in bench.next(Refused).reason
    assert are_wanted(cluster, DesiredState.RUNNING, 2)


def test_the_next_server_finds_the_answers_to_what_an_earlier_one_wanted(
    bench: PodBench, cluster: StandinCluster
) -> None:
    gang(bench)
    bench.engine.apply([SUSPEND])
    eventually(lambda: are_wanted(cluster, DesiredState.SWAPPED, 2))
    bench.close()
    answer(cluster, "", "")
    bench.open([TaskId(JOB, 1, 0), TaskId(JOB, 1, 1)], [SUSPEND])
    assert bench.next(Confirmed).decision == 2


def test_the_end_of_a_job_that_is_on_its_way_is_not_kept_waiting(bench: PodBench, cluster: StandinCluster) -> None:
    gang(bench)
    bench.engine.apply([SUSPEND])
    eventually(lambda: are_wanted(cluster, DesiredState.SWAPPED, 2))
    bench.engine.apply([Stop(3, JOB, 1, Cause.STOP_REQUESTED, grace_s=5.0)])
    assert "asked to end while its device memory is in host memory" in bench.next(Noted).text
    for pod in PODS:
        eventually(lambda pod=pod: (cluster.get("pods", pod) or {})["metadata"].get("deletionTimestamp"))
        cluster.finish(pod, 143)
    assert {bench.next(Ended).job, bench.next(Ended).job} == {JOB}


def test_a_pod_comes_back_on_no_other_card(bench: PodBench) -> None:
    gang(bench)
    elsewhere = Placement(0, "worker", "n1", (Grant("GPU-1", 500, 500, 8192),))
    bench.engine.apply([Resume(2, JOB, 1, Cause.RESUME_REQUESTED, elsewhere)])
    assert "keeps the cards that it was given" in bench.next(Refused).reason
