"""Tasks in containers of a real podman: like any other task to whoever looks after them."""

from __future__ import annotations

import os
import secrets
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from local_bench import Bench, eventually
from test_local_sessions import SessionClient

from millpond.model.decisions import Resume, Suspend
from millpond.model.events import Confirmed, Ended, Kept
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.containers.container import NAME_VARIABLE, state_mark
from millpond.node.containers.container_launch import ContainerLaunch, default_owner
from millpond.node.containers.detection import Containers, RuntimeChoice, find_containers
from millpond.node.containers.images import LocalImage
from millpond.node.containers.oci import Podman
from millpond.node.containers.removal import drop_ended, drop_lost
from millpond.node.host import procfs
from millpond.node.host.controllers import Amounts
from millpond.node.task.records import TaskFiles, TaskId, read_record
from millpond.node.task.workspace import DataMount, Workspace
from real_containers import IMAGE, RealPodman

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def containers(_real_podman: RealPodman | str, tmp_path_factory: pytest.TempPathFactory) -> Containers:
    if isinstance(_real_podman, str):
        pytest.skip(_real_podman)
    with pytest.MonkeyPatch.context() as patch:
        _real_podman.become_ours(patch)
        return find_containers(RuntimeChoice.PODMAN, tmp_path_factory.mktemp("podman"))


@pytest.fixture(scope="module")
def image(containers: Containers) -> LocalImage:
    found = containers.images.find(IMAGE)
    assert found is not None
    return found


class Yard:
    """A bench whose jobs run in containers."""

    def __init__(self, bench: Bench, containers: Containers, image: LocalImage) -> None:
        self.bench = bench
        amounts = {"worker": Amounts(500, 64)}
        self.launch = ContainerLaunch(containers, image, bench.state_dir.resolve(), amounts, default_owner(containers))

    def start(self, command: str | tuple[str, ...], job: str = "job", **settings: object) -> None:
        self.bench.define(job, command, container=self.launch, **settings)
        self.bench.start(job)

    def end(self, command: str | tuple[str, ...], **settings: object) -> Ended:
        """How a job ends that is started now."""
        self.start(command, **settings)
        confirmed, end = self.bench.events(2)
        assert isinstance(confirmed, Confirmed), confirmed
        assert isinstance(end, Ended)
        return end

    def inside(self) -> list[int]:
        """Processes in the container of the job."""
        record = read_record(TaskFiles.of(self.bench.state_dir, TaskId("job", 1, 0)))
        assert record is not None
        return procfs.with_variable(NAME_VARIABLE, record.container)


@pytest.fixture
def yard(bench: Bench, real_podman: RealPodman, containers: Containers, image: LocalImage) -> Yard:
    return Yard(bench, containers, image)


def test_a_task_finds_its_image_its_folder_and_its_variables_and_nothing_else(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of others")
    (yard.bench.workdir / "here").write_text("mine")
    script = (
        f"pwd; cat here; echo; cat {tmp_path}/secret; ls {yard.bench.state_dir}; ls -A /tmp | wc -l;"
        "echo $COLOUR $MILLPOND_JOB_ID $MASTER_ADDR; test -S /var/run/docker.sock || echo no socket; ps | wc -l; exit 7"
    ).replace(" | wc -l", "")
    end = yard.end(script, env={"COLOUR": "light blue # not a comment"})
    lines = yard.bench.log("job").decode().splitlines()
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 7), lines
    assert lines[:2] == [str(yard.bench.workdir), "mine"]
    assert "light blue # not a comment job 127.0.0.1" in lines
    assert "no socket" in lines
    assert not any("of others" in line or "millpond.db" in line for line in lines)
    assert any(line.endswith("secret': No such file or directory") for line in lines)


def test_a_folder_that_holds_the_servers_state_shows_nothing_of_it(yard: Yard, tmp_path: Path) -> None:
    (yard.bench.state_dir / "millpond.db").write_text("secret")
    (tmp_path / "beside").write_text("here")
    workspace = Workspace(f"{tmp_path}/state/blobs", f"{tmp_path}/state/datasets")
    state = yard.bench.state_dir
    script = f"ls {tmp_path} {state}; cat {state}/millpond.db; echo x > $MILLPOND_OUTPUT/y"
    yard.end(script, workdir=tmp_path, workspace=workspace)
    log = yard.bench.log("job").decode()
    assert "beside" in log
    assert "secret" not in log
    assert list(tmp_path.glob("state/jobs/job/attempt-1/files/output/y"))


def test_it_reads_its_data_and_writes_its_output_where_the_variables_say(yard: Yard, tmp_path: Path) -> None:
    data, output = tmp_path / "data", tmp_path / "output"
    data.mkdir()
    (data / "words").write_text("to be\n")
    workspace = Workspace(
        str(tmp_path / "state/blobs"),
        str(tmp_path / "state/datasets"),
        "",
        "",
        (DataMount("set", str(data)),),
        str(output),
    )
    script = (
        'cat $MILLPOND_DATA_SET/words > $MILLPOND_OUTPUT/copy; echo x > $MILLPOND_DATA_SET/words || echo "read only"'
    )
    assert yard.end(script, workspace=workspace).outcome is Outcome.SUCCESS
    assert (output / "copy").read_text() == "to be\n"
    assert (output / "copy").stat().st_uid == os.geteuid()
    assert (data / "words").read_text() == "to be\n"
    assert "read only" in yard.bench.log("job").decode()


def test_its_variables_are_in_no_command_line_and_reach_no_program_outside(yard: Yard, tmp_path: Path) -> None:
    secret = secrets.token_hex()
    yard.start(("sleep", "600"), env={"TOKEN": secret, "CONTAINERS_CONF": str(tmp_path / "mine"), "LD_PRELOAD": "/x"})
    assert isinstance(yard.bench.events(1)[0], Confirmed)
    assert eventually(yard.inside)
    assert yard.bench.nothing_runs_like(secret)
    files = TaskFiles.of(yard.bench.state_dir, TaskId("job", 1, 0))
    assert files.record.with_suffix(".env").stat().st_mode & 0o077 == 0
    yard.bench.stop("job")
    yard.bench.events(2)
    assert not files.record.with_suffix(".env").exists()


def test_notice_reaches_the_command_and_what_it_does_with_it_counts(yard: Yard) -> None:
    script = "trap 'echo saving; exit 0' USR1; touch ready; while true; do sleep 0.1; done"
    yard.start(script, checkpoint_signal="SIGUSR1")
    assert yard.bench.appears("ready")
    yard.bench.stop("job")
    *_, end = yard.bench.events(3)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 0)
    assert b"saving\n" in yard.bench.log("job")
    assert end.service_s is not None


def test_a_command_that_ignores_the_notice_is_killed_when_the_grace_is_over(yard: Yard) -> None:
    yard.start("trap '' TERM; touch ready; while true; do sleep 0.1; done")
    assert yard.bench.appears("ready")
    yard.bench.stop("job", grace_s=0.2)
    *_, end = yard.bench.events(3)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 137)
    assert eventually(lambda: not yard.inside())


def test_a_command_that_does_not_listen_ends_at_once(yard: Yard) -> None:
    yard.start("touch ready; sleep 600")
    assert yard.bench.appears("ready")
    yard.bench.stop("job", grace_s=600)
    *_, end = yard.bench.events(3)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 143)


def test_it_ends_with_its_supervisor(yard: Yard) -> None:
    yard.start("touch ready; sleep 600")
    assert yard.bench.appears("ready")
    record = read_record(TaskFiles.of(yard.bench.state_dir, TaskId("job", 1, 0)))
    assert record is not None
    os.kill(record.supervisor_pid, signal.SIGKILL)
    _, end = yard.bench.events(2)
    assert isinstance(end, Ended)
    assert end.outcome is Outcome.NODE_LOST
    assert eventually(lambda: not yard.inside())


def test_it_is_frozen_and_goes_on(yard: Yard) -> None:
    yard.start("while true; do echo x >> ticks; sleep 0.02; done")
    assert yard.bench.appears("ticks")
    ticks = yard.bench.workdir / "ticks"
    yard.bench.apply(Suspend(yard.bench.next_id(), "job", 1, Cause.SUSPEND_REQUESTED))
    yard.bench.events(2)

    # Not "T" for every process: a shell may wait in vfork for a stopped child.
    assert eventually(lambda: {procfs.is_halted(pid) for pid in yard.inside()} == {True})
    frozen = ticks.stat().st_size
    yard.bench.apply(Resume(yard.bench.next_id(), "job", 1, Cause.RESUME_REQUESTED))
    assert eventually(lambda: ticks.stat().st_size > frozen)


def test_the_container_of_a_program_that_has_failed_is_kept_for_a_look_inside(yard: Yard, tmp_path: Path) -> None:
    workspace = Workspace(f"{tmp_path}/state/blobs", f"{tmp_path}/state/datasets")
    yard.start("echo model > /tmp/left; exit 3", keep_s=600.0, workspace=workspace)
    _, event = yard.bench.events(2)
    assert isinstance(event, Kept)
    assert (event.exit_code, event.detail) == (3, "exit code 3")
    streams, _ = SessionClient(yard.bench, "job", argv=["cat", "/tmp/left"]).hear()
    assert streams[1] == b"model\n"
    yard.bench.stop("job")
    *_, end = yard.bench.events(2)
    assert isinstance(end, Ended)
    assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, 3)
    assert eventually(lambda: not yard.inside())


def test_commands_beside_it_run_in_its_container_and_go_with_their_client(yard: Yard) -> None:
    yard.start("touch ready; sleep 600", env={"COLOUR": "blue"})
    assert yard.bench.appears("ready")
    client = SessionClient(yard.bench, "job", argv=["sh", "-c", "pwd; echo $COLOUR; cat; echo bad >&2; exit 5"])
    client.type(b"typed\n")
    client.say(eof=True)
    streams, last = client.hear()
    assert streams == {1: f"{yard.bench.workdir}\nblue\ntyped\n".encode(), 2: b"bad\n"}
    assert last == {"exit": 5}
    terminal = SessionClient(yard.bench, "job", argv=["sh", "-c", "test -t 0 && echo $TERM"], tty=True, term="vt100")
    assert b"vt100" in terminal.hear()[0][1]
    leaver = SessionClient(yard.bench, "job", argv=["sh", "-c", f"touch visiting; exec sleep {yard.bench.own_sleep}"])
    assert yard.bench.appears("visiting")
    leaver.socket.close()
    assert yard.bench.nothing_runs_like(yard.bench.own_sleep)


def test_an_sftp_client_is_served_by_what_the_image_has(yard: Yard) -> None:
    folder = "/usr/libexec"
    make = f"mkdir -p {folder}; echo '#!/bin/sh' > {folder}/sftp-server; echo 'pwd; cat' >> {folder}/sftp-server"
    yard.start(
        f"touch ready; while ! test -e go; do sleep 0.1; done; {make}; chmod 755 {folder}/*; touch set; sleep 600"
    )
    assert yard.bench.appears("ready")
    streams, last = SessionClient(yard.bench, "job", sftp=True).hear()
    assert last == {"exit": 127}
    assert b"neither python3 nor OpenSSH's sftp-server" in streams[2]
    (yard.bench.workdir / "go").touch()
    assert yard.bench.appears("set")
    client = SessionClient(yard.bench, "job", sftp=True)
    client.type(b"asked")
    client.say(eof=True)
    streams, last = client.hear()
    assert (streams[1], last) == (f"{yard.bench.workdir}\nasked".encode(), {"exit": 0})


def test_it_is_kept_to_its_memory_and_says_so(yard: Yard) -> None:
    runtime = yard.launch.containers.runtime
    if isinstance(runtime, Podman) and not runtime.limits:
        pytest.skip("no control groups for containers here")
    end = yard.end("x=0123456789; while true; do x=$x$x; done")
    assert end.outcome is Outcome.OUT_OF_MEMORY


def test_an_ended_container_is_kept_for_a_while_and_then_dropped(yard: Yard, real_podman: RealPodman) -> None:
    yard.end("touch /made")
    record = read_record(TaskFiles.of(yard.bench.state_dir, TaskId("job", 1, 0)))
    assert record is not None
    assert record.container in real_podman.containers("--all")
    mark = state_mark(yard.bench.state_dir)
    assert drop_ended(yard.launch.containers, mark, time.time() - 60) == 0
    assert drop_ended(yard.launch.containers, state_mark(yard.bench.workdir), time.time() + 60) == 0, "another server's"
    assert drop_ended(yard.launch.containers, mark, time.time() + 60) == 1
    assert record.container not in real_podman.containers("--all")


@pytest.mark.long
def test_a_container_that_runs_in_its_runtimes_books_alone_is_dropped(yard: Yard, real_podman: RealPodman) -> None:
    drop = partial(drop_lost, yard.launch.containers, state_mark(yard.bench.state_dir), yard.bench.state_dir)
    yard.start("sleep 600")
    (confirmed,) = yard.bench.events(1)
    assert isinstance(confirmed, Confirmed)
    record = read_record(TaskFiles.of(yard.bench.state_dir, TaskId("job", 1, 0)))
    assert record is not None
    assert eventually(lambda: bool(yard.inside()))
    monitor = real_podman.printed("container", "inspect", "--format", "{{.State.ConmonPid}}", record.container)
    assert drop() == 0, "it runs"
    os.kill(int(monitor), signal.SIGKILL)
    yard.bench.stop("job", grace_s=0.0)
    yard.bench.events(2)
    assert record.container in real_podman.containers(), "podman knows no better"
    assert drop() == 1
    assert record.container not in real_podman.containers("--all")


def test_a_program_that_is_not_in_the_image_is_called_so(yard: Yard) -> None:
    end = yard.end(("no-such-program",))
    assert end.outcome is Outcome.USER_ERROR
    assert "No such file" in yard.bench.log("job").decode()
