"""What the cards of a job did over its life: kept in bounded room, through restarts and attempts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from job_infos import job_info
from millpond.node.devices.fake import FakeVendor, Tenant
from millpond.node.host.machine import describe_machine
from millpond.node.task.records import attempt_dir
from millpond.server.monitoring.telemetry.job_cards import MOST_LINES, JobCardsRecorder, cards_of
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.telemetry.slices import SliceKey, SliceUse
from millpond.specs.api.jobs.jobs import DeviceGrant, TaskInfo

CARD = "FAKE-fake-1-0"
GRANT = DeviceGrant(uuid=CARD, index=0, model="V100", compute_milli=1000, limit_milli=1000, memory_mib=32_768)
JOB = job_info(gpu_milli=1000, tasks=[TaskInfo(task=0, role="", state="running", node="fake-1", devices=[GRANT])])


class Watched:
    """A job on the first of two pretended cards."""

    def __init__(self, state_dir: Path) -> None:
        self.now = 6_000.0
        self.state_dir = state_dir
        self.jobs = [JOB]
        machine = describe_machine("2:V100-32GB")
        vendor = machine.vendors["fake"]
        assert isinstance(vendor, FakeVendor)
        self.vendor = vendor
        self.busy_milli = 500
        self.vendor.tenants = lambda: [Tenant(CARD, self.busy_milli, 8_000)]
        self.telemetry = Telemetry(machine, lambda: self.now)
        attempt_dir(state_dir, "job", 1).mkdir(parents=True)
        attempt_dir(state_dir, "job", 2).mkdir(parents=True)
        self.recorder = self.begun()

    def begun(self) -> JobCardsRecorder:
        use = {SliceKey("job", 1, 0, CARD): SliceUse(None, 400, 7_000)}
        return JobCardsRecorder(self.state_dir, lambda: self.jobs, self.telemetry, lambda: use, lambda: self.now)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.telemetry.look(self.vendor)
            self.recorder.look()
            self.now += 60


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_the_use_of_each_card_is_named_for_what_it_is(watched: Watched) -> None:
    watched.look(2)
    found = cards_of(watched.state_dir, JOB)
    assert found.at == [6_000.0, 6_060.0]
    [card] = found.series
    assert card.name == "fake-1 #0 V100"
    assert (card.figures["engine"], card.figures["own"]) == ([0.5, 0.5], [0.4, 0.4])
    assert card.figures["memory_mib"] == [7_000, 7_000]
    assert all(card.figures["power_w"])


def test_a_long_life_takes_no_more_room_and_a_restart_goes_on(watched: Watched) -> None:
    watched.look(MOST_LINES)
    watched.busy_milli = 1_000
    watched.recorder = watched.begun()
    watched.look(MOST_LINES)
    found = cards_of(watched.state_dir, JOB)
    assert len(found.at) < MOST_LINES
    assert found.step_s in (120, 240)
    engine = found.series[0].figures["engine"]
    assert (engine[0], engine[-1]) == (0.5, 1.0)
    assert found.end - found.begin >= 2 * MOST_LINES * 60 - 240


def test_attempts_are_one_life_and_a_line_that_was_cut_off_is_left_out(watched: Watched) -> None:
    watched.look()
    with (attempt_dir(watched.state_dir, "job", 1) / "cards.jsonl").open("a") as file:
        file.write('[6060, 1, {"fake-1 #0')
    again = replace(JOB, attempt=2)
    watched.jobs = [again]
    watched.look()
    assert cards_of(watched.state_dir, again).at == [6_000.0, 6_060.0]


@pytest.mark.parametrize(
    "line", [b"\xff\xfe\0", b"7", b"[6060, 1, 5]", b'[6060, 1, {"n": [1]}]', b"[1e999, 1, {}]", b'["a", 1, {}]']
)
def test_a_line_that_is_none_is_left_out(watched: Watched, line: bytes) -> None:
    watched.look()
    file = attempt_dir(watched.state_dir, "job", 1) / "cards.jsonl"
    file.write_bytes(file.read_bytes() + line + b"\n")
    watched.recorder = watched.begun()
    watched.look()
    assert cards_of(watched.state_dir, JOB).at == [6_000.0, 6_060.0]


def test_looks_by_a_clock_that_was_wrong_are_left_out_or_in_their_place(watched: Watched) -> None:
    watched.look(2)
    now = watched.now
    for wrong in (-1e9, now - 90.0):
        watched.now = wrong
        watched.look()
    watched.now = now
    watched.look()
    at = cards_of(watched.state_dir, JOB).at
    assert at == sorted(at)
    assert at[0] >= JOB.submitted_at - 60.0


def test_nothing_is_kept_of_jobs_without_cards_or_that_do_not_run_here(watched: Watched) -> None:
    watched.jobs = [replace(JOB, gpu_milli=0), replace(JOB, state="suspended"), replace(JOB, id="elsewhere")]
    watched.look()
    assert not list(watched.state_dir.rglob("cards.jsonl"))
    assert cards_of(watched.state_dir, JOB).series == []
