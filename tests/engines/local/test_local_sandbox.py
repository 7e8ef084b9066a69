"""Tasks kept apart by bubblewrap: what they no longer see, and that nothing else changes for them."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from local_bench import Bench, eventually

from millpond.model.decisions import Resume, Suspend, SuspendMode
from millpond.model.errors import UnavailableError
from millpond.model.events import Confirmed, Ended, Refused
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.host.controllers import Amounts
from millpond.node.host.identities import SharedAccount, shared_account
from millpond.node.sandbox.detection import SandboxMode, find_sandbox
from millpond.node.sandbox.sandbox import Sandbox, SandboxRequest
from millpond.node.task import start_planner
from millpond.node.task.limits import Limiter
from millpond.node.task.records import TaskFiles, TaskId
from millpond.node.task.workspace import DataMount, Workspace, blob_path

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Bench]:
    """An engine that sandboxes its tasks."""
    sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (tmp_path / "state",))
    if sandbox is None:
        pytest.skip(f"no sandbox here: {trouble}")
    bench = Bench(tmp_path, sandbox)
    yield bench
    bench.end_all()


def end_of(bench: Bench, command: str | tuple[str, ...], job: str = "apart") -> Ended:
    bench.start(job, command)
    confirmed, end = bench.events(2)
    assert isinstance(confirmed, Confirmed)
    assert isinstance(end, Ended)
    return end


def noticed(bench: Bench) -> bool:
    """Whether the supervisor of a task has given it notice, as its record says when it is asked to write that again."""
    path = TaskFiles.of(bench.state_dir, TaskId("apart", 1, 0)).record
    os.kill(json.loads(path.read_text())["supervisor_pid"], signal.SIGHUP)
    return json.loads(path.read_text() or "{}").get("notice_at") is not None


@needs_bubblewrap
@pytest.mark.end_to_end
class TestASandboxedTask:
    def test_sees_no_processes_but_its_own(self, apart: Bench) -> None:
        end_of(apart, "ls /proc | grep -c '^[0-9]'; grep -l 'node.[s]upervisor' /proc/[0-9]*/cmdline; true")
        count, *others = apart.log("apart").decode().split()
        assert int(count) <= 5  # the sandbox's own, the shell that stays, that of the line, ls and grep
        assert others == []

    @pytest.mark.parametrize("workdir", ["/", "/proc", "/dev"])
    def test_sees_no_others_and_has_its_devices_wherever_it_works(self, apart: Bench, workdir: str) -> None:
        apart.define("apart", "ls /proc | grep -c '^[0-9]'; echo into > /dev/null && pwd", workdir=Path(workdir))
        apart.start("apart")
        apart.events(2)
        count, where = apart.log("apart").decode().split()
        assert int(count) <= 5
        assert where == workdir

    def test_finds_nothing_of_the_server_by_a_variable_that_names_a_link_to_it(self, apart: Bench) -> None:
        (apart.state_dir / "secret").write_text("secret")
        link = Path("/tmp") / f"{apart.workdir.parent.name}-{os.getpid()}-link"
        link.symlink_to(apart.state_dir)
        try:
            env = {"VIRTUAL_ENV": str(link), "PYTHONPATH": str(apart.state_dir), "PATH": f"{link}/bin:/usr/bin:/bin"}
            apart.define("apart", f"cat {link}/secret {apart.state_dir}/secret", env=env)
            apart.start("apart")
            apart.events(2)
        finally:
            link.unlink()
        assert b"No such file" in apart.log("apart")
        assert not apart.log("apart").startswith(b"secret")

    def test_has_no_variable_heard_by_what_makes_its_sandbox(self, apart: Bench, tmp_path: Path) -> None:
        traces = tmp_path / "traces"
        traces.mkdir()
        # Every program writes there which libraries it loads, with its own rights; the task finds no such folder.
        env = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(traces / "of"), "UID": "7", "WORDS": "it's\n$HOME `x`"}
        apart.define("apart", ("env",), env=env)
        apart.start("apart")
        apart.events(2)
        assert list(traces.iterdir()) == []
        log = apart.log("apart").decode()
        assert all(f"{name}={value}\n" in log for name, value in env.items())
        assert {line.partition("=")[0] for line in log.splitlines()} & {"MILLPOND_SETS", "SHLVL", "_", "PWD"} == set()

    @pytest.mark.parametrize("name", ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"])
    @pytest.mark.parametrize(
        "way", ["/tmp/../tmp/../tmp/..", "/var/tmp/../..", "/tmp/../{around}", "{link}", "{link}/"]
    )
    def test_finds_nothing_of_the_server_however_a_variable_spells_what_holds_it(
        self, apart: Bench, name: str, way: str
    ) -> None:
        (apart.state_dir / "secret").write_text("secret")
        link = Path("/tmp") / f"{apart.workdir.parent.name}-{os.getpid()}-around"
        link.symlink_to(apart.state_dir.parent)
        named = way.format(around=apart.state_dir.parent, link=link)
        secret = apart.state_dir / "secret"
        try:
            env = {"PATH": "/usr/bin:/bin"} | {name: f"{named}:/usr/bin:/bin" if name == "PATH" else named}
            apart.define("apart", f"cat {secret} {named}{secret} {named}/state/secret {link}/state/secret", env=env)
            apart.start("apart")
            apart.events(2)
        finally:
            link.unlink()
        assert apart.log("apart").count(b"No such file") == 4

    def test_finds_nothing_of_the_server_by_the_way_that_its_program_is_named(self, apart: Bench) -> None:
        (apart.state_dir / "secret").write_text("secret")
        end_of(apart, ("/tmp/../tmp/../tmp/../bin/sh", "-c", f"cat {apart.state_dir}/secret"))
        assert b"No such file" in apart.log("apart")

    def test_fills_no_memory_of_the_machine_where_the_server_keeps_its_state(self, apart: Bench) -> None:
        end_of(apart, f"touch {apart.state_dir}/x")
        assert b"Read-only file system" in apart.log("apart")

    @pytest.mark.parametrize("folder", ["/tmp", "/var/tmp"])
    def test_has_no_more_room_for_temporary_files_than_it_asked_for_memory(self, apart: Bench, folder: str) -> None:
        command = f"head -c 20M /dev/zero > {folder}/x; stat -c %s {folder}/x"
        apart.define("apart", command, role_amounts={"worker": Amounts(1000, 16)})
        apart.start("apart")
        apart.events(2)
        assert b"No space left on device" in apart.log("apart")
        assert apart.log("apart").decode().splitlines()[-1] == str(16 * 2**20)

    def test_has_shared_memory_of_its_own_as_large_as_its_memory_and_sees_what_it_names_there(
        self, apart: Bench, tmp_path: Path
    ) -> None:
        shared, own = Path("/dev/shm") / tmp_path.name, Path("/dev/shm") / f"{tmp_path.name}-own"
        (shared / "venv").mkdir(parents=True)
        (shared / "venv" / "marker").write_text("here\n")
        command = f"cat {shared}/venv/marker; head -c 20M /dev/zero > {own}; stat -c %s {own}; ls {shared}"
        settings = {"role_amounts": {"worker": Amounts(1000, 16)}, "env": {"VIRTUAL_ENV": str(shared / "venv")}}
        try:
            apart.define("apart", command, own_shared_memory=True, **settings)
            (shared / "of-another").touch()
            apart.start("apart")
            apart.events(2)
        finally:
            shutil.rmtree(shared)
        assert b"No space left on device" in apart.log("apart")
        lines = apart.log("apart").decode().splitlines()
        assert [line for line in lines if ":" not in line] == ["here", str(16 * 2**20), "venv"]
        assert not own.exists()

    def test_reads_its_virtual_environment_through_links_to_it(self, apart: Bench, tmp_path: Path) -> None:
        environment = tmp_path / "real" / "venv"
        environment.mkdir(parents=True)
        (environment / "marker").write_text("here\n")
        (tmp_path / "link").symlink_to("real")
        env = {"VIRTUAL_ENV": str(tmp_path / "link" / "venv")}
        apart.define("apart", "cat $VIRTUAL_ENV/marker", env=env)
        apart.start("apart")
        apart.events(2)
        assert apart.log("apart").startswith(b"here\n")

    def test_has_a_directory_for_temporary_files_of_its_own(self, apart: Bench, tmp_path: Path) -> None:
        outside = Path("/tmp") / f"{tmp_path.name}-{os.getpid()}-outside"
        outside.write_text("")
        try:
            end_of(apart, f"test ! -e {outside} && touch /tmp/left-behind-{outside.name} && echo apart")
        finally:
            outside.unlink()
        assert apart.log("apart") == b"apart\n"
        assert not Path(f"/tmp/left-behind-{outside.name}").exists()

    def test_finds_nothing_of_the_server_nor_of_other_jobs(self, apart: Bench) -> None:
        end_of(apart, "echo secret", job="other")
        end_of(apart, f"ls -A {apart.state_dir}; cat {apart.state_dir}/jobs/other/attempt-1/task-0.log")
        assert b"secret" not in apart.log("apart")
        assert apart.log("apart").startswith(b"cat: ")

    def test_works_in_its_own_directory_even_inside_the_state_directory(self, apart: Bench) -> None:
        own = apart.state_dir / "jobs" / "apart" / "work"
        own.mkdir(parents=True)
        apart.define("apart", "pwd; echo kept > result", workdir=own)
        apart.start("apart")
        apart.events(2)
        assert apart.log("apart").decode() == f"{own}\n"
        assert (own / "result").read_text() == "kept\n"

    def test_does_not_see_the_state_directory_through_a_working_directory_around_it(self, apart: Bench) -> None:
        apart.define("apart", f"ls -A {apart.state_dir.name} | wc -l", workdir=apart.state_dir.parent)
        apart.start("apart")
        apart.events(2)
        assert apart.log("apart") == b"0\n"

    def test_has_temporary_files_of_its_own_even_where_it_works_above_them(self, apart: Bench, tmp_path: Path) -> None:
        (tmp_path / "outside").write_text("")
        apart.define("apart", f"test ! -e {tmp_path}/outside && echo apart", workdir=Path("/"))
        apart.start("apart")
        apart.events(2)
        assert apart.log("apart") == b"apart\n"

    def test_reads_its_virtual_environment_wherever_it_lies(self, apart: Bench, tmp_path: Path) -> None:
        environment = tmp_path / "venv"
        environment.mkdir()
        (environment / "marker").write_text("here\n")
        apart.define("apart", "cat $VIRTUAL_ENV/marker; touch $VIRTUAL_ENV/x", env={"VIRTUAL_ENV": str(environment)})
        apart.start("apart")
        apart.events(2)
        assert apart.log("apart").startswith(b"here\n")
        assert not (environment / "x").exists()

    @pytest.mark.parametrize("line", ["{} one", "exec {} one", "  {};true"])
    def test_finds_the_program_that_begins_its_line_wherever_it_lies(
        self, apart: Bench, tmp_path: Path, line: str
    ) -> None:
        program = tmp_path / "tool" / "bin" / "say"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/tool/word\n")
        program.chmod(0o755)
        (tmp_path / "tool" / "word").write_text("said\n")
        end_of(apart, line.format(program))
        assert apart.log("apart") == b"said\n"

    def test_writes_in_its_working_directory_even_beside_its_program(self, apart: Bench) -> None:
        program = apart.workdir / "scripts" / "run"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\ntouch scripts/made && echo made\n")
        program.chmod(0o755)
        apart.define("apart", f"{program}", env={"VIRTUAL_ENV": str(program.parent)})
        apart.start("apart")
        apart.events(2)
        assert apart.log("apart") == b"made\n"
        assert (program.parent / "made").exists()

    def test_finds_the_millpond_of_the_server_wherever_that_lies(
        self, apart: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "src" / "millpond"
        package.mkdir(parents=True)
        (package / "marker").write_text("here\n")
        monkeypatch.setattr(start_planner, "own_installation", lambda: (package,))
        end_of(apart, f"cat {package}/marker; touch {package}/x")
        assert apart.log("apart").startswith(b"here\n")
        assert not (package / "x").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="other accounts have no such rights to lose")
    def test_of_root_has_no_right_to_set_the_clock_of_all_or_to_change_their_kernel(self, apart: Bench) -> None:
        end_of(apart, "sh -c 'grep -E \"Cap(Prm|Eff)\" /proc/self/status'")
        held = [int(line.split()[1], 16) for line in apart.log("apart").decode().splitlines()]
        time_, boot, module = 1 << 25, 1 << 22, 1 << 16
        assert [rights & (time_ | boot | module) for rights in held] == [0, 0]
        assert all(held), "it keeps the others"

    @pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
    def test_ends_with_its_own_exit_code(self, apart: Bench, command: str, code: int) -> None:
        end = end_of(apart, command)
        assert (end.outcome, end.exit_code) == (Outcome.USER_ERROR, code)

    def test_hears_the_notice_and_ends_by_itself(self, apart: Bench) -> None:
        script = (
            "import signal,sys,time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nopen('up','w')\n"
            "while True: time.sleep(0.05)"  # as pause() would miss a signal that comes just before it
        )
        apart.start("apart", (sys.executable, "-c", script))
        apart.events(1)
        assert apart.appears("up")
        apart.stop("apart", grace_s=60.0)
        _, end = apart.events(2)
        assert isinstance(end, Ended)
        assert (end.outcome, end.exit_code, end.detail) == (Outcome.STOPPED, 0, "")

    def test_has_its_grace_below_the_shell_of_its_line(self, apart: Bench) -> None:
        script = (
            "import signal,sys,time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(open('saved','w').close()))\n"
            "open('up','w')\nwhile True: time.sleep(0.05)"
        )
        line = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)}; exit $?"
        apart.define("apart", line, checkpoint_signal="SIGUSR1")
        apart.start("apart")
        apart.events(1)
        assert apart.appears("up")
        apart.stop("apart", grace_s=60.0)
        _, end = apart.events(2)
        assert isinstance(end, Ended)
        assert (end.outcome, end.exit_code, (apart.workdir / "saved").exists()) == (Outcome.STOPPED, 0, True)

    @pytest.mark.parametrize("keep_s", [0.0, 60.0])
    def test_calls_the_handler_below_a_shell_that_dies_of_the_notice(self, apart: Bench, keep_s: float) -> None:
        script = (
            "import signal,sys,time\n"
            "def end(*_): time.sleep(0.3); open('handled', 'w').close(); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end)\nopen('up','w')\nwhile True: time.sleep(0.05)"
        )
        line = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} && touch after"
        apart.define("apart", line, keep_s=keep_s, workspace=Workspace("/blobs", "/datasets"))
        apart.start("apart")
        apart.events(1)
        assert apart.appears("up")
        apart.stop("apart", grace_s=60.0)
        _, end = apart.events(2)
        assert isinstance(end, Ended)
        assert (end.outcome, end.exit_code, end.detail) == (Outcome.STOPPED, 128 + signal.SIGTERM, "")
        assert [(apart.workdir / name).exists() for name in ("handled", "after")] == [True, False]

    def test_is_killed_with_everything_in_it_when_the_grace_is_over(self, apart: Bench) -> None:
        apart.start("apart", f"trap '' TERM; sleep {apart.own_sleep} & touch up; wait; sleep {apart.own_sleep}")
        apart.events(1)
        assert apart.appears("up")
        apart.stop("apart", grace_s=0.0)
        _, end = apart.events(2)
        assert isinstance(end, Ended)
        assert end.outcome is Outcome.STOPPED
        assert apart.nothing_runs_like(apart.own_sleep)

    def test_can_be_frozen_and_goes_on(self, apart: Bench) -> None:
        start = apart.start("apart", "touch up; while [ ! -e go ]; do sleep 0.01; done; echo went on")
        apart.events(1)
        assert apart.appears("up")
        apart.apply(Suspend(apart.next_id(), "apart", start.attempt, Cause.SUSPEND_REQUESTED, SuspendMode.FREEZE))
        apart.events(1)
        (apart.workdir / "go").touch()
        assert apart.quiet()
        apart.apply(Resume(apart.next_id(), "apart", start.attempt, Cause.RESUME_REQUESTED))
        (end,) = (event for event in apart.events(2) if isinstance(event, Ended))  # it may end before it is confirmed
        assert (end.outcome, apart.log("apart")) == (Outcome.SUCCESS, b"went on\n")

    @pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/no/such/program"])
    def test_whose_program_is_not_there_is_refused_as_without_a_sandbox(self, apart: Bench, program: str) -> None:
        apart.start("apart", (program,))
        (refused,) = apart.events(1)
        assert isinstance(refused, Refused)
        assert f"command {program!r} was not found" in refused.reason

    @pytest.mark.parametrize("pins", [False, True], ids=["spawned", "forked"])
    def test_hears_a_notice_that_came_while_its_sandbox_was_being_made(
        self, apart: Bench, tmp_path: Path, pins: bool
    ) -> None:
        slow, goes_on = tmp_path / "slow-bwrap", tmp_path / "goes-on"
        slow.write_text(  # as deaf as bubblewrap itself: shells clear the mask of signals
            f"#!{sys.executable}\nimport os, sys, time\n"
            f"while not os.path.exists({str(goes_on)!r}):\n    time.sleep(0.02)\n"
            f"os.execv({shutil.which('bwrap')!r}, sys.argv)\n"
        )
        slow.chmod(0o755)
        (tmp_path / "other").mkdir()
        bench = Bench(tmp_path / "other", Sandbox(str(slow), (tmp_path / "other" / "state",)))
        bench.limiter = Limiter(trouble="none here", pins=pins)
        bench.restart()
        try:
            bench.define("apart", ("sleep", "600"), role_amounts={"worker": Amounts(1000, 512)})
            bench.start("apart")
            assert isinstance(bench.events(1)[0], Confirmed)
            bench.stop("apart", grace_s=600.0)
            eventually(lambda: noticed(bench))
            goes_on.touch()
            *_, end = bench.events(2)
        finally:
            bench.end_all()
        assert isinstance(end, Ended)
        assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 128 + signal.SIGTERM)

    def test_whose_directory_is_not_there_is_refused_as_without_a_sandbox(self, apart: Bench) -> None:
        apart.define("apart", "true", workdir=Path("/no/such/directory"))
        apart.start("apart")
        (refused,) = apart.events(1)
        assert isinstance(refused, Refused)
        assert "working directory '/no/such/directory'" in refused.reason


@needs_bubblewrap
@pytest.mark.end_to_end
class TestATaskInAnAccountThatIsAnothers:
    @pytest.fixture
    def account(self, apart: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SharedAccount:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / ".profile").write_text("the owner's\n")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        return shared_account("eve", apart.state_dir)

    def log_of(self, bench: Bench, account: SharedAccount, script: str, **settings: object) -> str:
        bench.define("apart", script, account=account, **settings)
        bench.start("apart")
        bench.events(2)
        return bench.log("apart").decode()

    def test_finds_its_own_home_in_place_of_the_owners(
        self, apart: Bench, account: SharedAccount, tmp_path: Path
    ) -> None:
        script = f"echo $HOME; echo mine > $HOME/note; cat {tmp_path}/home/.profile; echo x > {tmp_path}/home/planted"
        log = self.log_of(apart, account, script)
        assert log.splitlines()[0] == str(apart.state_dir / "homes" / "eve")
        assert "the owner's" not in log
        assert (apart.state_dir / "homes" / "eve" / "note").read_text() == "mine\n"
        assert not (tmp_path / "home" / "planted").exists()

    def test_writes_neither_to_what_is_installed_nor_where_it_works(self, apart: Bench, account: SharedAccount) -> None:
        program = Path(sys.prefix) / "planted"
        log = self.log_of(apart, account, f"touch {program}; touch here; touch /var/lib/planted; touch /tmp/own")
        assert log.count("Read-only file system") == 3
        assert len(log.splitlines()) == 3
        assert not program.exists()

    def test_runs_what_is_installed_even_in_the_owners_home(
        self, apart: Bench, account: SharedAccount, tmp_path: Path
    ) -> None:
        tool = tmp_path / "home" / "tools" / "tool"
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\necho installed\n")
        tool.chmod(0o755)
        account = replace(account, installed=(tool.parent,))
        assert self.log_of(apart, account, f"{tool}; touch {tool}").splitlines()[0] == "installed"

    def test_shares_no_memory_with_others(self, apart: Bench, account: SharedAccount, tmp_path: Path) -> None:
        shared = Path("/dev/shm") / tmp_path.name
        shared.write_text("of another")
        try:
            log = self.log_of(apart, account, f"cat {shared}; ls -A /dev/shm | wc -l")
        finally:
            shared.unlink()
        assert "of another" not in log
        assert log.splitlines()[-1] == "0"

    def test_has_no_more_shared_memory_than_it_asked_for_memory(self, apart: Bench, account: SharedAccount) -> None:
        script = "head -c 20M /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x"
        log = self.log_of(apart, account, script, role_amounts={"worker": Amounts(1000, 16)})
        assert "No space left on device" in log
        assert log.splitlines()[-1] == str(16 * 2**20)

    def test_reaches_no_service_that_would_give_it_more(
        self, apart: Bench, account: SharedAccount, tmp_path: Path
    ) -> None:
        powerful = tmp_path / "docker.sock"
        powerful.write_text("of the daemon")
        account = replace(account, masked=(powerful,), installed=(tmp_path,))
        assert "of the daemon" not in self.log_of(apart, account, f"cat {powerful}")


class TestLookingForASandbox:
    @pytest.fixture
    def bwrap(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A stand-in for bubblewrap, the first on the path."""
        program = tmp_path / "bin" / "bwrap"
        program.parent.mkdir()
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return program

    def script(self, program: Path, body: str) -> None:
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def test_one_that_works_is_used(self, bwrap: Path, tmp_path: Path) -> None:
        self.script(bwrap, "exit 0")
        assert find_sandbox(SandboxMode.PREFERRED, (tmp_path,)) == (
            Sandbox(str(bwrap), (tmp_path.resolve(),), takes_open=False),
            "",
        )

    def test_one_that_cannot_bound_sizes_is_used_without(self, bwrap: Path) -> None:
        self.script(bwrap, 'case "$*" in *--size*) echo "bwrap: Unknown option --size" >&2; exit 1;; esac')
        sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, ())
        assert (sandbox, trouble) == (Sandbox(str(bwrap), (), bounds_size=False, takes_open=False), "")
        assert "--size" not in sandbox.around(["true"], SandboxRequest(memory_mib=64))

    def test_one_that_this_kernel_refuses_is_not_used_and_the_reason_told(self, bwrap: Path) -> None:
        self.script(bwrap, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
        found, trouble = find_sandbox(SandboxMode.PREFERRED, ())
        assert found is None
        assert trouble.endswith("does not work on this kernel: bwrap: No permissions to create new namespace")

    def test_one_that_is_required_and_missing_is_an_error_with_a_remedy(self, bwrap: Path, monkeypatch) -> None:
        monkeypatch.setenv("PATH", str(bwrap.parent))
        with pytest.raises(UnavailableError, match="bubblewrap is not installed") as raised:
            find_sandbox(SandboxMode.REQUIRED, ())
        assert "apt install bubblewrap" in raised.value.remedy

    def test_none_is_looked_for_when_it_is_switched_off(self, bwrap: Path) -> None:
        self.script(bwrap, "touch looked-for")
        assert find_sandbox(SandboxMode.OFF, ()) == (None, "switched off")
        assert not Path("looked-for").exists()


@needs_bubblewrap
@pytest.mark.end_to_end
def test_a_sandboxed_task_has_its_files_reads_its_data_and_sees_nothing_more(apart: Bench, tmp_path: Path) -> None:
    content = b"one\n"
    entry = {"path": "a", "digest": hashlib.sha256(content).hexdigest(), "size": 4, "executable": False}
    listed = json.dumps({"files": [entry], "links": []}).encode()
    snapshot = hashlib.sha256(listed).hexdigest()
    blobs, host = apart.state_dir / "blobs", tmp_path / "host"
    host.mkdir()
    (host / "b").write_text("two\n")
    for data in (content, listed):
        path = blob_path(blobs, hashlib.sha256(data).hexdigest())
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    mounts = (DataMount("set", snapshot=snapshot), DataMount("host", path=str(host)))
    workspace = Workspace(str(blobs), str(apart.state_dir / "datasets"), snapshot, data=mounts)
    script = (
        "cat a $MILLPOND_DATA_SET/a $MILLPOND_DATA_HOST/b; echo x 2>&- > $MILLPOND_DATA_HOST/b; "
        f"echo x 2>&- > $MILLPOND_DATA_SET/a; echo y > $MILLPOND_OUTPUT/c; ls {apart.state_dir}"
    )
    apart.define("apart", f"exec 2>/dev/null; {script}", workspace=workspace)
    apart.start("apart")
    apart.events(2)
    assert apart.log("apart").decode() == "one\none\ntwo\ndatasets\njobs\n"
    assert (host / "b").read_text() == "two\n"
    assert (apart.state_dir / "jobs/apart/attempt-1/files/output/c").read_text() == "y\n"
