"""The agent takes pods off their cards and back: the real helper and bindings on a pretended driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_bench import AgentBench, Cards, hurry, run
from fake_kubelet import until

from fake_driver.driver import MIB, FakeDriver, ProcessState
from fake_driver.program import Program
from millpond.engines.kubernetes.agent import pod_processes, suspensions
from millpond.engines.kubernetes.agent.pod_processes import PodProcesses
from millpond.engines.kubernetes.cluster.objects import ObjectMeta, PodObject
from millpond.engines.kubernetes.pods.suspension_order import SuspensionAnswer, SuspensionOrder
from millpond.model.decisions import Grant
from millpond.model.hardware.devices import Device
from millpond.model.hardware.telemetry import DeviceSample, ProcessSample
from millpond.node.host import procfs
from millpond.node.sharing.desired_state import DesiredState

RUNNING, FROZEN, SWAPPED = DesiredState


class DriverCards(Cards):
    """NVIDIA's cards by the pretended driver's account."""

    def __init__(self, driver: FakeDriver, pids: Sequence[int]) -> None:
        self._driver, self._pids = driver, pids

    def sample(self) -> tuple[DeviceSample, ...]:
        (card,) = self._driver.cards
        rows = ((pid, self._driver.bytes_of(pid, card)) for pid in self._pids)
        return (
            DeviceSample(card.uuid, processes=tuple(ProcessSample(pid, used // MIB) for pid, used in rows if used)),
        )

    def environment(self, devices: Any) -> dict[str, str]:
        return self._driver.env(*self._driver.cards)


@pytest.fixture
def program(fake_driver: FakeDriver) -> Iterator[Program]:
    """What runs in the pod called ``one``."""
    with Program(fake_driver.env()) as program:
        assert program("start") == [0]
        assert program("alloc", 512 * MIB)[0] == 0
        yield program


@pytest.fixture
def bench(
    tmp_path: Path,
    fake_driver: FakeDriver,
    program: Program,
    _fake_driver_libraries: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AgentBench:
    hurry(tmp_path, _fake_driver_libraries.parent, monkeypatch)
    for name, value in fake_driver.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pod_processes, "_of_pods", lambda: [("uid-one", program.pid)])
    card = Device(fake_driver.cards[0].uuid, 0, "nvidia", "H200", 4096)
    vendor = DriverCards(fake_driver, [program.pid])
    return AgentBench(tmp_path, cards=(card,), vendor=vendor, swap_mib=4096)


def part(bench: AgentBench, milli: int = 1000) -> Grant:
    return Grant(bench.cards[0].uuid, milli, milli, 4096 * milli // 1000)


async def given(bench: AgentBench) -> PodObject:
    """The pod ``one`` has the whole card."""
    pod = bench.bound("one", part(bench))
    await bench.admitted("one", 1000)
    return pod


async def wanted(bench: AgentBench, pod: PodObject, decision: int, desired: DesiredState) -> SuspensionAnswer:
    """What the agent answers when a pod is wanted elsewhere."""
    order = SuspensionOrder(decision, desired)
    bench.annotate(pod, order.annotation())

    def answer() -> SuspensionAnswer | None:
        found = bench.answers.get("uid-one")
        return found if found is not None and found.order == order else None

    found = await until(answer)
    assert isinstance(found, SuspensionAnswer)
    return found


def test_a_swapped_pod_frees_its_card_for_another_and_comes_back(
    bench: AgentBench, program: Program, fake_driver: FakeDriver
) -> None:
    async def test() -> None:
        pod = await given(bench)
        assert bench.reports[-1].swap_mib == 4096
        assert (await wanted(bench, pod, 7, SWAPPED)).refusal == ""
        assert fake_driver.used_bytes(fake_driver.cards[0]) == 0
        assert procfs.is_halted(program.pid)
        bench.bound("two", part(bench))
        await bench.admitted("two", 1000, first=1000)
        bench.agent.pod_deleted(PodObject(ObjectMeta("two", "team", "uid-two")))
        assert (await wanted(bench, pod, 8, RUNNING)).refusal == ""
        assert (await asyncio.to_thread(program, "alloc", MIB))[0] == 0
        assert fake_driver.state_of(program.pid) is ProcessState.RUNNING

    run(bench, test)


def test_answers_that_the_cluster_refuses_are_given_again(
    bench: AgentBench, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspensions, "AGAIN_S", 0.01)

    async def test() -> None:
        pod = await given(bench)
        bench.refuses = True
        waiting = asyncio.create_task(wanted(bench, pod, 7, FROZEN))
        await until(lambda: procfs.is_halted(program.pid))
        bench.refuses = False
        assert (await waiting).refusal == ""

    run(bench, test)


def test_pods_leave_cards_whose_driver_was_away_when_the_agent_began(
    bench: AgentBench, program: Program, fake_driver: FakeDriver
) -> None:
    cards, bench.cards, bench.swap_mib = bench.cards, (), 0  # where nothing can swap, nothing is set aside for it

    async def test() -> None:
        bench.cards, bench.swap_mib = cards, 4096
        await until(lambda: bench.reports[-1].devices)
        pod = await given(bench)
        assert (await wanted(bench, pod, 7, SWAPPED)).refusal == ""
        assert fake_driver.used_bytes(fake_driver.cards[0]) == 0

    run(bench, test)


def test_a_frozen_pod_keeps_its_memory_of_the_card(bench: AgentBench, program: Program) -> None:
    async def test() -> None:
        pod = await given(bench)
        assert (await wanted(bench, pod, 7, FROZEN)).refusal == ""
        assert procfs.is_halted(program.pid)
        bench.bound("two", part(bench, 500))
        with pytest.raises(Exception, match="no room for it beside 1 others"):
            await bench.admitted("two", 500, first=1000)
        assert (await wanted(bench, pod, 8, RUNNING)).refusal == ""
        assert (await asyncio.to_thread(program, "alloc", MIB))[0] == 0

    run(bench, test)


def test_what_does_not_fit_into_host_memory_is_refused_and_goes_on(bench: AgentBench, program: Program) -> None:
    bench.swap_mib = 1024

    async def test() -> None:
        pod = await given(bench)
        answer = await wanted(bench, pod, 7, SWAPPED)
        assert "4 GiB of device memory do not fit into host memory" in answer.refusal
        assert (await asyncio.to_thread(program, "alloc", MIB))[0] == 0

    run(bench, test)


def test_the_next_agent_finds_a_swapped_pod_and_brings_it_back(bench: AgentBench, program: Program) -> None:
    async def first() -> PodObject:
        pod = await given(bench)
        await wanted(bench, pod, 7, SWAPPED)
        return pod

    async def second(pod: PodObject) -> None:
        bench.answers = {}
        assert (await wanted(bench, pod, 7, SWAPPED)).refusal == ""
        bench.bound("two", part(bench))
        await bench.admitted("two", 1000, first=1000)
        bench.agent.pod_deleted(PodObject(ObjectMeta("two", "team", "uid-two")))
        assert (await wanted(bench, pod, 8, RUNNING)).refusal == ""
        assert (await asyncio.to_thread(program, "alloc", MIB))[0] == 0

    async def both() -> None:
        try:
            async with asyncio.timeout(120):
                async with bench.running():
                    pod = await first()
                async with bench.running():
                    await second(pod)
        finally:
            bench.kubelet.stop()

    asyncio.run(both())


def test_a_frozen_pod_that_is_asked_to_end_goes_on(bench: AgentBench, program: Program) -> None:
    async def test() -> None:
        pod = await given(bench)
        await wanted(bench, pod, 7, FROZEN)
        meta = pod.metadata
        meta = ObjectMeta(meta.name, meta.namespace, meta.uid, annotations=meta.annotations, deletion_timestamp="now")
        bench.agent.pod_changed(PodObject(meta, pod.spec, pod.status))
        await until(lambda: not procfs.is_halted(program.pid))

    run(bench, test)


def test_a_pod_without_a_card_of_the_agent_is_not_suspended(bench: AgentBench) -> None:
    async def test() -> None:
        bench.stranger("one")
        pod = PodObject(ObjectMeta("one", "team", "uid-one"))
        assert "no card of the agent" in (await wanted(bench, pod, 7, FROZEN)).refusal

    run(bench, test)


def test_groups_have_more_memory_while_they_hold_device_memory_and_what_they_had_afterwards(tmp_path: Path) -> None:
    uid = "0a1b2c3d-0000-4000-8000-000000000001"
    pod = (
        tmp_path
        / "kubepods.slice"
        / "kubepods-burstable.slice"
        / f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    )
    bounded, free = pod / "cri-containerd-aa.scope", pod / "cri-containerd-bb.scope"
    for folder, limit in ((pod, "max"), (bounded, str(64 * MIB)), (free, "max")):
        folder.mkdir(parents=True)
        (folder / "memory.max").write_text(limit)
    for mib, limit in ((1024, 1088), (1024, 1088), (0, 64)):
        PodProcesses(uid, tmp_path / "limits", tmp_path).let_have(mib)
        assert (bounded / "memory.max").read_text() == str(limit * MIB)
    assert (pod / "memory.max").read_text() == (free / "memory.max").read_text() == "max"
