"""Nothing is launched outside the account, whatever the streams and threads, and nothing stays in it for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest
from gated import FOR_EVER_MS, KERNEL_NS, GatedCard, Task, begin_at_once, keep_busy, last_launch_ns, until, write_slot

from fake_driver.driver import MIB, Action
from millpond.model.sharing import ShareClass

PREAMBLE = """
import ctypes, select, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
def enter():
    assert cuda.cuCtxSetCurrent(context) == 0
def ready():
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    enter()
    assert cuda.cuModuleLoadData(ctypes.byref(module), b"kernels") == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"spin") == 0
def launch(stream, nanoseconds=20_000, call=cuda.cuLaunchKernel):
    duration = ctypes.c_uint64(nanoseconds)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
    assert call(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None) == 0
def stream():
    made = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(made), 1) == 0
    return made
def all_at_once(what, threads):
    def run():
        enter()
        what()
    started = [threading.Thread(target=run) for _ in range(threads)]
    for each in started:
        each.start()
    for each in started:
        each.join()
ready()
"""


@pytest.mark.parametrize(
    ("launches", "program"),
    [
        (1200, "streams = [stream() for _ in range(400)]\nfor _ in range(3):\n    for each in streams: launch(each)"),
        (300, "all_at_once(lambda: [launch(None, call=cuda.cuLaunchKernel_ptsz) for _ in range(2)], 150)"),
        (2400, "shared = stream()\nall_at_once(lambda: [launch(shared) for _ in range(300)], 8)"),
    ],
    ids=["400 streams", "150 threads with a stream each", "8 threads on one stream"],
)
def test_every_launch_is_counted_with_its_time(card: GatedCard, launches: int, program: str) -> None:
    task, all_of_it = card.slice(), 0.5 * launches * 20_000  # the clock is the machine's, and it is busy
    source = PREAMBLE + program + "\ncuda.cuCtxSynchronize()\nsys.stdin.read()"
    card.python_until(
        task, source, lambda: task.region.usage().busy_ns >= all_of_it and task.region.usage().launches >= launches
    )
    assert task.region.usage().launches == launches


def test_a_limit_holds_over_hundreds_of_streams(timed_card: GatedCard) -> None:
    card = timed_card
    [task] = card.programs({"limit_milli": 250})
    assert task.program is not None
    task.program("streams", 300)
    task.program.send("spread", 500_000, 10**9)
    card.until(lambda: task.region.usage().busy_ns > 0)
    card.pass_time(0.3)
    [before] = card.busy_ns([task])
    card.pass_time(1.0)
    [after] = card.busy_ns([task])
    assert (after - before) / 1e9 == pytest.approx(0.25, abs=0.03)


def test_a_batch_that_nobody_fills_does_not_stay_in_flight(timed_card: GatedCard) -> None:
    [task] = timed_card.programs({})
    assert task.program is not None
    task.program.send("paced", 10_000, 80_000, 20)
    timed_card.until(lambda: task.region.usage().launches > 0)
    timed_card.pass_time(0.05)
    assert in_flight(task) == 0
    assert task.region.usage().launches == 20


@pytest.mark.parametrize(("waiting", "beside"), [(10, 20), (900, 0)])
@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "beside another"])
def test_work_that_waits_for_later_work_does_not_hold_that_back(
    timed_card: GatedCard, waiting: int, beside: int, is_shared: bool
) -> None:
    [task, other] = timed_card.programs({}, {})
    assert task.program is not None
    task.program("streams", 2)
    task.program.send("launch", KERNEL_NS, 5)
    timed_card.until(lambda: task.region.usage().launches == 5)
    if is_shared:
        keep_busy(other)
        timed_card.pass_time(0.1)
    for number, patience_s in enumerate((1.0 if waiting == 10 else 4.0, 0.2), 1):
        before = last_launch_ns(task)
        task.program.send_all(
            ("await_word", 1, number),
            ("launch", 10_000, waiting, 1),
            ("launch", 10_000, beside, 2),
            ("write_word", 2, number),
        )
        until(partial(has_launched_since, task, before))
        timed_card.pass_time(patience_s)
        assert task.region.usage().launches == 5 + number * (waiting + beside)
        assert in_flight(task) == 0
        assert task.region.usage().processes[task.program.pid].outstanding_ns == 0


HOST = """
def host(what, stream):
    calls.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: what()))
    assert cuda.cuLaunchHostFunc(stream, calls[-1], None) == 0
calls, mine, duration = [], stream(), ctypes.c_uint64(20_000)
"""


def test_a_launch_from_a_function_that_a_stream_waits_for_is_the_drivers_to_refuse(card: GatedCard) -> None:
    task, neighbour = card.programs({}, {})
    keep_busy(neighbour)
    source = """
answers, parameters = [], (ctypes.c_void_p * 1)(ctypes.addressof(duration))
for _ in range(4):
    launch(mine)
    host(lambda: answers.append(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, mine, parameters, None)), mine)
    launch(mine)
assert cuda.cuCtxSynchronize() == 0
assert answers == [800] * 4, answers
sys.stdin.read()
"""
    card.python_until(
        task, PREAMBLE + HOST + source, lambda: task.region.usage().launches >= 8 and in_flight(task) == 0
    )


def test_a_stream_that_waits_for_a_thread_which_is_held_back_goes_on(card: GatedCard) -> None:
    source = """
lock = threading.Lock()
with lock:
    host(lambda: lock.acquire(), mine)
    for _ in range(900):
        launch(mine)
assert cuda.cuCtxSynchronize() == 0
print(lock.locked())
"""
    assert card.python(card.slice(), PREAMBLE + HOST + source) == "True\n"


def has_launched_since(task: Task, before_ns: int) -> bool:
    return last_launch_ns(task) != before_ns


@pytest.mark.parametrize("due_ns", [1, 2**62])
def test_work_of_a_stopped_process_does_not_hold_up_the_others_of_its_slice(timed_card: GatedCard, due_ns: int) -> None:
    card = timed_card
    settings = {"share_class": ShareClass.BACKFILL, "floor_milli": 100}
    [task, online] = card.programs(settings, {"share_class": ShareClass.ONLINE})
    for index in range(2):  # as a process leaves them that is stopped with work on the card
        write_slot(task, index + 1, in_flight=3, outstanding_ns=10_000_000, due_ns=due_ns)
    begin_at_once(task, "busy", KERNEL_NS, FOR_EVER_MS)
    keep_busy(online)
    card.until(lambda: online.region.usage().busy_ns > 0)
    [before] = card.busy_ns([task])
    card.pass_time(1.0)
    [after] = card.busy_ns([task])
    assert after - before > 30_000_000  # a tenth of the time, by its floor


def test_a_program_that_launches_hundreds_of_graphs_by_turns_loses_nothing(timed_card: GatedCard) -> None:
    [task] = timed_card.programs({})
    assert task.program is not None
    for _ in range(600):
        task.program("graph", 50_000, 1)
    timed_card.driver.set("launch_ns", 20_000)
    task.program.send("replay_all", FOR_EVER_MS)
    timed_card.until(lambda: task.region.usage().busy_ns > 0)
    timed_card.pass_time(0.1)
    [before] = timed_card.busy_ns([task])
    timed_card.pass_time(0.2)
    [after] = timed_card.busy_ns([task])
    assert after - before > 0.95 * 200_000_000


def in_flight(task: Task) -> int:
    return sum(process.in_flight for process in task.region.usage().processes.values())


RELEASE = """
launch(None)
for _ in range(300):
    again = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(again), 0) == 0
    launch(None, 500_000)
    assert cuda.cuDevicePrimaryCtxRelease_v2(0) == 0
cuda.cuCtxSynchronize()
"""

RELEASE_BESIDE_LAUNCHES = """
begun, stop = threading.Event(), threading.Event()
def work():
    own = stream()
    while not stop.is_set():
        launch(own)
        begun.set()
def release():
    begun.wait()
    for _ in range(400):
        again = ctypes.c_void_p()
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(again), 0) == 0
        assert cuda.cuDevicePrimaryCtxRelease_v2(0) == 0
    stop.set()
threads = [threading.Thread(target=lambda what=what: (enter(), what())) for what in (work, work, release)]
for each in threads: each.start()
for each in threads: each.join()
cuda.cuCtxSynchronize()
"""

LAST_RELEASE = """
for _ in range(60):
    for each in [stream() for _ in range(3)] + [None]:
        launch(each, 200_000)
        launch(each, 200_000)
    assert cuda.cuDevicePrimaryCtxRelease_v2(0) == 0
    ready()
launch(None)
cuda.cuCtxSynchronize()
"""

LAST_DETACH = """
for _ in range(60):
    made, again = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == 0
    assert cuda.cuCtxAttach(ctypes.byref(again), 0) == 0
    for each in (stream(), None):
        launch(each, 200_000)
        assert cuda.cuCtxDetach(made) == 0
    launch(None)
cuda.cuCtxSynchronize()
"""


@pytest.mark.parametrize(
    "program",
    [RELEASE, RELEASE_BESIDE_LAUNCHES, LAST_RELEASE, LAST_DETACH],
    ids=["not the last", "beside launches", "the last", "the last to detach"],
)
def test_a_context_is_released_while_work_of_it_is_in_flight(card: GatedCard, program: str) -> None:
    task = card.slice()
    card.python(task, PREAMBLE + program + "\nprint('done')")
    assert task.region.usage().busy_ns > 0


HELD_UP_AS_IT_RELEASES = """
launch(None, 200_000), cuda.cuCtxSynchronize()
print("ready", flush=True), sys.stdin.readline()
launch(None, 200_000_000)
cuda.cuDevicePrimaryCtxRelease_v2(0)
"""
"""The last launch is in flight as the context goes, however busy the machine is."""


def test_no_event_is_asked_for_while_it_is_not_known_whether_its_context_is_gone(card: GatedCard) -> None:
    card.driver.set("context_bytes", MIB)
    task = card.slice()
    source, pipe = PREAMBLE + HELD_UP_AS_IT_RELEASES, subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", source], env={**os.environ, **task.env}, stdin=pipe, stdout=pipe, text=True, bufsize=1
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "ready\n"
            card.driver.plan("cuDevicePrimaryCtxGetState", Action.HANG, pid=program.pid)
            program.stdin.write("\n")
            until(lambda: card.driver.bytes_of(program.pid, card.driver.cards[0]) == 0)
            gone_ns = due_ns(task)
            until(lambda: program.poll() is not None or due_ns(task) > gone_ns + 5_000_000)  # it has looked since
            assert program.poll() is None
        finally:
            program.kill()


def due_ns(task: Task) -> int:
    """Up to when the task's process says that it should be done: later with each look at what is in flight."""
    return max((process.due_ns for process in task.region.usage().processes.values()), default=0)


def test_launches_on_a_stream_of_another_context_than_the_current_are_measured(card: GatedCard) -> None:
    task = card.slice()
    source = """
own, other = stream(), ctypes.c_void_p()
assert cuda.cuCtxCreate_v2(ctypes.byref(other), 0, 0) == 0
while not select.select([sys.stdin], [], [], 0.001)[0]:
    launch(own, 100_000)
"""

    def are_measured() -> bool:  # the machine may be busy, and then a span says nothing; without events none ever does
        usage = task.region.usage()
        return usage.launches - usage.unmeasured >= 5

    card.python_until(task, PREAMBLE + source, are_measured)
    assert are_measured()


def test_a_release_that_is_not_the_last_waits_for_nothing(timed_card: GatedCard) -> None:
    [task] = timed_card.programs({})
    assert task.program is not None
    timed_card.driver.set("launch_ns", 0)
    task.program.send("launch", 15_000_000, 2)
    pid = task.program.pid
    until(lambda: timed_card.driver.launches_of(pid) == 2)
    assert task.program.answer() == [0]
    assert task.program("retain_and_release") == [0]  # without any time going by
    assert timed_card.driver.pending_ns_of(pid) > 0
