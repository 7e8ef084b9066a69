"""What tasks make of their parts of devices: by the node's counters, by the driver's processes, or unknown."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

from job_infos import job_info
from millpond.model.hardware.telemetry import DeviceSample, ProcessSample, SliceReading
from millpond.model.sharing import ShareClass, SliceHold
from millpond.node.devices.fake import FakeVendor, Tenant
from millpond.node.host.machine import describe_machine
from millpond.node.task.records import RunRecord, TaskId
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.telemetry.slices import SliceKey, SliceMeter, SliceUse, Sources
from millpond.server.monitoring.telemetry.views import classes_by_device, slices_by_device, tenants_of
from millpond.specs.api.jobs.jobs import DeviceGrant, JobInfo, TaskInfo

CARD = "FAKE-fake-1-0"
KEY = SliceKey("job-a", 1, 0, CARD)
READING = SliceReading("job-a", 1, 0, CARD, SliceHold.GATE, 0, 3_000, 0, 2)


class Metered:
    """A card, the tasks on it, and what is counted of them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.readings: list[SliceReading] = []
        self.records: list[RunRecord] = []
        machine = describe_machine("1:H200-141GB")
        vendor = machine.vendors["fake"]
        assert isinstance(vendor, FakeVendor)
        self.vendor = vendor
        self.telemetry = Telemetry(machine, lambda: self.now)
        sources = Sources(lambda: self.readings, lambda: self.records)
        self.meter = SliceMeter(self.telemetry, sources, lambda: self.now)

    def sampled(self, *processes: ProcessSample) -> None:
        self.vendor.sample = lambda: (DeviceSample(CARD, processes=processes),)  # type: ignore[method-assign]
        self.telemetry.look(self.vendor)

    def look(self, reading: SliceReading | None = None, after_s: float = 1.0) -> SliceUse | None:
        self.now += after_s
        self.readings = [] if reading is None else [reading]
        self.meter.look()
        return self.meter.latest.get(KEY)


def record_of(supervisor: int) -> RunRecord:
    return RunRecord(TaskId("job-a", 1, 0), "worker", "fake-1", 1, (CARD,), "SIGTERM", False, "", supervisor, 0)


def test_use_is_the_device_time_between_two_looks() -> None:
    metered = Metered()
    first = metered.look(READING)
    assert first is not None
    assert (first.use_milli, first.memory_used_mib) == (None, 3_000)
    second = metered.look(replace(READING, busy_ns=500_000_000), after_s=2.0)
    assert second is not None
    assert second.use_milli == 250


def test_a_counter_that_began_anew_says_nothing_about_this_look() -> None:
    metered = Metered()
    metered.look(replace(READING, busy_ns=500))
    again = metered.look(replace(READING, busy_ns=3))
    assert again is not None
    assert again.use_milli is None


def test_where_nothing_counts_the_drivers_processes_are_added_up() -> None:
    metered = Metered()
    metered.records = [record_of(os.getpid())]
    with subprocess.Popen(["sleep", "600"]) as task:
        metered.sampled(ProcessSample(task.pid, 700, 250), ProcessSample(task.pid, 300, None), ProcessSample(1, 9, 9))
        found = metered.look()
        task.kill()
    assert found == SliceUse(None, 250, 1_000)


def test_a_process_that_is_gone_or_nobodys_is_nobodys_use() -> None:
    metered = Metered()
    metered.records = [record_of(2**22 + 1)]
    metered.sampled(ProcessSample(os.getpid(), 700, 250))
    assert metered.look() is None


def job(state: str = "running") -> JobInfo:
    grant = DeviceGrant(uuid=CARD, index=0, model="H200", compute_milli=250, limit_milli=500, memory_mib=8_192)
    tasks = [
        TaskInfo(task=0, role="worker", state=state, node="fake-1", devices=[grant]),
        TaskInfo(task=1, role="worker", state="succeeded", node="fake-1", devices=[grant]),
    ]
    return job_info(id="job-a", name="a", priority="low", state=state, share_class="backfill", tasks=tasks)


def test_what_nobody_counts_is_null_and_what_was_granted_is_told() -> None:
    (part,) = slices_by_device([job()], {})[CARD]
    assert (part.job, part.user, part.compute_milli, part.limit_milli, part.memory_mib) == (
        "job-a",
        "ada",
        250,
        500,
        8192,
    )
    assert part.share_class == "backfill"
    assert (part.use_milli, part.memory_used_mib, part.swapped_mib, part.hold) == (None,) * 4


def test_a_slice_shows_what_was_counted_and_that_its_node_moved_it_aside() -> None:
    uses = {KEY: SliceUse(replace(READING, swapped_mib=3_000, memory_mib=0), 0, 0)}
    (part,) = slices_by_device([job()], uses)[CARD]
    assert (part.state, part.share_class, part.hold, part.swapped_mib) == ("swapped", "backfill", "gate", 3_000)
    assert part.denials == 2


def test_what_is_away_from_a_card_decides_nothing_about_it() -> None:
    assert classes_by_device([job()], {}) == {CARD: {ShareClass.BACKFILL}}
    assert classes_by_device([job("frozen")], {}) == {}


def test_pretended_work_computes_up_to_its_limit_until_it_leaves_the_card() -> None:
    swapped = {KEY: SliceUse(replace(READING, swapped_mib=3_000))}
    assert list(tenants_of([job()], {})) == [Tenant(CARD, 500, 8_192)]
    assert list(tenants_of([job("frozen")], {})) == [Tenant(CARD, 0, 8_192)]
    assert list(tenants_of([job("swapped")], {})) == [Tenant(CARD, 0, 0)]
    assert list(tenants_of([job()], swapped)) == [Tenant(CARD, 0, 0)]
