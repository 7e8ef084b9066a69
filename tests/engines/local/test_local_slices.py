"""Slices of a card under the engine: the real gate, the real helper and the real bindings on a pretended driver."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from local_bench import Bench, eventually

from fake_driver.driver import MIB, Action, Card, FakeDriver
from millpond.model.decisions import Grant, Placement, Resume, Start, Stop, Suspend, SuspendMode
from millpond.model.events import Confirmed, Ended, Event, Noted, Refused, SuspendRequested
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceSample, ProcessSample
from millpond.model.reasons import Cause
from millpond.model.sharing import EscapePolicy, ShareClass, SliceHold, SliceRules
from millpond.model.states import Outcome
from millpond.node.devices.fake import FakeVendor
from millpond.node.host import procfs
from millpond.node.host.controllers import Controllers
from millpond.node.host.machine import Machine
from millpond.node.sandbox.detection import SandboxMode, find_sandbox
from millpond.node.sharing.backend import EnforcementRequest, TaskEnv
from millpond.node.sharing.dmem import DmemEnforcer
from millpond.node.sharing.gate import layout
from millpond.node.sharing.gate.region import GateRegion
from millpond.node.sharing.gate_enforcer import GateEnforcer
from millpond.node.task.limits import Limiter
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.operations.devices import escapes

pytestmark = pytest.mark.end_to_end

CARD_MIB = 4096
PROGRAM = """
import ctypes, os, sys, time
cuda = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
cuda.cuCtxSetCurrent(context)
got = 0
while got < 3000 and cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0:
    got += 64
print("got", got, flush=True)
open("pid", "w").write(f"{os.getpid()}\\n")
time.sleep(600)
"""


class OneCard(FakeVendor):
    """The vendor of a pretended driver's card."""

    name = "nvidia"

    def __init__(self, driver: FakeDriver, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self._driver = driver

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        return self._driver.env(*self._driver.cards)

    def sample(self) -> tuple[DeviceSample, ...]:
        [card] = self._driver.cards
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        rows = ((pid, self._driver.bytes_of(pid, card)) for pid in pids)
        processes = tuple(ProcessSample(pid, used // MIB) for pid, used in rows if used)
        return (DeviceSample(card.uuid, processes=processes),)


@pytest.fixture
def card(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Card:
    for name, value in fake_driver.env().items():
        monkeypatch.setenv(name, value)
    return fake_driver.cards[0]


@pytest.fixture
def bench(bench: Bench, fake_driver: FakeDriver, card: Card, gate_cache: Path) -> Bench:
    device = Device(card.uuid, 0, "nvidia", "H200", CARD_MIB, context_mib=512)
    node = Node("real", 8000, 8192, (device,), swap_mib=CARD_MIB)
    bench.machine = Machine((node,), {"nvidia": OneCard(fake_driver, (node,))})
    bench.holds = {"nvidia": [GateEnforcer(gate_cache, bench.state_dir / "cards")]}
    bench.restart()
    return bench


def start(
    bench: Bench,
    card: Card,
    job: str,
    mib: int,
    arguments: Sequence[str] = (),
    program: str = PROGRAM,
    **launch: object,
) -> Start:
    (bench.workdir / job).mkdir(exist_ok=True)
    command = (sys.executable, "-c", program, *arguments)
    bench.define(job, command, **{"workdir": bench.workdir / job, **launch})
    grant = Grant(card.uuid, 1000 if mib >= CARD_MIB else 250, 1000, mib)
    decision = Start(bench.next_id(), job, 1, Cause.FITS, (Placement(0, "worker", "real", (grant,)),))
    bench.apply(decision)
    return decision


def pid(bench: Bench, job: str) -> int:
    return bench.pid_in(f"{job}/pid")


def event_of(bench: Bench, kind: type[Event]) -> Event:
    (event,) = bench.events(1)
    assert isinstance(event, kind), event
    return event


@pytest.fixture
def apart(tmp_path: Path, gate_cache: Path) -> Iterator[tuple[Bench, Card]]:
    """An engine that sandboxes its tasks, on a driver that lies where the task ``one`` works, as all else is hidden."""
    sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (tmp_path / "state",))
    if sandbox is None:
        pytest.skip(f"no sandbox here: {trouble}")
    bench = Bench(tmp_path, sandbox)
    folder = bench.workdir / "one"
    folder.mkdir()
    driver = FakeDriver(folder)
    driver.libraries = Path(shutil.copytree(driver.libraries, folder / "driver"))
    [card] = driver.cards
    node = Node("real", 8000, 8192, (Device(card.uuid, 0, "nvidia", "H200", CARD_MIB),))
    bench.machine = Machine((node,), {"nvidia": OneCard(driver, (node,))})
    bench.holds = {"nvidia": [GateEnforcer(gate_cache, bench.state_dir / "cards")]}
    bench.restart()
    yield bench, card
    bench.end_all()


def test_a_sandboxed_task_is_held_by_a_gate_whose_words_it_can_read_and_not_change(apart: tuple[Bench, Card]) -> None:
    bench, card = apart
    widen = (
        "import os, pathlib\n"
        "control = pathlib.Path(os.environ['MILLPOND_GATE']) / 'control'\n"
        "print('reads', len(control.read_bytes()) > 0, 'writes', os.access(control, os.W_OK), flush=True)\n"
    )
    start(bench, card, "one", 1536, program=widen + PROGRAM)
    confirmed = event_of(bench, Confirmed)
    assert isinstance(confirmed, Confirmed)
    assert (confirmed.confinement.sandboxed, confirmed.confinement.slices) == (True, SliceHold.GATE)
    pid(bench, "one")
    assert eventually(lambda: bench.log("one") == b"reads True writes False\ngot 1024\n")
    [reading] = bench.engine.slice_readings()
    assert reading.memory_mib == 1536


def test_two_slices_hold_and_one_leaves_its_card_and_returns(bench: Bench, card: Card, fake_driver: FakeDriver) -> None:
    start(bench, card, "one", 1536)
    confirmed = event_of(bench, Confirmed)
    assert confirmed.confinement.slices is SliceHold.GATE  # type: ignore[attr-defined]
    start(bench, card, "two", 2048, env={"LD_PRELOAD": "libm.so.6"})
    event_of(bench, Confirmed)
    assert pid(bench, "one") != pid(bench, "two")
    assert eventually(lambda: (bench.log("one"), bench.log("two")) == (b"got 1024\n", b"got 1536\n"))
    assert b"libmillpond-gate.so:libm.so.6\0" in Path(f"/proc/{pid(bench, 'two')}/environ").read_bytes()
    readings = {reading.job: reading for reading in bench.engine.slice_readings()}
    assert readings["one"].memory_mib == 1536

    started = TaskId("one", 1, 0)
    bench.apply(Suspend(bench.next_id(), "one", 1, Cause.SUSPEND_REQUESTED, SuspendMode.SWAP))
    event_of(bench, Confirmed)
    assert fake_driver.bytes_of(pid(bench, "one"), card) == 0
    assert procfs.is_halted(pid(bench, "one"))

    bench.restart()
    bench.engine.adopt([started, TaskId("two", 1, 0)], [])
    bench.apply(Resume(bench.next_id(), "one", 1, Cause.RESUME_REQUESTED))
    event_of(bench, Confirmed)
    assert fake_driver.bytes_of(pid(bench, "one"), card) >= 1024 * MIB
    assert not procfs.is_halted(pid(bench, "one"))


def test_the_cap_minds_what_the_driver_says_lies_on_the_card(bench: Bench, card: Card, fake_driver: FakeDriver) -> None:
    fake_driver.set("context_bytes", 700 * MIB)  # of which the gate counts 512
    waits = PROGRAM.replace(
        "got = 0", "print('ready', flush=True)\ngot = 0\nwhile not os.path.exists('go'): time.sleep(0.01)"
    )
    start(bench, card, "one", 2048, program=waits)
    event_of(bench, Confirmed)
    assert eventually(lambda: bench.log("one") == b"ready\n")
    [control] = bench.state_dir.glob("jobs/one/attempt-1/*.gate/control")
    uncounted = lambda: layout.SliceControl.from_buffer_copy(control.read_bytes()).uncounted_bytes  # noqa: E731
    assert eventually(lambda: uncounted() == 188 * MIB)
    (bench.workdir / "one" / "go").touch()
    pid(bench, "one")
    assert eventually(lambda: bench.log("one") == b"ready\ngot 1344\n")  # 21 times 64 MiB beside 700 MiB
    assert fake_driver.used_bytes(card) <= 2048 * MIB


def test_a_whole_card_is_left_alone(bench: Bench, card: Card) -> None:
    start(bench, card, "whole", CARD_MIB)
    confirmed = event_of(bench, Confirmed)
    assert confirmed.confinement.slices is SliceHold.UNKNOWN  # type: ignore[attr-defined]
    assert b"MILLPOND_GATE" not in Path(f"/proc/{pid(bench, 'whole')}/environ").read_bytes()


@pytest.mark.long
def test_an_escape_that_cannot_be_written_down_is_told(bench: Bench, card: Card, fake_driver: FakeDriver) -> None:
    TaskFiles.of(bench.state_dir, TaskId("bare", 1, 0)).escape.mkdir(parents=True)
    escape(bench, card, fake_driver)
    assert event_of(bench, Noted)


def test_an_escape_is_told_within_two_looks(bench: Bench, card: Card, fake_driver: FakeDriver) -> None:
    escape(bench, card, fake_driver)
    seen = {noted.text.split(" ")[0] for noted in bench.events(2) if isinstance(noted, Noted)}
    assert seen == {"process", "it"}  # a process without the gate, and more memory than the slice
    assert "bare, task 0: " in escapes(bench.state_dir)[0]


def escape(bench: Bench, card: Card, fake_driver: FakeDriver) -> None:
    """Start a task that uses more than its slice."""
    bare = ("env", "-i", *(f"{name}={value}" for name, value in fake_driver.env().items()))
    (bench.workdir / "bare").mkdir()
    bench.define("bare", (*bare, sys.executable, "-c", PROGRAM), workdir=bench.workdir / "bare")
    grant = Grant(card.uuid, 250, 1000, 1024)
    bench.apply(Start(bench.next_id(), "bare", 1, Cause.FITS, (Placement(0, "worker", "real", (grant,)),)))
    event_of(bench, Confirmed)


@pytest.mark.long
@pytest.mark.parametrize("policy", [EscapePolicy.SUSPEND, EscapePolicy.KILL])
def test_what_follows_an_escape_is_the_pools_to_say(
    policy: EscapePolicy, bench: Bench, card: Card, fake_driver: FakeDriver
) -> None:
    rules = SliceRules(policy)
    bare = ("env", "-u", "LD_PRELOAD", sys.executable, "-c", PROGRAM.replace("3000", "64"))
    (bench.workdir / "bare").mkdir()
    bench.define("bare", bare, workdir=bench.workdir / "bare", slice_rules=rules)
    grant = Grant(card.uuid, 250, 1000, 1024)
    bench.apply(Start(bench.next_id(), "bare", 1, Cause.FITS, (Placement(0, "worker", "real", (grant,)),)))
    event_of(bench, Confirmed)
    if policy is EscapePolicy.SUSPEND:
        event_of(bench, Noted)
        event_of(bench, SuspendRequested)
    else:
        end = event_of(bench, Ended)
        assert end.outcome is Outcome.USER_ERROR  # type: ignore[attr-defined]
        assert "without the gate" in end.detail  # type: ignore[attr-defined]


@pytest.mark.long
def test_who_widens_a_slice_by_its_file_is_found_out_and_gets_nothing(bench: Bench, card: Card) -> None:
    start(bench, card, "one", 1024)
    event_of(bench, Confirmed)
    pid(bench, "one")
    [control] = bench.state_dir.glob("jobs/one/attempt-1/*.gate/control")
    before = control.read_bytes()
    control.write_bytes(bytes(len(before)))
    noted = event_of(bench, Noted)
    assert noted.text.startswith("what its gate goes by was changed, and put right")  # type: ignore[attr-defined]
    assert control.read_bytes() == before


def test_a_slice_smaller_than_a_context_is_refused_with_the_numbers(bench: Bench, card: Card) -> None:
    start(bench, card, "tiny", 300)
    refused = event_of(bench, Refused)
    assert "a slice of 300 MiB" in refused.reason  # type: ignore[attr-defined]


class NoCompiler(GateEnforcer):
    """As on a machine without a compiler."""

    def why_not(self) -> str:
        return "no C compiler; install gcc on this machine"


class NoRoom(NoCompiler):
    """As on a full disk."""

    def why_not(self) -> str:
        return ""

    def prepare(self, request: EnforcementRequest) -> TaskEnv:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


MANAGED = "cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(64 << 20), 1)"
VANISHES = """
import os, shutil
shutil.rmtree(os.environ["MILLPOND_GATE"])
""" + PROGRAM.replace("assert cuda.cuInit(0) == 0", "print('cuInit', cuda.cuInit(0), flush=True)")


@pytest.mark.parametrize(("required", "result"), [(True, b"cuInit 802\n"), (False, b"cuInit 0\n")])
def test_a_task_whose_gate_has_vanished_has_no_device_unless_its_pool_lets_it(
    required: bool, result: bytes, bench: Bench, card: Card
) -> None:
    start(bench, card, "one", 1024, program=VANISHES, slice_rules=SliceRules(required=required))
    event_of(bench, Confirmed)
    assert eventually(lambda: result in bench.log("one"))


def test_managed_memory_is_refused_to_a_job_that_says_it_leaves_by_swap(bench: Bench, card: Card) -> None:
    managed = PROGRAM.replace("cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20))", MANAGED)
    for job, swappable, got in (("swaps", True, b"got 0\n"), ("stays", False, b"got 512\n")):
        start(bench, card, job, 1024, program=managed, swappable=swappable)
        event_of(bench, Confirmed)
        assert eventually(lambda job=job, got=got: bench.log(job) == got)


def test_a_floor_of_the_pool_is_the_gates_for_all_but_those_who_go_first(bench: Bench, card: Card) -> None:
    rules = SliceRules(floor_milli=5)
    for job, share_class in (("first", ShareClass.ONLINE), ("last", ShareClass.BACKFILL)):
        start(bench, card, job, 1024, share_class=share_class, slice_rules=rules)
        event_of(bench, Confirmed)
    regions = [
        GateRegion.open(next(bench.state_dir.glob(f"jobs/{job}/attempt-1/*.gate")), bench.state_dir / "cards")
        for job in ("first", "last")
    ]
    assert [region.settings.floor_milli for region in regions if region] == [0, 5]


def test_without_a_gate_a_slice_is_refused_unless_its_pool_lets_it_start_and_say_so(bench: Bench, card: Card) -> None:
    bench.holds = {"nvidia": [NoCompiler(bench.workdir, bench.workdir)]}
    bench.restart()
    start(bench, card, "free", 1024, slice_rules=SliceRules(required=False))
    confinement = event_of(bench, Confirmed).confinement  # type: ignore[attr-defined]
    assert (confinement.slices, confinement.slices_reason) == (
        SliceHold.NOTHING,
        "no C compiler; install gcc on this machine",
    )
    start(bench, card, "strict", 1024)
    refused = event_of(bench, Refused)
    assert "nothing would keep it to its slice: no C compiler" in refused.reason  # type: ignore[attr-defined]


def test_a_slice_whose_gate_finds_no_room_on_the_disk_is_the_machines_fault_and_does_not_start_without_it(
    bench: Bench, card: Card
) -> None:
    bench.holds = {"nvidia": [NoRoom(bench.workdir, bench.workdir)]}
    bench.restart()
    start(bench, card, "free", 1024, slice_rules=SliceRules(required=False))
    refused = event_of(bench, Refused)
    assert refused.device_fault  # type: ignore[attr-defined]
    assert refused.reason == "[Errno 28] No space left on device"  # type: ignore[attr-defined]


def test_a_slice_whose_memory_the_kernel_bounds_beside_the_gate_says_so(bench: Bench, card: Card) -> None:
    [gate] = bench.holds["nvidia"]
    for job, regions in (("both", {card.uuid: "nvidia/0000:01:00.0/vidmem"}), ("gate", {})):
        bench.holds = {"nvidia": [gate, DmemEnforcer(regions)]}
        bench.restart()
        start(bench, card, job, 1024)
        confinement = event_of(bench, Confirmed).confinement  # type: ignore[attr-defined]
        assert (confinement.slices, confinement.memory_by_kernel) == (SliceHold.GATE, bool(regions))


def test_slices_of_cards_without_a_gate_are_bounded_by_the_kernel_or_refused_with_the_reason(bench: Bench) -> None:
    device = Device("AMD-1", 0, "amd", "MI300X", CARD_MIB)
    node = Node("real", 8000, 8192, (device,))
    bench.machine = Machine((node,), {"amd": FakeVendor((node,))})
    groups = Controllers(dict.fromkeys(("memory", "dmem"), (2, bench.workdir)))
    folder = bench.workdir
    for name, hold in (("none", DmemEnforcer({})), ("kernel", DmemEnforcer({"AMD-1": "drm/0000:03:00.0/vram0"}))):
        bench.holds, bench.limiter = {"amd": [hold]}, Limiter(groups)
        bench.restart()
        (bench.workdir / name).mkdir()
        bench.define(name, ("sleep", "600"), workdir=folder / name)
        grant = Grant("AMD-1", 250, 1000, 1024)
        bench.apply(Start(bench.next_id(), name, 1, Cause.FITS, (Placement(0, "worker", "real", (grant,)),)))
        if name == "none":
            refused = event_of(bench, Refused)
            assert "nothing would keep it to its slice: the kernel counts" in refused.reason  # type: ignore[attr-defined]
        else:
            refused = event_of(bench, Refused)  # nothing starts whose bound cannot be written: these are no real groups
            assert "its control group cannot be made" in refused.reason  # type: ignore[attr-defined]


def test_a_task_that_does_not_survive_the_move_is_ended_and_may_run_again(
    bench: Bench, card: Card, fake_driver: FakeDriver
) -> None:
    start(bench, card, "one", 1024)
    event_of(bench, Confirmed)
    fake_driver.plan("cuCheckpointProcessCheckpoint", Action.FAIL_TARGET, result=999, pid=pid(bench, "one"))
    bench.apply(Suspend(bench.next_id(), "one", 1, Cause.SUSPEND_REQUESTED, SuspendMode.SWAP))
    events = bench.events(2)
    (end,) = [event for event in events if isinstance(event, Ended)]
    assert end.outcome is Outcome.DEVICE_LOST
    assert "the driver failed to checkpoint it" in end.detail


def test_a_frozen_task_is_swapped_and_one_that_cannot_be_is_frozen_as_before(
    bench: Bench, card: Card, fake_driver: FakeDriver
) -> None:
    start(bench, card, "one", 1024)
    event_of(bench, Confirmed)
    own = pid(bench, "one")
    bench.apply(Suspend(bench.next_id(), "one", 1, Cause.SUSPEND_REQUESTED, SuspendMode.FREEZE))
    event_of(bench, Confirmed)
    fake_driver.plan("cuCheckpointProcessCheckpoint", result=2, times=1)
    bench.apply(Suspend(bench.next_id(), "one", 1, Cause.SUSPEND_REQUESTED, SuspendMode.SWAP))
    event_of(bench, Refused)
    assert procfs.is_halted(own)
    assert fake_driver.bytes_of(own, card) > 0
    bench.apply(Suspend(bench.next_id(), "one", 1, Cause.SUSPEND_REQUESTED, SuspendMode.SWAP))
    event_of(bench, Confirmed)
    assert procfs.is_halted(own)
    assert fake_driver.bytes_of(own, card) == 0


def test_a_task_that_is_lost_on_its_way_back_ends_for_that_though_the_core_ends_it_too(
    bench: Bench, card: Card, fake_driver: FakeDriver
) -> None:
    start(bench, card, "one", 1024)
    event_of(bench, Confirmed)
    bench.apply(Suspend(bench.next_id(), "one", 1, Cause.SUSPEND_REQUESTED, SuspendMode.SWAP))
    fake_driver.plan("cuCheckpointProcessRestore", Action.FAIL_TARGET, result=999, pid=pid(bench, "one"))
    event_of(bench, Confirmed)
    bench.apply(Resume(bench.next_id(), "one", 1, Cause.RESUME_REQUESTED))
    told: list[Event] = []
    while not any(isinstance(event, Refused) for event in told):  # which may come behind the end
        told += bench.events(1)
    [refused] = [event for event in told if isinstance(event, Refused)]
    assert refused.device_fault
    bench.apply(Stop(bench.next_id(), "one", 1, Cause.DEVICE_FAILED, grace_s=30.0))
    told += bench.events(3 - len(told))
    [end] = [event for event in told if isinstance(event, Ended)]
    assert (end.outcome, end.detail) == (
        Outcome.DEVICE_LOST,
        "the driver failed to restore it (CUDA_ERROR_UNKNOWN)",
    )


def test_a_second_agent_on_the_machine_is_told_so(bench: Bench, card: Card, tmp_path: Path) -> None:
    start(bench, card, "one", 1024)
    event_of(bench, Confirmed)
    first, bench.state_dir = bench.engine, tmp_path / "other"
    assert first.why_nothing_is_shared() == first.why_nothing_is_shared("default") == ""
    assert first.why_nothing_is_shared("other") == "no card of this machine is in pool other"
    second = bench.new_engine()
    assert "another server shares out the devices" in second.why_nothing_is_shared()
    start(bench, card, "two", 1024)
    refused = event_of(bench, Refused)
    assert "another server shares out the devices of this machine (process " in refused.reason  # type: ignore[attr-defined]
    assert refused.device_fault  # type: ignore[attr-defined]
    second.close()
    bench.engine, bench.state_dir = first, tmp_path / "state"


class Pack(GateEnforcer):
    """As with the multi-process service: whoever it holds shares one fate."""

    def __init__(self, cache: Path, cards: Path) -> None:
        super().__init__(cache, cards)
        self.tasks: set[TaskId] = set()

    def prepare(self, request: EnforcementRequest) -> TaskEnv:
        self.tasks.add(request.task)
        return super().prepare(request)

    def fault_domain(self, task: TaskId) -> frozenset[TaskId]:
        return frozenset(self.tasks - {task})


def test_whoever_shares_the_fate_of_a_task_hears_of_its_failure(bench: Bench, card: Card, gate_cache: Path) -> None:
    bench.holds = {"nvidia": [Pack(gate_cache, bench.state_dir / "cards")]}
    bench.restart()
    start(bench, card, "one", 1024, program="import time; time.sleep(600)")
    event_of(bench, Confirmed)
    start(bench, card, "two", 1024, program="raise SystemExit(9)")
    events = bench.events(3)
    [noted] = [event for event in events if isinstance(event, Noted)]
    assert noted.job == "one"
    assert noted.text.startswith(
        "two, which shares the multi-process service on a card with task 0, failed (exit code 9)"
    )
