"""What the store keeps: every kind of record comes back as it went in."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa
from fresh_databases import fresh_sqlite

from millpond.model import decisions, events
from millpond.model.codec import from_plain, to_plain
from millpond.model.confinement import Confinement, LimitKind
from millpond.model.contents import Content
from millpond.model.decisions import Grant, Placement, SuspendMode
from millpond.model.energy import RateMeasure
from millpond.model.errors import UnavailableError
from millpond.model.hardware.card_layouts import CardLayout, DivisibleCard, LayoutChangeState
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement
from millpond.model.hardware.nodes import Cordon, Node, Pool, SharingPolicy
from millpond.model.hardware.topology import Level
from millpond.model.policy_trials import ClusterPolicies, PolicyTrial
from millpond.model.reasons import Cause
from millpond.model.resources import Amount, SliceRequest, TaskRequest
from millpond.model.states import Outcome
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.workloads import Checkpoint, CheckpointMode, Job, Kind, Priority, Role
from millpond.server.store.connection.database import LONGEST_PATH, connect_to_read, sqlite_url
from millpond.server.store.histories import DecisionEntry, LogEntry
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store, StoredSnapshot
from millpond.server.views.events import account

JOB = Job(
    "j",
    (
        Role(TaskRequest(2000, 4096, 1, SliceRequest(250, 1024, 500), ("A100",), (("rdma", 1),)), 3, 2, 4, "ps"),
        Role.rigid(TaskRequest(devices=2), 2),
    ),
    user="ada",
    kind=Kind.SERVICE,
    priority=Priority.CRITICAL,
    together=Level.RACK,
    together_required=True,
    time_limit_s=1.5,
    checkpoint=Checkpoint(CheckpointMode.SIGNAL, "SIGUSR1", 5.0),
    deadline_s=9.0,
)
DEVICE = Device(
    "u",
    0,
    "fake",
    "V100",
    32_768,
    1,
    1,
    DeviceHealth.FAULTY,
    "broken",
    True,
    True,
    "card",
    3,
    True,
    512,
    (100.0, 300.0),
)
NODE = Node(
    "n",
    1000,
    1024,
    (DEVICE,),
    "p",
    "r",
    "z",
    "nvswitch-8",
    5,
    (("rdma", 2),),
    False,
    "drained",
    (("gpu", "a100"),),
    True,
    (DivisibleCard("u", (CardLayout(("1g.10gb",), (DEVICE,)),), 60.0),),
    True,
)
PLACEMENT = Placement(1, "ps", "n", (Grant("u", 250, 500, 1024),))

EVENTS: tuple[events.Event, ...] = (
    events.Tick(1.0),
    events.PolicyChanged(1.0, "fifo", "best-fit", True, False),
    events.PolicyChanged(
        *(1.0, "sjf", "default", False, True),
        PolicyTrial(1.0, ClusterPolicies("fifo", "default", preempt=False, reserve=True), 1.2, rolled_back=True),
        "policies: sjf instead of fifo",
    ),
    events.UsageHalfLifeChanged(1.0, 86_400.0),
    events.PoolChanged(1.0, Pool("p", SharingPolicy.OVERCOMMITTED, 2000, True)),
    events.QueueChanged(1.0, Queue("q", "root", Amount(1, 2, 3), Amount(4, 5, 6), 0.5, False)),
    events.QueueRemoved(1.0, "q"),
    events.LimitChanged(1.0, Limit("ada", "", 2, 3_000, 4_000)),
    events.NodeJoined(1.0, NODE),
    events.NodeLost(1.0, "n"),
    events.NodeLost(1.0, "n", "ada"),
    events.NodeClosed(1.0, "n", Cordon(2.0, 3.0, "new disks", drain=True, planned=True, by="ada")),
    events.NodeOpened(1.0, "n", planned=True, by="ada"),
    events.NodePowerChanged(1.0, "n", NodePowerState.BOOTING, "the hook failed", 300.0),
    events.CardLayoutChanged(3.0, "n1", "GPU-1", LayoutChangeState.FAILED, ("3g.71gb",), "job", "refused"),
    events.CardClosed(1.0, "n", "u", Cordon(1.0, reason="a fan", drain=True, by="ada")),
    events.CardOpened(1.0, "n", "u", "ada"),
    events.ReservationMade(1.0, AdvanceReservation("demo", "q", 2, 3.0, 4.0, "p", ("V100",), True, True, "ada")),
    events.ReservationCancelled(1.0, "demo", "ada"),
    events.DeviceHealthChanged(1.0, "n", "u", DeviceHealth.BUSY_ELSEWHERE, "somebody"),
    events.DeviceReported(1.0, "n", "u", "XID 63"),
    events.LoadSampled(1.0, "n", 500),
    events.NodeContents(1.0, "n", (Content("data:faces@3", 7_000), Content("image:python")), 125_000_000),
    events.JobSubmitted(1.0, JOB),
    events.NodeChoiceChanged(
        1.0,
        "j",
        ((NodeRequirement("zone", NodeOperator.IN, ("a", "b")),),),
        (SpacingRule(SpacingKind.EVEN, "zone", ("worker",), ("ps",), 2, (("a", 1),), 3, 4),),
    ),
    events.SchedulingPaused(1.0, Cause.NOT_ISOLATED, "install bubblewrap"),
    events.SchedulingResumed(1.0, Cause.NOT_ISOLATED),
    events.ClockJumped(1.0, 3_600.0),
    events.DurationPredicted(1.0, "j", 10.0, 20.0),
    events.EnergyRatePredicted(1.0, RateMeasure.CARBON, 0.0, (380.0, None, -1.5), "no value"),
    events.ProgressMeasured(1.0, "j", 1, 2.5, 2_000, power_w=300.0, cap_w=175.0, memory_mib=9_000),
    events.StopRequested(1.0, "j", "ada"),
    events.SuspendRequested(1.0, "j", True),
    events.ResumeRequested(1.0, "j"),
    events.RequeueRequested(1.0, "j", "ada"),
    events.MigrateRequested(1.0, "j", ("n/1",), True, "it runs in a container", "ada"),
    events.DesiredCountChanged(1.0, "j", "ps", 4),
    events.TimeLimitChanged(1.0, "j", 3_600.0),
    events.PriorityChanged(1.0, "j", Priority.HIGH, "ada"),
    events.Noted(1.0, "j", "nobody has used it"),
    events.WaitExplained(1.0, "j", Cause.NO_ROOM, "no node has room", 2.0, 3.0),
    events.Confirmed(1.0, 7, Confinement(False, LimitKind.CONTROL_GROUP)),
    events.Refused(1.0, 7, "no such folder", True),
    events.Kept(1.0, "j", 1, 0, Outcome.USER_ERROR, 1_801.0, 3, "exit code 3"),
    events.Ended(1.0, "j", 1, Outcome.OUT_OF_MEMORY, 2, 137, "killed", 3.5),
)
DECISIONS: tuple[decisions.Decision, ...] = (
    decisions.Start(1, "j", 1, Cause.FITS, (PLACEMENT,), True),
    decisions.Stop(2, "j", 1, Cause.PREEMPTED, (0, 1), 5.0, "k"),
    decisions.Suspend(3, "j", 1, Cause.TURN_TAKEN, SuspendMode.SWAP, "k"),
    decisions.Resume(4, "j", 1, Cause.RESUME_REQUESTED, PLACEMENT),
    decisions.Migrate(5, "j", 1, Cause.MIGRATED, PLACEMENT, True),
    decisions.CapPower(6, "j", 1, Cause.CAP_CHOSEN, 175.0, 0.03, 0.12),
    decisions.Prefetch(7, "j", 1, Cause.PREFETCHED, "n/1", (Content("image:debian:12", 4_000),)),
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(fresh_sqlite(tmp_path))


def test_every_kind_of_event_and_decision_is_tried_here() -> None:
    for module, examples in ((events, EVENTS), (decisions, DECISIONS)):
        base = vars(module).get("Event") or vars(module)["Decision"]
        kinds = {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base)}
        assert {type(example) for example in examples} == kinds - {base}


@pytest.mark.parametrize("event", EVENTS)
def test_every_kind_of_event_is_told_in_words_of_people(event: events.Event) -> None:
    (line,) = account([LogEntry(1, event)], [], {})
    assert line.text
    assert type(event).__name__ not in line.text


def test_events_come_back_as_they_went_in(store: Store) -> None:
    store.append([LogEntry(seq, event, "j") for seq, event in enumerate(EVENTS, start=1)])
    assert [entry.event for entry in store.events_after(0)] == list(EVENTS)
    assert [entry.seq for entry in store.events_after(len(EVENTS) - 2)] == [len(EVENTS) - 1, len(EVENTS)]


def test_decisions_come_back_as_they_went_in(store: Store) -> None:
    store.record([DecisionEntry(5, 1.0, decision) for decision in DECISIONS])
    assert store.decisions_after(4) == {5: list(DECISIONS)}
    assert store.decisions_after(5) == {}


def test_defaults_are_not_written_and_read_all_the_same() -> None:
    plain = to_plain(Job("j", (Role.rigid(TaskRequest(), 1),)))
    assert "queue" not in plain
    assert from_plain(plain) == Job("j", (Role.rigid(TaskRequest(), 1),))


def test_a_batch_is_stored_whole_or_not_at_all(store: Store) -> None:
    store.append([LogEntry(1, events.Tick(1.0))])
    with pytest.raises(sa.exc.IntegrityError):
        store.append([LogEntry(2, EVENTS[7], "j"), LogEntry(1, events.Tick(1.0))], [NewJob("j", "ada", 1.0, {})])
    assert [entry.seq for entry in store.events_after(0)] == [1]
    assert not store.jobs.is_job("j")


def test_the_latest_snapshot_is_found_and_old_ones_go(store: Store) -> None:
    for seq in (1, 2, 3):
        store.save_snapshot(StoredSnapshot(seq, float(seq), "v", {"seq": seq}))
    assert store.snapshots()[-1] == StoredSnapshot(3, 3.0, "v", {"seq": 3})


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = Store(sqlite_url(tmp_path / "millpond.db"))
    store.append([LogEntry(1, events.Tick(1.0))])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(modes, 0o600)


def test_a_database_that_is_up_to_date_is_opened_without_looking_at_migrations(tmp_path: Path) -> None:
    url = fresh_sqlite(tmp_path)
    script = f"import sys; from {Store.__module__} import Store; Store(sys.argv[1]).close(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, check=True).stdout
    assert "sqlalchemy" in loaded.split()
    assert "alembic" not in loaded.split()


def test_a_store_that_is_opened_to_be_read_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "what? #1" / "a%20b.db"
    path.parent.mkdir()
    Store(sqlite_url(path)).close()
    before = path.read_bytes()
    store = Store(sqlite_url(path), opens=connect_to_read)
    assert list(store.events_after(0)) == []
    with pytest.raises(sa.exc.OperationalError, match="readonly"):
        store.append([LogEntry(1, events.Tick(1.0))])
    store.close()
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "millpond.db"
    path.write_bytes(b"not a database at all, and long enough to be looked at" * 20)
    with pytest.raises(UnavailableError, match="cannot be opened"):
        Store(sqlite_url(path))


@pytest.mark.parametrize("name", ["SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"])
def test_a_full_disk_is_not_taken_for_a_damaged_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = name
    monkeypatch.setattr(sqlite3.dbapi2, "connect", Mock(side_effect=error))
    with pytest.raises(UnavailableError, match="the disk is full: make room there") as full:
        Store(sqlite_url(tmp_path / "millpond.db"))
    assert "restore" not in str(full.value)


def test_a_database_lies_in_its_folder_whatever_signs_of_urls_that_has(tmp_path: Path) -> None:
    folder = tmp_path / "jobs #2? 100%41"
    folder.mkdir()
    Store(sqlite_url(folder / "millpond.db")).close()
    with contextlib.closing(sqlite3.connect(folder / "millpond.db")) as database:
        assert database.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_path_that_is_too_long_for_sqlite_is_refused_as_that(tmp_path: Path) -> None:
    rest = LONGEST_PATH - len(f"{tmp_path}/{'a' * 200}//millpond.db")
    longest, too_long = (tmp_path / ("a" * 200) / ("b" * length) / "millpond.db" for length in (rest, rest + 1))
    for path in (longest, too_long):
        path.parent.mkdir(parents=True)
    Store(sqlite_url(longest)).close()
    with pytest.raises(UnavailableError, match=r"too long for SQLite.*choose another state directory"):
        sqlite_url(too_long)


def test_a_folder_that_cannot_be_written_to_is_refused_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = fresh_sqlite(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)  # root may write everywhere
    with pytest.raises(UnavailableError, match=r"cannot write to .*; choose another state directory"):
        sqlite_url(Path(url.removeprefix("sqlite:///")))


def test_a_database_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    url = fresh_sqlite(tmp_path)
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnavailableError, match="a newer Millpond"):
        Store(url)


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "postgresql+nodriver://x/y"])
def test_a_database_url_that_cannot_work_is_one_clear_error(url: str) -> None:
    with pytest.raises(UnavailableError):
        Store(url)


def test_examples_differ_from_the_defaults_in_every_field() -> None:
    for value in (JOB.roles[0].request, JOB.roles[0].request.slice, DEVICE, NODE):
        for field in dataclasses.fields(value):
            assert field.default is dataclasses.MISSING or getattr(value, field.name) != field.default, field.name
