"""What a Prometheus reads of the agent of a node, by the pretended driver; and clients that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from agent_bench import AgentBench, Cards, hurry, run
from prometheus_client.parser import text_string_to_metric_families
from standin_cluster import NAMESPACE, StandinCluster

from fake_driver.driver import MIB, FakeDriver
from fake_driver.program import Program
from millpond.engines.kubernetes.agent import metrics_listener, pod_processes, program
from millpond.engines.kubernetes.agent.agent_context import AgentPlaces
from millpond.engines.kubernetes.agent.allocations import Allocation, BoundPod
from millpond.engines.kubernetes.agent.card_meter import CardMeter
from millpond.engines.kubernetes.agent.metrics_listener import (
    ANSWERED_WITHIN_S,
    MOST_AT_ONCE,
    SAME_FOR_S,
    MetricsAddress,
    MetricsListener,
    metrics_served,
)
from millpond.engines.kubernetes.agent.pod_slices import PodSlices
from millpond.engines.kubernetes.cluster.agent_report import AgentReport
from millpond.engines.kubernetes.pods.slice_order import SliceOrder
from millpond.model.decisions import Grant
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.vendor import STALE_AFTER_S
from millpond.node.host.machine import Machine
from millpond.node.sharing.backend import SliceUsage
from millpond.node.sharing.desired_state import DesiredState
from own_address import free_port, own_address

ANY = MetricsAddress("127.0.0.1", 0)
CARD = Device("GPU-0", 0, "nvidia", "H200", 16_384)
Figures = dict[tuple[str, str, str], float]


def figures_of(page: bytes) -> Figures:
    """The values by the name without ``millpond_``, the device, and the slice."""
    families = text_string_to_metric_families(page.decode())
    return {
        (each.name.removeprefix("millpond_"), each.labels["device"], each.labels.get("slice", "")): each.value
        for family in families
        for each in family.samples
    }


def scraped(listener: MetricsListener) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{listener.server_address[1]}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return bytes(answer.read())


# ---- the agent, on the pretended driver -----------------------------------------------------------------------------


class DriverCards(Cards):
    """NVIDIA's cards by the pretended driver's account."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver

    def sample(self) -> tuple[DeviceSample, ...]:
        (card,) = self._driver.cards
        used_mib = self._driver.used_bytes(card) // MIB
        return (DeviceSample(card.uuid, 730, used_mib, power_w=412.5, temperature_c=61),)

    def environment(self, devices: Any) -> dict[str, str]:
        return self._driver.env(*self._driver.cards)


@dataclass
class ScrapedAgent:
    """An agent with one pretended card, and who reads it."""

    bench: AgentBench
    driver: FakeDriver
    pids: dict[str, int]

    def scraping(self) -> contextlib.AbstractContextManager[MetricsListener]:
        return metrics_served(ANY, lambda: self.bench.agent.meter.page("n1", time.monotonic()))

    async def figure(self, listener: MetricsListener, name: str, part: str, is_it: Callable[[float], bool]) -> None:
        """Scrape until a figure of the only card, or of a slice of it, is there and as it should be."""
        while not is_it(figures_of(await asyncio.to_thread(scraped, listener)).get((name, "0", part), -1)):
            await asyncio.sleep(0.02)


@pytest.fixture
def scene(
    tmp_path: Path, fake_driver: FakeDriver, _fake_driver_libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> ScrapedAgent:
    hurry(tmp_path, _fake_driver_libraries.parent, monkeypatch)
    monkeypatch.setattr("millpond.engines.kubernetes.agent.node_agent.LOOK_EVERY_S", 0.05)
    pids: dict[str, int] = {}
    monkeypatch.setattr(pod_processes, "_of_pods", lambda: list(pids.items()))
    card = Device(fake_driver.cards[0].uuid, 0, "nvidia", "H200", 4096)
    return ScrapedAgent(AgentBench(tmp_path, cards=(card,), vendor=DriverCards(fake_driver)), fake_driver, pids)


def test_a_scrape_has_the_cards_of_the_node_and_what_each_slice_uses(scene: ScrapedAgent) -> None:
    bench, uuid = scene.bench, scene.bench.cards[0].uuid

    async def test() -> None:
        bench.bound("one", Grant(uuid, 250, 250, 2048))
        env, _ = await bench.admitted("one", 250)
        bench.bound("two", Grant(uuid, 500, 500, 1024))
        await bench.admitted("two", 500, first=250)
        with scene.scraping() as listener, Program({**scene.driver.env(), **env}) as child:
            scene.pids["uid-one"] = child.pid
            assert (await asyncio.to_thread(child, "start")) == [0]
            assert (await asyncio.to_thread(child, "alloc", 600 * MIB))[0] == 0
            await scene.figure(listener, "slice_memory_used_bytes", "0", lambda used: used >= 600 * MIB)
            await scene.figure(listener, "device_use_ratio", "", lambda use: use == 0.73)
            await scene.figure(listener, "slice_use_ratio", "0", lambda use: 0 <= use <= 1)
            page = await asyncio.to_thread(scraped, listener)
            figures = figures_of(page)
            assert figures["device_granted_ratio", "0", ""] == 0.75
            assert figures["device_memory_used_bytes", "0", ""] >= 600 * MIB
            assert (figures["device_power_watts", "0", ""], figures["device_temperature_celsius", "0", ""]) == (
                412.5,
                61,
            )
            assert figures["device_healthy", "0", ""] == 1
            held = {name: figures["slice_granted_ratio", "0", name] for name in ("0", "1")}
            assert held == {"0": 0.25, "1": 0.5}
            assert figures["slice_memory_bytes", "0", "1"] == 1024 * MIB
            assert figures["slice_memory_used_bytes", "0", "1"] == 0
            assert not any(word in page for word in (b"uid-one", b"team", b"GPU-"))

    run(bench, test)


def test_figures_go_on_while_the_cluster_answers_nothing(scene: ScrapedAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unanswered(report: AgentReport) -> None:
        scene.bench.reports.append(report)
        await asyncio.Event().wait()

    monkeypatch.setattr(scene.bench, "_report", unanswered)

    async def test() -> None:
        with scene.scraping() as listener:
            await scene.figure(listener, "device_use_ratio", "", lambda use: use == 0.73)
            (card,) = scene.bench.cards
            scene.bench.cards = (replace(card, health=DeviceHealth.FAULTY),)
            await scene.figure(listener, "device_healthy", "", lambda healthy: healthy == 0)
        assert len(scene.bench.reports) == 1

    run(scene.bench, test)


def test_the_program_opens_a_port_where_it_is_told_to_and_names_its_node_as_the_cluster_does(
    cluster: StandinCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path)))
    monkeypatch.setattr(program, "describe_machine", lambda **_: Machine((Node("host", 1, 1, (CARD,)),), {}))
    cluster.put("pods", "agent", {"metadata": {}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}})
    apart = AgentPlaces(tmp_path, tmp_path / "plugins", tmp_path / "resources")  # this machine may have a kubelet
    monkeypatch.setattr(program, "AgentPlaces", lambda folder: apart)
    monkeypatch.setattr(PodSlices, "why_nothing_is_held", lambda self: "the gate is not built here")
    address = MetricsAddress(own_address(), free_port(own_address()))
    identity = program.AgentIdentity("n1", NAMESPACE, "agent")

    def page() -> str:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            return str(answer.read().decode())
        return ""

    async def test() -> None:
        work = asyncio.create_task(program._run(identity, program.AgentOptions(tmp_path, metrics=address)))
        try:
            async with asyncio.timeout(120):
                while 'millpond_device_memory_bytes{node="n1",device="0"' not in await asyncio.to_thread(page):
                    assert not work.done(), work.exception()
                    await asyncio.sleep(0.02)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    asyncio.run(test())
    assert page() == ""


# ---- what is told when things are not as they should be --------------------------------------------------------------


def allocation(name: str, milli: int, number: int, state: DesiredState = DesiredState.RUNNING) -> Allocation:
    pod = BoundPod(name, ("team", name), SliceOrder((Grant("GPU-0", milli, milli, 1024),)))
    return Allocation(pod, frozenset(), number, True, state)


@pytest.fixture
def meter() -> CardMeter:
    found = CardMeter(lambda: [allocation("one", 250, 1)])
    found.report = AgentReport((CARD,))
    return found


def test_use_of_a_slice_is_the_device_time_between_two_looks(meter: CardMeter) -> None:
    made = allocation("one", 250, 1)
    for at, busy_ns in ((10.0, 0), (12.0, 500_000_000)):
        meter.counted([(made, SliceUsage(busy_ns=busy_ns, used_bytes=512 * MIB))], at)
    figures = figures_of(meter.page("n1", 12.0))
    assert figures["slice_use_ratio", "0", "0"] == 0.25
    assert figures["slice_memory_used_bytes", "0", "0"] == 512 * MIB


def test_what_was_measured_long_ago_is_told_no_more_and_what_is_held_still_is(meter: CardMeter) -> None:
    meter.sampled([DeviceSample("GPU-0", use_milli=500)], 100.0)
    meter.counted([(allocation("one", 250, 1), SliceUsage(used_bytes=MIB))], 100.0)
    fresh, old = (figures_of(meter.page("n1", 100.0 + age)) for age in (STALE_AFTER_S, STALE_AFTER_S + 1))
    gone = {("device_use_ratio", "0", ""), ("slice_memory_used_bytes", "0", "0")}
    assert fresh.keys() - old.keys() == gone
    assert old["device_healthy", "0", ""] == 1
    assert old["slice_granted_ratio", "0", "0"] == 0.25


def test_a_card_that_is_lost_has_no_figures_but_that_it_is_not_well(meter: CardMeter) -> None:
    lost = replace(CARD, health=DeviceHealth.FAULTY)
    meter.report = AgentReport((lost, Device("GPU-1", 1, "nvidia", "H200", 16_384)))
    meter.sampled([DeviceSample("GPU-0"), DeviceSample("GPU-1", use_milli=10)], 5.0)
    figures = figures_of(meter.page("n1", 5.0))
    assert {key[1] for key in figures if key[0] == "device_use_ratio"} == {"1"}
    assert (figures["device_healthy", "0", ""], figures["device_healthy", "1", ""]) == (0, 1)


@pytest.mark.parametrize(
    "report",
    [AgentReport((CARD,), others={"GPU-0": "theirs/notebook"}), AgentReport((CARD,), driver_away="it hangs")],
)
def test_a_card_that_others_have_or_whose_driver_is_away_has_not_failed(meter: CardMeter, report: AgentReport) -> None:
    meter.report = report
    assert figures_of(meter.page("n1", 0.0))["device_healthy", "0", ""] == 1


def test_a_swapped_pod_holds_its_slice_and_uses_nothing_of_it() -> None:
    made = allocation("one", 250, 1, DesiredState.SWAPPED)
    meter = CardMeter(lambda: [made])
    meter.report = AgentReport((CARD,))
    meter.counted([(made, SliceUsage(used_bytes=700 * MIB))], 1.0)
    figures = figures_of(meter.page("n1", 1.0))
    assert figures["slice_memory_used_bytes", "0", "0"] == 0
    assert figures["slice_memory_bytes", "0", "0"] == 1024 * MIB


def test_promtool_finds_nothing_to_complain_of(meter: CardMeter) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt install prometheus)")
    meter.sampled([DeviceSample("GPU-0", 500, 1, 1, 300.5, None, 60, sm_milli=1, tensor_milli=1)], 0.0)
    meter.counted([(allocation("one", 250, 1), SliceUsage(busy_ns=0, used_bytes=MIB))], 0.0)
    page = meter.page('a"} 1\nb\\', 0.0)
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


# ---- the listener ----------------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(metrics_listener, "_LOOK_EVERY_S", 0.01)
    return Clock()


@pytest.fixture
def listener(clock: Clock) -> Iterator[MetricsListener]:
    with metrics_served(ANY, lambda: b"a 1\n", clock) as listener:
        yield listener


def asked(listener: MetricsListener, method: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", listener.server_address[1], timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def connected(listener: MetricsListener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listener.server_address[1]), timeout=60)


def test_there_is_one_page_to_be_read_and_nothing_else(listener: MetricsListener) -> None:
    assert asked(listener, "GET", "/metrics?x=1") == (200, b"a 1\n")
    assert asked(listener, "GET", "/") == (404, b"There is nothing here but /metrics.\n")
    assert asked(listener, "GET", "/metrics/../etc/passwd")[0] == 404
    assert asked(listener, "POST", "/metrics")[0] == 501


@pytest.mark.parametrize(
    "request_text", [b"GET /" + b"x" * 100_000, b"GET /metrics HTTP/1.1\r\n" + b"X-A: b\r\n" * 200 + b"\r\n"]
)
def test_a_request_without_measure_is_refused_and_the_next_one_answered(
    listener: MetricsListener, request_text: bytes
) -> None:
    with connected(listener) as client, contextlib.suppress(ConnectionError):  # it is cut off while it still sends
        client.sendall(request_text)
        assert client.recv(100).startswith((b"HTTP/1.0 414 ", b"HTTP/1.0 431 "))
    assert scraped(listener) == b"a 1\n"


def test_a_slow_client_is_cut_off_and_no_more_are_waited_for_than_can_be(
    listener: MetricsListener, clock: Clock
) -> None:
    slow = [connected(listener) for _ in range(MOST_AT_ONCE)]
    for each in slow:
        each.sendall(b"GET /metr")
    with connected(listener) as one_more:
        assert one_more.recv(100).startswith(b"HTTP/1.0 503 ")
    clock.now += ANSWERED_WITHIN_S + 1
    for each in slow:
        assert each.recv(1) == b""
        each.close()
    while True:  # the threads of those are over a moment later
        status, _ = asked(listener, "GET", "/metrics")
        if status == 200:
            break
        assert status == 503


def test_a_page_that_cannot_be_made_is_an_error_in_the_log_and_the_next_one_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pages = iter([None, b"a 1\n"])

    def page() -> bytes:
        found = next(pages)
        assert found is not None, "no figures"
        return found

    with metrics_served(ANY, page) as listener:
        assert asked(listener, "GET", "/metrics") == (500, b"The agent's log says what went wrong.\n")
        assert "no figures" in caplog.text
        assert scraped(listener) == b"a 1\n"


def test_a_page_is_made_once_for_all_that_ask_at_a_time(clock: Clock) -> None:
    made = iter(range(9))
    with metrics_served(ANY, lambda: b"a %d\n" % next(made), clock) as listener:
        assert [scraped(listener) for _ in range(3)] == [b"a 0\n"] * 3
        clock.now += SAME_FOR_S
        assert scraped(listener) == b"a 1\n"


def test_a_port_that_another_has_is_refused_with_what_to_do(listener: MetricsListener) -> None:
    address = MetricsAddress("127.0.0.1", listener.server_address[1])
    with pytest.raises(UnavailableError, match="another program has that port") as refused:
        MetricsListener(address, bytes)
    assert f"the agent cannot listen at {address}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("7435", "127.0.0.1:7435"),
        ("0.0.0.0:7435", "0.0.0.0:7435"),
        ("[::]:1", "[::]:1"),
        ("gpu-1.lan:9", "gpu-1.lan:9"),
    ],
)
def test_a_port_alone_is_one_of_the_loopback_interface(text: str, address: str) -> None:
    assert str(MetricsAddress.of(text)) == address


@pytest.mark.parametrize("text", ["", "gpu-1", ":1", "::1", "a b:1", "1.2.3.4:70000", "http://a:1", "7435/metrics"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="no address to listen at"):
        MetricsAddress.of(text)
