"""Tasks whose processes are a daemon's, as docker's are; with a stand-in for docker that keeps nothing apart."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_bench import Bench, eventually

from millpond.model.decisions import Resume, Stop, Suspend
from millpond.model.events import Confirmed, Ended, Kept
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.containers.container_launch import ContainerLaunch, default_owner
from millpond.node.containers.detection import RuntimeChoice, find_containers
from millpond.node.host import procfs
from millpond.node.task.records import TaskFiles, TaskId, read_record
from millpond.node.task.runner import running_under
from millpond.node.task.workspace import Workspace
from standin_docker import calls, install

pytestmark = pytest.mark.end_to_end


@dataclass
class Harbour:
    """A bench whose jobs run by the stand-in."""

    bench: Bench
    folder: Path
    launch: ContainerLaunch

    def start(self, command: str, **settings: object) -> None:
        self.bench.define("job", command, container=self.launch, **settings)
        self.bench.start("job")
        assert isinstance(self.bench.events(1)[0], Confirmed)

    def end(self) -> Ended:
        end = self.bench.events(1)[0]
        assert isinstance(end, Ended)
        return end


@pytest.fixture
def harbour(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harbour]:
    folder = tmp_path / "docker"
    folder.mkdir()
    daemon = install(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    containers = find_containers(RuntimeChoice.DOCKER, tmp_path)
    image = containers.images.find("busy:1")
    assert image is not None
    yield Harbour(
        bench, folder, ContainerLaunch(containers, image, bench.state_dir.resolve(), {}, default_owner(containers))
    )
    daemon.kill()
    daemon.wait()


def test_it_runs_with_its_variables_and_its_exit_code_is_the_tasks(harbour: Harbour) -> None:
    harbour.start("pwd; echo $COLOUR; exit 7", env={"COLOUR": "light blue"})
    end = harbour.end()
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 7)
    assert harbour.bench.log("job").decode() == f"{harbour.bench.workdir}\nlight blue\n"


def test_notice_goes_through_the_client_to_the_whole_command(harbour: Harbour) -> None:
    harbour.start(
        "trap 'echo saving; exit 0' USR1; touch ready; while true; do sleep 0.1; done", checkpoint_signal="SIGUSR1"
    )
    assert harbour.bench.appears("ready")
    harbour.bench.stop("job")
    assert isinstance(harbour.bench.events(1)[0], Confirmed)
    end = harbour.end()
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 0)
    assert b"saving\n" in harbour.bench.log("job")


def test_what_ignores_the_notice_is_killed_through_docker(harbour: Harbour) -> None:
    harbour.start("trap '' TERM; touch ready; while true; do sleep 0.1; done")
    assert harbour.bench.appears("ready")
    harbour.bench.stop("job", grace_s=0.2)
    harbour.bench.events(1)
    assert harbour.end().exit_code == 137
    assert any(words[0] == "kill" for words in calls(harbour.folder))


def test_it_is_frozen_counted_as_ours_and_ends_with_its_supervisor(harbour: Harbour) -> None:
    harbour.start("echo $$ > pid; while true; do echo x >> ticks; sleep 0.02; done")
    pid = harbour.bench.pid_in("pid")
    record = read_record(TaskFiles.of(harbour.bench.state_dir, TaskId("job", 1, 0)))
    assert record is not None
    assert pid not in procfs.descendants(record.supervisor_pid)
    assert pid in running_under(harbour.bench.state_dir).pids
    harbour.bench.apply(Suspend(harbour.bench.next_id(), "job", 1, Cause.SUSPEND_REQUESTED))
    harbour.bench.events(1)
    assert eventually(lambda: procfs.is_halted(pid))  # a shell may wait in vfork for a stopped child
    ticks = harbour.bench.workdir / "ticks"
    frozen = ticks.stat().st_size
    harbour.bench.apply(Resume(harbour.bench.next_id(), "job", 1, Cause.RESUME_REQUESTED))
    harbour.bench.events(1)
    assert eventually(lambda: ticks.stat().st_size > frozen)
    os.kill(record.supervisor_pid, signal.SIGKILL)
    assert harbour.end().outcome is Outcome.NODE_LOST
    assert harbour.bench.gone(pid)


def test_its_place_is_kept_when_it_has_failed_and_not_when_it_was_told_to_end(harbour: Harbour, tmp_path: Path) -> None:
    workspace = Workspace(f"{tmp_path}/state/blobs", f"{tmp_path}/state/datasets")
    script = "trap 'exit 5' TERM; touch ready; until test -e go; do sleep 0.05; done; exit 3"
    harbour.start(script, keep_s=600.0, workspace=workspace)
    assert harbour.bench.appears("ready")
    harbour.bench.stop("job")
    harbour.bench.events(1)
    end = harbour.end()
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 5)
    (harbour.bench.workdir / "go").touch()
    harbour.bench.start("job", attempt=2)
    _, event = harbour.bench.events(2)
    assert isinstance(event, Kept)
    assert event.exit_code == 3
    harbour.bench.apply(Stop(harbour.bench.next_id(), "job", 2, Cause.STOP_REQUESTED, grace_s=60.0))
    harbour.bench.events(1)
    end = harbour.end()
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 3)
    assert harbour.bench.nothing_runs_like(str(harbour.bench.state_dir))
