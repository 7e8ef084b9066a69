"""Places to work that nobody uses: when they are warned, when they are suspended or stopped, and what counts as use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_record import own_record
from server_world import Clock, Server, World, node

from millpond.model.events import NodeJoined
from millpond.node.host import procfs
from millpond.node.host.files import write_json
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.jobs.monitors.idle_jobs import LOOK_EVERY_S, IdleVerdict, IdleWatch, judge
from millpond.server.monitoring.activity import Activity
from millpond.server.views.events import story
from millpond.specs.config.tasks import DevFile

HOUR = 3_600.0
RULES = DevFile(idle_after="1h", warn_before="10m")
instants = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("idle_s", "warned_s_ago", "verdict"),
    [
        (0, None, IdleVerdict.REST),
        (2_999, None, IdleVerdict.REST),
        (3_000, None, IdleVerdict.WARN),
        (3_599, 599, IdleVerdict.REST),
        (3_600, 600, IdleVerdict.ACT),
        (9_000, None, IdleVerdict.WARN),
        (9_000, 599, IdleVerdict.REST),
        (9_000, 600, IdleVerdict.ACT),
        (3_300, 4_000, IdleVerdict.WARN),
    ],
)
def test_a_warning_comes_first_and_stands_for_its_whole_time(
    idle_s: float, warned_s_ago: float | None, verdict: IdleVerdict
) -> None:
    now = 100_000.0
    warned_at = None if warned_s_ago is None else now - warned_s_ago
    assert judge(RULES, now, now - idle_s, warned_at)[0] is verdict


@given(now=instants, used_at=instants, warned_at=st.none() | instants)
def test_nobody_loses_a_place_that_was_used_lately_or_without_a_standing_warning(now, used_at, warned_at) -> None:
    if judge(RULES, now, used_at, warned_at)[0] is IdleVerdict.ACT:
        assert now - used_at >= HOUR
        assert warned_at is not None
        assert warned_at >= used_at
        assert now - warned_at >= 600.0


def test_without_a_rule_nothing_is_ever_idle() -> None:
    assert judge(DevFile(), 1e9, 0.0, 0.0)[0] is IdleVerdict.REST


class Scene:
    """A running dev job on a card under watch, where host memory takes what is on the card."""

    def __init__(
        self, state_dir: Path, rules: DevFile = RULES, swap_mib: int = 65_536, never_halted: str = "", **fields: object
    ) -> None:
        self.clock = Clock()
        self.server = Server(state_dir, World((replace(node(cards=1), swap_mib=swap_mib),)), self.clock)
        self.server.submit("lab", **{"kind": "dev", "gpus": 1, **fields})
        self.server.turn(2)
        self.cpu_s = 0.0
        self.activity = Activity(self.clock)
        task = TaskId("lab", 1, 0)
        self.files = TaskFiles.of(state_dir, task)
        self.files.record.parent.mkdir(parents=True)
        self.files.log.write_text("working\n")
        write_json(self.files.record, own_record(task))
        loop = self.server.loop
        self.server.scheduler.start()
        self.set_by_s = 0.0
        wall = lambda: self.clock.now + self.set_by_s  # noqa: E731
        self.watch = IdleWatch(loop, self.activity, state_dir, rules, wall, lambda _: self.cpu_s, lambda: never_halted)
        self.next_s = self.watch.look()

    def after(self, seconds: float, cpu_s: float = 0.0) -> str:
        """The job's state when so much time has passed and the watch has looked again."""
        self.clock.now += seconds
        self.cpu_s += cpu_s
        self.next_s = self.watch.look()
        loop = self.server.loop
        for _ in range(3):
            loop.query(lambda core: None).result(60)
        info = loop.job_cache.get("lab") or self.server.store.jobs.ended_job("lab")
        assert info is not None
        return info.state

    def history(self) -> list[str]:
        return [line.text for line in story(*self.server.store.histories.of_job("lab"))]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.server.scheduler.close()


def test_an_idle_place_is_warned_in_its_log_and_history_and_then_gives_its_card_back(scene: Scene) -> None:
    assert scene.after(3_000) == "running"
    warning = (
        "it has not been used for a while; unless it is, it is suspended in 10 minutes: its device memory moves "
        "to the host, and its cards are free"
    )
    assert scene.files.log.read_text() == f"working\n\nmillpond: {warning}\n"
    assert warning in scene.history()
    scene.server.submit("next", gpus=1)
    assert scene.after(599) == "running"
    assert scene.after(1) == "suspended"
    next_job = scene.server.loop.job_cache.get("next")
    assert next_job is not None
    assert next_job.state == "running"


@pytest.mark.parametrize("set_by_s", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_forward_or_back_leaves_a_place_as_long_as_any(scene: Scene, set_by_s: float) -> None:
    scene.set_by_s = set_by_s
    assert scene.after(2_999) == "running"
    assert scene.watch.ends() == {}
    assert scene.after(1) == "running"
    assert scene.watch.ends()["lab"].left_s == 600.0
    assert scene.after(600) == "suspended"


@pytest.mark.parametrize("on_idle", ["suspend", "freeze"])
def test_where_the_engine_halts_nothing_an_idle_place_is_ended_and_its_warning_says_why(
    tmp_path: Path, on_idle: str
) -> None:
    scene = Scene(tmp_path, RULES.model_copy(update={"on_idle": on_idle}), never_halted="pods go on")
    scene.after(3_000)
    assert "it is ended in 10 minutes, as it cannot be suspended (pods go on)" in scene.history()[-1]
    assert scene.after(600) in ("stopping", "cancelled")
    scene.server.scheduler.close()


def test_without_host_memory_for_it_an_idle_place_is_ended_and_its_warning_says_so(tmp_path: Path) -> None:
    scene = Scene(tmp_path, swap_mib=0)
    scene.after(3_000)
    (warning,) = [text for text in scene.history() if "it has not been used" in text]
    assert "it is ended in 10 minutes, as it cannot be suspended (" in warning
    assert "host memory" in warning
    assert warning.endswith(": with notice and grace")
    assert scene.after(600) == "cancelled"
    scene.server.scheduler.close()


def test_a_place_that_loses_its_room_in_host_memory_is_warned_again_before_it_is_ended(scene: Scene) -> None:
    scene.after(3_000)
    without = replace(scene.server.world.nodes[0], swap_mib=0)
    scene.server.loop.notify([NodeJoined(scene.clock.now, without)])
    assert scene.after(600) == "running"
    assert sum("it has not been used" in text for text in scene.history()) == 2
    assert scene.after(599) == "running"
    assert scene.after(1) == "cancelled"


@pytest.mark.parametrize(
    ("on_idle", "gpus", "told"),
    [
        ("freeze", 1, "halted in 10 minutes: its device memory stays on its cards"),
        ("suspend", 0, "halted in 10 minutes"),
    ],
)
def test_a_place_that_is_halted_is_warned_of_what_it_keeps(tmp_path, on_idle, gpus, told) -> None:
    scene = Scene(tmp_path, DevFile(idle_after="1h", warn_before="10m", on_idle=on_idle), gpus=gpus)
    scene.after(3_000)
    assert any(text.endswith(told) for text in scene.history())
    assert scene.after(600) == "suspended"
    scene.server.scheduler.close()


def test_the_watch_looks_again_at_the_instant_that_it_announced(tmp_path: Path) -> None:
    scene = Scene(tmp_path, DevFile(idle_after="60s", warn_before="5s"))
    assert scene.next_s == LOOK_EVERY_S
    scene.after(50)
    assert scene.next_s == 5
    scene.after(5)
    assert scene.next_s == 5
    assert scene.after(5) == "suspended"
    scene.server.scheduler.close()


def test_use_after_the_warning_keeps_the_place(scene: Scene) -> None:
    scene.after(3_000)
    scene.activity.used("lab")
    assert scene.after(600) == "running"
    assert scene.after(2_400) == "running"
    assert scene.after(600) == "suspended"


def test_a_use_that_lasts_counts_all_the_time(scene: Scene) -> None:
    with scene.activity.use("lab"):
        for _ in range(5):
            assert scene.after(HOUR) == "running"


def test_what_is_done_in_open_pages_is_use_unless_the_rule_leaves_pages_out(scene: Scene, tmp_path: Path) -> None:
    scene.after(3_000)
    scene.activity.used("lab", of_page=True)
    assert scene.after(600) == "running"
    (tmp_path / "strict").mkdir()
    strict = Scene(tmp_path / "strict", DevFile(idle_after="1h", warn_before="10m", open_pages="ignore"))
    strict.after(3_000)
    strict.activity.used("lab", of_page=True)
    assert strict.after(600) == "suspended"
    strict.server.scheduler.close()


def test_a_program_that_computes_is_not_idle(scene: Scene) -> None:
    for _ in range(8):
        assert scene.after(1_000, cpu_s=100) == "running"
    scene.after(3_000, cpu_s=100)
    assert scene.after(600) == "suspended"


def test_where_the_rule_says_so_an_idle_place_is_stopped(tmp_path: Path) -> None:
    scene = Scene(tmp_path, DevFile(idle_after="1h", warn_before="10m", on_idle="stop"))
    scene.after(3_000)
    assert scene.after(600) == "cancelled"
    assert "the rule for idle dev jobs asked for its end" in scene.history()
    scene.server.scheduler.close()


def test_an_idle_place_that_was_suspended_names_the_rule_and_its_memory_in_one_unit(scene: Scene) -> None:
    scene.after(3_000)
    assert scene.after(600) == "suspended"
    loop = scene.server.loop
    info, reason = (
        loop.job_cache.get("lab"),
        loop.query(lambda core: core.scheduler.explain("lab", core.now)).result(60),
    )
    assert info is not None
    assert info.suspension == "swapped to host memory (suspended by the rule for idle dev jobs)"
    assert (
        "by the rule for idle dev jobs, 32 GiB of device memory in host memory; it goes on when asked" in reason.summary
    )


def test_processor_time_below_a_process_counts_its_ended_children_too() -> None:

    before = procfs.cpu_s_below(os.getpid())
    subprocess.run([sys.executable, "-c", "x = 0\nfor i in range(3000000): x += i"], check=True)
    assert procfs.cpu_s_below(os.getpid()) > before
