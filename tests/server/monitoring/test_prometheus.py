"""What a Prometheus reads: figures that agree with what happened, in its own format, with bounded labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from api_world import Api
from prometheus_client.parser import text_string_to_metric_families

from job_infos import job_info
from millpond.engines.kubernetes.agent.allocations import Allocation, BoundPod
from millpond.engines.kubernetes.agent.card_meter import CardMeter
from millpond.engines.kubernetes.cluster.agent_report import AgentReport
from millpond.engines.kubernetes.pods.slice_order import SliceOrder
from millpond.model.decisions import Grant
from millpond.model.errors import UnavailableError
from millpond.model.events import DeviceHealthChanged, NodeJoined, QueueChanged
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.resources import Amount
from millpond.model.states import Outcome
from millpond.model.tenancy.tenants import Queue
from millpond.node.devices import device_metrics
from millpond.node.devices.device_metrics import slice_metrics
from millpond.node.task.records import TaskId
from millpond.scheduling.nodes.views import NodeView
from millpond.server.monitoring.idle_cards import IDLE_AFTER_S
from millpond.server.monitoring.instruments import MOST_QUEUES, Instruments
from millpond.server.runtime.core import Core
from millpond.server.views.hardware import machines
from millpond.server.views.hardware.machines import node_info
from millpond.server.views.prometheus import metrics_page, pool_metrics
from millpond.server.views.prometheus.pool_metrics import (
    MOST_DEVICES,
    KnownNodes,
    Samples,
    conspicuous_devices,
    node_metrics,
)
from millpond.server.views.visibility import Reader
from millpond.specs.api.pool.nodes import DeviceInfo, DeviceStatus, NodeInfo, SliceInfo, SliceStatus, SpareInfo
from millpond.specs.api.services import ScalingInfo


class Page:
    """A page as a Prometheus understands it."""

    def __init__(self, api: Api) -> None:
        answer = api.client.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")
        self.families = {family.name: family for family in text_string_to_metric_families(answer.text)}

    def values(self, name: str, **labels: str) -> list[float]:
        """Those of all samples of a name that have these labels among theirs."""
        samples = (sample for family in self.families.values() for sample in family.samples)
        return [sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()]


ENDED = job_info(state="succeeded", eligible_at=0.0, first_started_at=1.0)


def prepare(api: Api) -> None:
    """What a server does once it is up."""

    async def prepared() -> None:
        await api.service.metrics.prepare()

    assert api.client.portal is not None
    api.client.portal.call(prepared)


def test_jobs_are_counted_where_they_stand_and_where_they_went(api: Api) -> None:
    running, ended = api.submit(gpus=1), api.submit(gpus=1)
    waiting = api.submit(gpus=4)
    for job in (running, ended, waiting):
        api.job(job.id)
    api.engine.finish(TaskId(ended.id, 1, 0))
    api.job(ended.id)
    api.clock.now += 90
    page = Page(api)
    assert page.values("millpond_jobs", queue="default", kind="train", state="running") == [1]
    assert page.values("millpond_jobs", state="queued") == [1]
    assert page.values("millpond_jobs_ended_total", queue="default", state="succeeded") == [1]
    assert page.values("millpond_job_wait_seconds_count", queue="default") == [2]
    assert page.values("millpond_oldest_waiting_job_seconds", queue="default")[0] > 0
    assert page.values("millpond_scheduler_cycle_seconds_count")[0] >= 3


def test_queues_are_told_with_what_they_hold_borrow_and_lend(api: Api) -> None:
    queues = (Queue("vision", guarantee=Amount(1000)), Queue("speech", guarantee=Amount(3000)))
    api.loop.notify([QueueChanged(0.0, queue) for queue in queues])
    api.settled()
    api.job(api.submit(gpus=2, queue="vision").id)
    api.submit(gpus=4, queue="vision")
    page = Page(api)
    figures = {
        name: page.values(f"millpond_queue_{name}_gpus", queue=queue)
        for queue, names in (("vision", ("used", "borrowed", "asked")), ("speech", ("guaranteed", "lent", "limit")))
        for name in names
    }
    assert figures == {"used": [2], "borrowed": [1], "asked": [4], "guaranteed": [3], "lent": [1], "limit": []}
    assert page.values("millpond_queues") == [4]


def test_the_wait_of_a_job_that_a_guarantee_has_room_for_is_told_of_the_queue_that_has_it(api: Api) -> None:
    queues = (
        Queue("department", guarantee=Amount(3000)),
        Queue("vision", "department", guarantee=Amount(2000)),
        Queue("speech", "department"),
        Queue("guests"),
    )
    api.loop.notify([QueueChanged(0.0, queue) for queue in queues])
    api.settled()

    def told() -> dict[str, float]:
        families = Page(api).families["millpond_queue_below_guarantee_seconds"]
        return {sample.labels["queue"]: sample.value for sample in families.samples}

    assert api.client.post("/api/v1/nodes/n1/close", json={}).status_code == 200
    api.submit(gpus=1, queue="guests")
    api.submit(gpus=2, queue="speech")
    assert told() == {}, "two of the department's three cards are promised to vision"
    one = api.submit(gpus=1, queue="speech").id
    assert told().keys() == {"department"}
    api.clock.now += 90
    two = api.submit(gpus=2, queue="vision").id
    assert {api.job(job).state for job in (one, two)} == {"queued"}
    waits = told()
    assert waits.keys() == {"department", "vision"}
    assert waits["department"] - waits["vision"] == pytest.approx(90, abs=1)


def test_only_so_many_queues_have_figures_of_their_own_and_these_are_nearest_to_the_root(api: Api) -> None:
    users = [Queue(f"user{number}", "vision") for number in range(MOST_QUEUES)]
    api.loop.notify([QueueChanged(0.0, queue) for queue in (Queue("vision"), *users, Queue("late"))])
    api.settled()
    assert api.job(api.submit(gpus=4, queue="late").id).state == "running"
    together = [{"command": "work", "gpus": 1, "queue": queue.name} for queue in users]
    assert api.client.post("/api/v1/jobs/batch", json={"jobs": together}).status_code == 201
    api.settled()
    page = Page(api)
    assert len(page.values("millpond_queue_used_gpus")) == MOST_QUEUES
    assert page.values("millpond_queue_used_gpus", queue="late") == [4]
    assert page.values("millpond_queues") == [MOST_QUEUES + 4]
    assert sum(page.values("millpond_jobs")) == MOST_QUEUES + 1
    assert page.values("millpond_jobs", queue="late") == [1]
    assert page.values("millpond_jobs", queue="") == [4], "those of all others"
    assert len(page.values("millpond_oldest_waiting_job_seconds")) == MOST_QUEUES


def test_what_happens_in_more_queues_than_have_figures_of_their_own_is_counted_together() -> None:
    instruments = Instruments()
    for number in range(MOST_QUEUES + 3):
        instruments.ended([replace(ENDED, queue=f"user{number}")])
        instruments.started(replace(ENDED, queue=f"user{number}"))
    ended = {
        sample.labels["queue"]: sample.value
        for family in instruments.registry.collect()
        for sample in family.samples
        if sample.name in ("millpond_jobs_ended_total", "millpond_job_wait_seconds_count")
    }
    assert len(ended) == MOST_QUEUES + 1
    assert (ended["user0"], ended[""]) == (1, 3)


def test_what_moving_off_a_card_and_back_took_is_counted_when_a_job_leaves_again(api: Api) -> None:
    job = api.job(api.submit(gpus=1).id).id

    def took(core: Core) -> None:
        record = core.scheduler.jobs[job]
        record.leave_s, record.return_s = 3.0, 2.0

    api.loop.query(took).result(60)
    assert api.client.post(f"/api/v1/jobs/{job}/suspend").status_code == 202
    assert api.job(job).state == "suspended"
    page = Page(api)
    assert page.values("millpond_jobs_suspended_total", queue="default") == [1]
    assert page.values("millpond_jobs_switching_seconds_total", queue="default") == [5.0]


def test_machines_and_devices_are_told_with_what_is_held_of_them(api: Api) -> None:
    before = Page(api)
    devices = before.values("millpond_device_granted_ratio")
    assert devices
    assert set(devices) == {0.0}
    assert set(before.values("millpond_device_healthy")) == {1.0}
    assert before.values("millpond_node_schedulable", node="n1") == [1.0]
    api.job(api.submit(gpus=0.25).id)
    assert sum(Page(api).values("millpond_device_granted_ratio")) == 0.25


def test_what_tasks_that_share_a_card_hold_and_use_of_it_is_told_by_number_and_never_by_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quarter = part_of_a_card(compute_milli=250, memory_mib=4, use_milli=100, memory_used_mib=3)
    unmeasured = part_of_a_card(compute_milli=500, memory_mib=8)
    devices = [card(0, [quarter, unmeasured]), card(1, [part_of_a_card(compute_milli=1_000, memory_mib=16)])]
    text = "".join(slice_metrics(devices))
    told = {
        family.name.removeprefix("millpond_slice_"): {each.labels["slice"]: each.value for each in family.samples}
        for family in text_string_to_metric_families(text)
    }
    assert told == {
        "granted_ratio": {"0": 0.25, "1": 0.5},
        "memory_bytes": {"0": 4 * 2**20, "1": 8 * 2**20},
        "use_ratio": {"0": 0.1},
        "memory_used_bytes": {"0": 3 * 2**20},
    }
    assert "chat-1" not in text
    monkeypatch.setattr(device_metrics, "MOST_SLICES", 1)
    assert "".join(slice_metrics(devices)).count("granted_ratio{") == 1


def test_a_page_has_the_parts_of_cards(api: Api) -> None:
    api.job(api.submit(gpus=0.25).id)
    assert Page(api).values("millpond_slice_granted_ratio", slice="0") == [0.25]


def part_of_a_card(**amounts: int) -> SliceStatus:
    fields: dict[str, Any] = {"task": 0, "state": "running", "limit_milli": 1_000, "attempt": 1, "role": "worker"}
    return SliceStatus(job="chat-1", user="ada", share_class="normal", **fields, **amounts)


def card(index: int, slices: list[SliceStatus]) -> DeviceStatus:
    fields: dict[str, Any] = {"pool": "p", "vendor": "nvidia", "model": "H200", "memory_mib": 16, "health": "ok"}
    return DeviceStatus(node="n1", uuid=f"u{index}", index=index, slices=slices, **fields)


def test_of_a_large_pool_machines_are_told_and_of_cards_those_alone_that_cannot_be_handed_out(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page, "MOST_DEVICES", 3)
    api.job(api.submit(gpus=2).id)
    page = Page(api)
    figures = {
        name: page.values(f"millpond_node_{name}", node="n1") for name in ("gpus", "granted_gpus", "whole_free_gpus")
    }
    assert figures == {"gpus": [4], "granted_gpus": [2], "whole_free_gpus": [2]}
    assert page.values("millpond_device_healthy") == []
    assert page.values("millpond_device_granted_ratio") == []
    api.loop.notify([DeviceHealthChanged(0.0, "n1", "n1-3", DeviceHealth.FAULTY, "it fell off the bus")])
    api.client.post("/api/v1/nodes/n1/close", json={"reason": "x"})
    page = Page(api)
    assert page.values("millpond_device_healthy", device="3") == [0]
    assert page.values("millpond_node_faulty_gpus") == [1]
    assert page.values("millpond_node_whole_free_gpus") == [0], "it is closed"


@pytest.mark.parametrize("most", [3, MOST_DEVICES])
def test_cards_that_closed_for_their_faults_are_told_though_they_work_again_and_those_that_people_closed_are_not(
    api: Api, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(metrics_page, "MOST_DEVICES", most)
    assert api.client.post("/api/v1/nodes/n1/close", json={"card": 1}).status_code == 200
    for health in (DeviceHealth.FAULTY, DeviceHealth.OK) * 2:
        api.loop.notify([DeviceHealthChanged(0.0, "n1", "n1-3", health, "it fell off the bus")])
        api.settled()
    page = Page(api)
    (family,) = (each for each in page.families.values() if each.name == "millpond_device_closed_for_faults")
    assert [(each.labels["device"], each.value) for each in family.samples] == [("3", 1)]
    assert 0 not in page.values("millpond_device_healthy")


def test_once_the_machines_are_described_a_scrape_describes_only_those_that_changed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(api)
    described: list[str] = []

    def noted(view: NodeView, slices: Sequence[list[SliceInfo]], marks: tuple[str, str]) -> NodeInfo:
        described.append(view.node.name)
        return node_info(view, slices, marks)

    monkeypatch.setattr(machines, "node_info", noted)
    with monkeypatch.context() as patched:
        patched.setattr(pool_metrics, "line_of", None)
        assert Page(api).values("millpond_node_free_cpus", node="n1")
    assert not described
    api.job(api.submit(gpus=1).id)
    assert Page(api).values("millpond_node_granted_gpus", node="n1") == [1]
    assert described == ["n1"]


def test_a_server_whose_scheduler_does_not_answer_serves_with_undescribed_machines(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(reader: Reader) -> list[NodeInfo]:
        raise UnavailableError("the scheduler is not running", "start it")

    monkeypatch.setattr(api.service.machines, "all", refused)
    prepare(api)
    assert "the scheduler is not running" in caplog.text


def test_of_a_large_pool_the_hot_cards_are_told_the_hottest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_metrics, "MOST_DEVICES", 2)
    degrees = {"u0": 79.0, "u1": 80.0, "u2": 95.0, "u3": 91.0, "u4": None}
    samples = {uuid: DeviceSample(uuid, temperature_c=degree) for uuid, degree in degrees.items()}
    text = "".join(conspicuous_devices(KnownNodes().lines_of([machine("n1", *degrees, "unsampled")], samples)))
    _, hot = text_string_to_metric_families(text)
    assert hot.name == "millpond_device_temperature_celsius"
    assert [(each.labels["device"], each.value) for each in hot.samples] == [("2", 95.0), ("3", 91.0)]


def test_cards_that_are_held_idle_for_long_are_told_whatever_the_size_of_the_pool(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = api.job(api.submit(gpus=2).id)
    (long, short) = (grant.uuid for task in job.tasks for grant in task.devices)
    now = time.time()
    api.service.machines.idle_cards.since = {long: now - IDLE_AFTER_S - 60, short: now - IDLE_AFTER_S + 60}
    for most in (pool_metrics.MOST_DEVICES, 3):
        monkeypatch.setattr(metrics_page, "MOST_DEVICES", most)
        (seconds,) = Page(api).values("millpond_device_held_idle_seconds", node="n1")
        assert seconds >= IDLE_AFTER_S + 60


def test_replicas_and_forecasts_of_services_are_told_by_queue_and_never_by_service(api: Api) -> None:
    chat, embed = (api.submit(kind="service", gpus=0, tasks=2, serve={"scale": {"open_requests": 1}}) for _ in range(2))
    api.job(embed.id)
    rule = ScalingInfo(at=0.0, wanted=3, why="", fewest=1, most=4, ahead_s=60.0)
    api.service.services.scaling = {chat.id: replace(rule, forecast=4), embed.id: rule, "gone": rule}
    page = Page(api)
    assert page.values("millpond_queue_wanted_replicas", queue="default") == [6]
    assert page.values("millpond_queue_running_replicas", queue="default") == [4]
    assert page.values("millpond_services", forecast="yes") == [1]
    assert page.values("millpond_services", forecast="no") == [1]


def test_power_and_forecasts_of_pools_are_told_where_they_are_known(api: Api) -> None:
    told = SpareInfo(pool="gold", spare=6, cover=0.98, coverage=0.95, skill=0.5, tested_days=7)
    api.service.machines.spares = lambda: [told, SpareInfo(pool="plain", spare=2)]
    page = Page(api)
    assert page.values("millpond_nodes", pool="default", power="on") == [1]
    assert page.values("millpond_pool_spare_nodes") == [6, 2]
    assert page.values("millpond_pool_forecast_cover_ratio") == [0.98]
    assert page.values("millpond_pool_forecast_met_ratio", pool="gold") == [0.95]
    assert page.values("millpond_pool_forecast_skill", pool="plain") == []


def test_nodes_of_which_nothing_is_heard_are_counted_by_pool(api: Api) -> None:
    node = Node("n2", 1_000, 1_024, pool="spare", schedulable=False, is_silent=True)
    api.loop.notify([NodeJoined(0.0, node)])
    api.settled()
    page = Page(api)
    assert page.values("millpond_silent_nodes", pool="spare") == [1]
    assert page.values("millpond_silent_nodes", pool="default") == [0]
    assert {each["name"]: each["silent"] for each in api.client.get("/api/v1/nodes").json()["nodes"]} == {
        "n1": False,
        "n2": True,
    }


def test_the_power_of_a_machine_is_that_of_its_cards_that_report_it() -> None:
    watts = {"u0": 300.0, "u1": 250.5, "u2": None}
    samples = {uuid: DeviceSample(uuid, power_w=power) for uuid, power in watts.items()}
    text = told([machine("n1", *watts), machine("n2", "unsampled")], samples)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    found = {sample.labels["node"]: sample.value for sample in families["millpond_node_power_watts"].samples}
    assert found == {"n1": 550.5}


def machine(name: str, *devices: str) -> NodeInfo:
    cards = [
        DeviceInfo(
            uuid=uuid, index=index, vendor="v", model="m", memory_mib=1, free_memory_mib=1, free_compute_milli=1000
        )
        for index, uuid in enumerate(devices)
    ]
    return NodeInfo(name=name, pool="p", cpu_milli=1, free_cpu_milli=1, memory_mib=1, free_memory_mib=1, devices=cards)


def test_a_name_cannot_break_out_of_its_label() -> None:
    node = machine('a"} 1\nb\\')
    text = told([node], {})
    (family, *_) = text_string_to_metric_families(text)
    assert [sample.labels["node"] for sample in family.samples] == [node.name]


def test_figures_of_machines_follow_each_new_look_and_those_that_are_gone_are_told_no_more() -> None:
    kept, one, other = KnownNodes(), machine("n1", "u0"), machine("n2", "u1", "u2")
    assert told([one, other], {}, kept) == told([one, other], {})
    closed = replace(one, schedulable=False)
    use = {"u0": DeviceSample("u0", use_milli=500)}
    text = told([closed], use, kept)
    assert text == told([closed], use)
    assert 'millpond_node_schedulable{node="n1",pool="p"} 0' in text
    assert "n2" not in text
    less = {"u0": DeviceSample("u0", use_milli=250)}
    assert 'millpond_node_use_ratio{node="n1",pool="p"} 0.25' in told([closed], less, kept)


def told(nodes: Sequence[NodeInfo], samples: Samples, known: KnownNodes | None = None) -> str:
    return "".join(node_metrics((known or KnownNodes()).lines_of(nodes, samples)))


def test_requests_are_counted_by_route_and_never_by_what_callers_write(api: Api) -> None:
    for name in ("one", "two"):
        api.client.get(f"/api/v1/jobs/{name}")
        api.client.get(f"/nowhere/{name}")
        api.client.get(f"/proxy/{name}/")
        api.client.request(name.upper(), "/api/v1/jobs")
    page = Page(api)
    assert page.values("millpond_http_requests_total", route="/api/v1/jobs/{job}", status="404") == [2]
    assert page.values("millpond_http_requests_total", route="none", status="404") == [2]
    assert page.values("millpond_http_requests_total", route="/proxy/{job}", status="404") == [2]
    assert sum(page.values("millpond_http_requests_total", method="other")) == 2
    assert page.values("millpond_http_request_seconds_count", route="/api/v1/jobs/{job}") == [2]
    labels = [sample.labels for family in page.families.values() for sample in family.samples]
    assert not any(value in {"one", "two", "ONE", "TWO"} for each in labels for value in each.values())


def test_nothing_is_counted_twice_when_a_job_runs_again(api: Api) -> None:
    job = api.submit(gpus=1, retries=1)
    api.job(job.id)
    api.clock.now += 60.0  # a run that is lost as it begins is not followed by another at once
    api.engine.finish(TaskId(job.id, 1, 0), Outcome.NODE_LOST)
    assert api.job(job.id).attempt == 2
    assert Page(api).values("millpond_job_wait_seconds_count") == [1]


def test_the_agent_of_a_node_has_the_names_and_labels_of_the_server(api: Api) -> None:
    held = BoundPod("u", ("team", "p"), SliceOrder((Grant("n1-0", 250, 250, 1024),)))
    meter = CardMeter(lambda: [Allocation(held, frozenset(), 1)])
    meter.report = AgentReport((Device("n1-0", 0, "nvidia", "H200", 141_312),))
    meter.sampled([DeviceSample("n1-0", use_milli=1)], 0.0)
    of_agent = {family.name: family for family in text_string_to_metric_families(meter.page("n1", 0.0).decode())}
    api.job(api.submit(gpus=0.25).id)
    page = Page(api)
    of_server = {name for name in page.families if name.startswith(("millpond_device_", "millpond_slice_"))}
    known_to_the_server = {"millpond_device_held_idle_seconds", "millpond_device_closed_for_faults"}
    assert of_agent.keys() == of_server - known_to_the_server
    for name, family in of_agent.items():
        told = page.families[name]
        assert (family.documentation, family.type) == (told.documentation, told.type)
        labels = {frozenset(sample.labels) for each in (family, told) for sample in each.samples}
        assert len(labels) <= 1
    assert page.values("millpond_slice_granted_ratio") == [of_agent["millpond_slice_granted_ratio"].samples[0].value]
