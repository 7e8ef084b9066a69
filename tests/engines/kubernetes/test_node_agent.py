"""The agent of a node between a kubelet and a cluster that the tests stand for, with the real gate."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_bench import CARDS, AgentBench, hurry, part, run
from fake_kubelet import until
from grpclib.exceptions import GRPCError

from millpond.engines.kubernetes.agent import node_agent
from millpond.engines.kubernetes.agent.device_plugin import ContainerGifts
from millpond.engines.kubernetes.agent.load_reporter import LoadReporter
from millpond.engines.kubernetes.agent.node_agent import NOT_LISTED
from millpond.engines.kubernetes.agent.pod_slices import PodSlices
from millpond.engines.kubernetes.cluster.agent_report import LOADS_ANNOTATION, AgentReport, loads_of, loads_text
from millpond.engines.kubernetes.cluster.cluster_nodes import MILLI
from millpond.engines.kubernetes.cluster.objects import PodObject, PodStatus
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.sharing import ShareClass
from millpond.node.devices import decayed_averages
from millpond.node.sharing.gate.region import GateRegion


@pytest.fixture
def bench(tmp_path: Path, _fake_driver_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> AgentBench:
    """Skipped where there is no compiler; the gate is built once for all tests."""
    hurry(tmp_path, _fake_driver_libraries.parent, monkeypatch)
    return AgentBench(tmp_path)


def test_cards_are_offered_in_thousandths_and_those_that_fail_are_not_well(bench: AgentBench) -> None:
    async def test() -> None:
        devices = await bench.kubelet.devices()
        assert len(devices) == 2 * (1000 + 64 + 1000)
        assert set(devices.values()) == {"Healthy"}
        bench.cards = (CARDS[0], replace(CARDS[1], health=DeviceHealth.FAULTY, health_detail="fell off the bus"))
        report = await until(lambda: bench.reports[-1] if bench.reports[-1].devices == bench.cards else None)
        assert report.unsliced == ""
        devices = await bench.kubelet.devices()
        assert {name for name, health in devices.items() if health == "Healthy"} == {
            name for name in devices if name.startswith("0-")
        }

    run(bench, test)
    assert bench.kubelet.registered[0].resource_name == MILLI


def test_cards_that_are_listed_no_more_have_failed_even_all_of_them_and_come_back(bench: AgentBench) -> None:
    def gone(card: Device) -> Device:
        return replace(card, health=DeviceHealth.FAULTY, health_detail=NOT_LISTED)

    async def test() -> None:
        bench.cards = CARDS[:1]
        await until(lambda: set(bench.reports[-1].devices) == {CARDS[0], gone(CARDS[1])})
        bench.cards = ()
        await until(lambda: set(bench.reports[-1].devices) == set(map(gone, CARDS)))
        bench.cards = CARDS
        await until(lambda: set(bench.reports[-1].devices) == set(CARDS))

    run(bench, test)


def test_a_driver_that_is_away_is_said_and_makes_no_card_fail(bench: AgentBench) -> None:
    async def test() -> None:
        bench.vendor.away, bench.cards = "library and driver differ", ()
        away = await until(lambda: (last := bench.reports[-1]).driver_away and last)
        assert (away.driver_away, set(away.devices)) == ("library and driver differ", set(CARDS))
        bench.vendor.away, bench.cards = "", CARDS
        await until(lambda: not bench.reports[-1].driver_away)
        assert set(bench.reports[-1].devices) == set(CARDS)

    run(bench, test)


def test_a_pod_gets_the_part_that_its_order_says_and_the_gate_with_it(bench: AgentBench) -> None:
    async def test() -> None:
        bench.bound("one", part(1), share_class=ShareClass.BACKFILL, floor_milli=5, swappable=True)
        env, mounts = await bench.admitted("one", 250)
        assert (env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"]) == ("GPU-1", "GPU-1")
        assert env["MILLPOND_GATE_REQUIRED"] == "1"
        assert mounts[env["LD_PRELOAD"]] is True
        folder = Path(env["MILLPOND_GATE"])
        assert {Path(place).name: read_only for place, read_only in mounts.items() if folder.name in place} == {
            "control": True,
            "usage": False,
            "shared": False,
        }
        region = GateRegion.open(folder, bench.folder / "millpond" / "cards")
        assert region is not None
        settings = region.settings
        region.detach()
        assert (settings.cap_mib, settings.guarantee_milli, settings.limit_milli) == (4096, 250, 250)
        assert (settings.uuid, settings.share_class, settings.floor_milli) == ("GPU-1", ShareClass.BACKFILL, 5)
        assert settings.refuse_managed

    run(bench, test)


def test_whole_cards_are_given_by_their_uuids_without_a_gate(bench: AgentBench) -> None:
    async def test() -> None:
        bench.bound("two", part(1, 1000, 16_384), part(0, 1000, 16_384))
        env, mounts = await bench.admitted("two", 2000)
        assert env["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,GPU-0"
        assert "LD_PRELOAD" not in env
        assert mounts == {}

    run(bench, test)


def test_a_pod_that_the_kubelet_hears_of_first_is_waited_for(
    bench: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        compare, compared = bench.agent._compare, asyncio.Event()

        async def compare_and_say() -> None:
            await compare()
            compared.set()

        monkeypatch.setattr(bench.agent, "_compare", compare_and_say)
        asking = asyncio.create_task(bench.admitted("late", 250))
        await compared.wait()  # it was looked for, and not found
        bench.bound("late", part(0))
        env, _ = await asking
        assert env["CUDA_VISIBLE_DEVICES"] == "GPU-0"

    monkeypatch.setattr(node_agent, "WAITS_S", 60.0)
    run(bench, test)


def test_what_nobody_has_ordered_and_what_a_card_has_no_room_for_is_refused_with_the_reason(bench: AgentBench) -> None:
    async def test() -> None:
        with pytest.raises(GRPCError, match="Millpond has bound no pod to this node that asks for 250"):
            await bench.admitted("theirs", 250)
        bench.bound("large", part(0, 900, 12_000))
        await bench.admitted("large", 900)
        bench.bound("more", part(0, 100, 8_000))
        with pytest.raises(GRPCError, match="card GPU-0 has no room for it beside 1 others"):
            await bench.admitted("more", 100)

    run(bench, test)


def test_a_slice_in_which_nothing_could_run_is_refused_and_leaves_nothing(bench: AgentBench) -> None:
    async def test() -> None:
        bench.bound("tiny", part(0, 10, 300))
        with pytest.raises(GRPCError, match="a program's context alone is counted as 512 MiB"):
            await bench.admitted("tiny", 10)
        assert list((bench.folder / "millpond" / "slices").iterdir()) == []

    run(bench, test)


def test_a_pod_that_took_what_was_for_another_is_evicted_and_the_other_gets_its_own(bench: AgentBench) -> None:
    async def test() -> None:
        bench.bound("ours", part(1))
        bench.stranger("theirs")
        wrong, _ = await bench.admitted("theirs", 250)
        await until(lambda: bench.evicted == ["uid-theirs"])
        env, _ = await bench.admitted("ours", 250, first=500)
        assert env["CUDA_VISIBLE_DEVICES"] == "GPU-1"
        assert env["MILLPOND_GATE"] != wrong["MILLPOND_GATE"]
        await until(lambda: bench.agent.allocations.all_confirmed)
        assert bench.evicted == ["uid-theirs"]

    run(bench, test)


def test_the_next_agent_knows_what_was_given_and_a_pod_that_ends_gives_it_back(bench: AgentBench) -> None:
    async def first() -> None:
        bench.bound("one", part(0, 900, 4096))
        await bench.admitted("one", 900)

    async def second() -> None:
        pod = bench.bound("one", part(0, 900, 4096))
        bench.bound("two", part(0, 200, 4096))
        with pytest.raises(GRPCError, match="no room"):
            await bench.admitted("two", 200)
        bench.agent.pod_changed(PodObject(pod.metadata, pod.spec, PodStatus(phase="Succeeded")))
        env, _ = await bench.admitted("two", 200)
        assert env["CUDA_VISIBLE_DEVICES"] == "GPU-0"
        assert len(list((bench.folder / "millpond" / "slices").iterdir())) == 1
        bench.agent.listed(set())
        assert list((bench.folder / "millpond" / "slices").iterdir()) == []

    run(bench, first, second)


def test_an_agent_that_starts_while_the_driver_is_away_lives_until_it_is_back(
    bench: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_agent, "LOOK_EVERY_S", 0.01)

    async def first() -> None:
        bench.bound("one", part(0))
        await bench.admitted("one", 250)
        bench.cards = ()

    async def second() -> None:
        counted, looks = bench.agent.meter.counted, 0

        def count(*seen: Any) -> None:
            nonlocal looks
            looks += 1
            counted(*seen)

        monkeypatch.setattr(bench.agent.meter, "counted", count)
        await until(lambda: looks >= 3)
        bench.cards = CARDS
        await until(lambda: bench.reports[-1].devices == CARDS)
        bench.bound("two", part(0))
        env, _ = await bench.admitted("two", 250, first=500)
        assert env["CUDA_VISIBLE_DEVICES"] == "GPU-0"

    run(bench, first, second)


def test_a_pod_that_ends_while_its_part_is_prepared_leaves_nothing(
    bench: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        loop, prepare = asyncio.get_running_loop(), PodSlices.prepare
        pod = bench.bound("one", part(0))

        async def ends() -> None:
            bench.agent.pod_deleted(pod)

        def prepared(*asked: Any) -> ContainerGifts:
            asyncio.run_coroutine_threadsafe(ends(), loop).result()
            return prepare(*asked)

        monkeypatch.setattr(PodSlices, "prepare", prepared)
        with pytest.raises(GRPCError, match="pod one has ended meanwhile"):
            await bench.admitted("one", 250)
        assert list((bench.folder / "millpond" / "slices").iterdir()) == []

    run(bench, test)


def test_what_the_cluster_refuses_to_have_written_of_cards_is_written_when_it_takes_it(
    bench: AgentBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decayed_averages, "_SETTLED", 1e-9)

    async def test() -> None:
        bench.refuses, bench.cards, bench.vendor.use_milli = True, CARDS[:1], 300
        await until(lambda: bench.agent.meter.report.devices[1].health is DeviceHealth.FAULTY)
        await until(lambda: bench.agent._untold)
        bench.refuses = False
        await until(lambda: bench.reports[-1] == bench.agent.meter.report)
        assert await until(lambda: bench.loads) == [{"GPU-0": 300, "GPU-1": 300}]

    run(bench, test)


def test_a_kubelet_that_starts_anew_gets_the_plugin_again(bench: AgentBench) -> None:
    async def test() -> None:
        bench.kubelet.stop()
        await bench.kubelet.start()
        await until(lambda: len(bench.kubelet.registered) == 2)
        assert len(await bench.kubelet.devices()) == 2 * (1000 + 64 + 1000)

    run(bench, test)


def test_the_mean_use_of_cards_is_told_when_it_has_changed_enough() -> None:
    loads, told = LoadReporter(), []
    for look in range(60):
        use_milli = 300 if look < 30 else 600
        said = loads.look([DeviceSample("GPU-0", use_milli), DeviceSample("GPU-1")], 10.0 * look)
        told += [] if said is None else [said["GPU-0"]] if said else [None]
    assert told[0] == 300
    assert told == sorted(told)
    assert 4 <= len(told) <= 6


def test_an_agent_tells_how_busy_its_cards_are(bench: AgentBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decayed_averages, "_SETTLED", 1e-9)
    bench.vendor.use_milli = 300

    async def test() -> None:
        assert await until(lambda: bench.loads) == [{"GPU-0": 300, "GPU-1": 300}]

    run(bench, test)
    assert loads_of({LOADS_ANNOTATION: loads_text(bench.loads[-1])}) == bench.loads[-1]


@pytest.mark.parametrize("text", ["[]", '{"a": "b"}', "{", '{"a": 1.5}'])
def test_loads_that_cannot_be_read_are_none(text: str) -> None:
    assert loads_of({LOADS_ANNOTATION: text}) == {}
    assert loads_of({LOADS_ANNOTATION: '{"a": -5, "b": 5000}'}) == {"a": 0, "b": 1000}


def test_cards_that_the_vendors_plugin_has_given_out_are_reported(bench: AgentBench) -> None:
    async def test() -> None:
        bench.kubelet.pods["theirs", "notebook"] = {"nvidia.com/gpu": ["GPU-1"]}
        report = await until(lambda: bench.reports[-1] if bench.reports[-1].others else None)
        assert report.others == {"GPU-1": "theirs/notebook"}

    run(bench, test)


def test_a_report_of_eight_cards_is_small_and_is_read_as_it_was_written() -> None:
    cards = tuple(
        Device(f"GPU-6f1c2a3b-0000-4000-8000-{n:012x}", n, "nvidia", "H200", 143_771, n // 2, n // 4, context_mib=512)
        for n in range(8)
    )
    report = AgentReport(cards, "nvswitch-8", "", {cards[0].uuid: "team/notebook"})
    assert len(report.text()) < 2_000
    assert AgentReport.of({"millpond.io/cards": report.text()}) == report
    assert AgentReport.of({"millpond.io/cards": '{"devices": [{}]}'}) is None
