"""What keeps real tasks to what they asked for, and whom they run as."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest
from local_bench import Bench, eventually

from millpond.model.confinement import Confinement, LimitKind, NetworkScope
from millpond.model.events import Confirmed, Ended
from millpond.model.states import Outcome
from millpond.node.host.cgroups import move, processes
from millpond.node.host.controllers import Amounts, Controllers, GroupMode, find_controllers
from millpond.node.host.device_filter import trouble
from millpond.node.host.identities import numbered
from millpond.node.sandbox.detection import SandboxMode, find_sandbox, trouble_with_identities
from millpond.node.task.limits import Limiter
from millpond.node.task.records import TaskFiles, TaskId, read_record
from millpond.node.task.workspace import DataMount, Workspace, blob_path

pytestmark = pytest.mark.end_to_end

NUMBER = 265_001
HUNGRY = "import sys; data = bytearray(200 * 2**20); print(len(data))"


@pytest.fixture
def controllers() -> Controllers:
    """Where this account may make control groups, below its own."""
    found, trouble = find_controllers(GroupMode.ALWAYS)
    if found is None or any(version == 2 for version, _ in found.folders.values()):
        pytest.skip(f"no control groups to be tried here: {trouble or 'version 2 would move the tests themselves'}")
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.end_all()


def with_limits(bench: Bench, limiter: Limiter) -> None:
    bench.limiter = limiter
    bench.restart()


def end_of(bench: Bench, command: str | tuple[str, ...], **settings: object) -> tuple[Confirmed, Ended]:
    bench.define("j", command, **settings)
    bench.start("j")
    confirmed, end = bench.events(2)
    assert isinstance(confirmed, Confirmed)
    assert isinstance(end, Ended)
    return confirmed, end


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can enter, which pytest's own are not."""
    with TemporaryDirectory(prefix="confinement-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def own_group() -> Iterator[Controllers]:
    """A control group of version 2 for tasks, as a server has one where the kernel has only these."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    above = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    found = Controllers({} if above is None else {"memory": (2, above / f"millpond-test-{os.getpid()}")})
    if above is None or os.geteuid() != 0 or trouble(above):
        pytest.skip(f"no task can be kept off devices here: {'no cgroup2' if above is None else trouble(above)}")
    assert found.leaf is not None
    found.leaf.mkdir(parents=True)
    yield found
    for pid in processes(found.leaf):  # what starts tasks, which the engine ends when it is closed
        move(pid, above)
    found.leaf.rmdir()
    found.leaf.parent.rmdir()


class TestCardsOfOthers:
    NUMBERS: ClassVar = {"FAKE-fake-1-0": (1, 5), "another": (1, 9)}
    """Of files that every machine has in place of cards: ``/dev/zero`` and ``/dev/urandom``."""
    OPEN = "for each in zero urandom null; do head -c 1 /dev/$each >/dev/null 2>&1 && echo $each; done; :"

    def test_a_task_opens_its_own_cards_and_no_others(self, bench: Bench, own_group: Controllers) -> None:
        with_limits(bench, Limiter(own_group, cards=self.NUMBERS))
        end_of(bench, self.OPEN, role_amounts={"worker": Amounts(0, 0)}, is_alone=True)
        assert bench.log("j").split() == [b"zero", b"null"]

    def test_the_tasks_of_a_gang_reach_into_each_others_cards(self, bench: Bench, own_group: Controllers) -> None:
        with_limits(bench, Limiter(own_group, cards=self.NUMBERS))
        end_of(bench, self.OPEN, role_amounts={"worker": Amounts(0, 0)})
        assert bench.log("j").split() == [b"zero", b"urandom", b"null"]


class TestWithControlGroups:
    def test_a_task_that_wants_more_memory_than_it_asked_for_ends_and_is_told_so(
        self, bench: Bench, controllers: Controllers
    ) -> None:
        with_limits(bench, Limiter(controllers))
        command = ("sh", "-c", f'python3 -c "{HUNGRY}"; exit 7')  # whatever its main process makes of it
        confirmed, end = end_of(bench, command, role_amounts={"worker": Amounts(1000, 64)})
        assert confirmed.confinement == Confinement(False, LimitKind.CONTROL_GROUP, network=NetworkScope.HOST)
        assert (end.outcome, end.exit_code) == (Outcome.OUT_OF_MEMORY, 7)
        assert "more than the 64 MiB of memory that it asked for" in end.detail

    def test_the_groups_of_a_task_are_gone_with_it(self, bench: Bench, controllers: Controllers) -> None:
        with_limits(bench, Limiter(controllers))
        end_of(bench, "cat /proc/self/cgroup", role_amounts={"worker": Amounts(500, 64, 50)})
        assert "millpond-" in bench.log("j").decode()
        record = read_record(TaskFiles.of(bench.state_dir, TaskId("j", 1, 0)))
        assert record is not None
        assert len(record.groups) == len(controllers.folders)
        assert not any(Path(folder).exists() for folder in record.groups)

    def test_a_task_that_forks_without_end_meets_its_bound_and_leaves_nothing(
        self, bench: Bench, controllers: Controllers
    ) -> None:
        if "pids" not in controllers.folders:
            pytest.skip("the number of processes cannot be bounded here")
        with_limits(bench, Limiter(controllers))
        script = f"for i in $(seq 60); do sleep {bench.own_sleep} & done; wait"
        _, end = end_of(bench, script, role_amounts={"worker": Amounts(500, 0, 20)})
        assert end.outcome is Outcome.USER_ERROR
        assert b"fork" in bench.log("j").lower()
        assert bench.nothing_runs_like(bench.own_sleep)

    def test_what_is_left_in_the_groups_of_a_killed_supervisor_ends_with_it(
        self, bench: Bench, controllers: Controllers
    ) -> None:
        with_limits(bench, Limiter(controllers))
        bench.define("j", "echo $$ > pid; exec sleep 4712", role_amounts={"worker": Amounts(500, 64)})
        bench.start("j")
        pid = bench.pid_in("pid")
        record = read_record(TaskFiles.of(bench.state_dir, TaskId("j", 1, 0)))
        assert record is not None
        os.kill(record.supervisor_pid, 9)
        bench.events(2)
        assert bench.gone(pid)
        assert eventually(lambda: not any(Path(folder).exists() for folder in record.groups))


class TestWithoutControlGroups:
    def test_a_process_that_wants_more_than_its_task_named_is_refused_the_memory(self, bench: Bench) -> None:
        with_limits(bench, Limiter(trouble="none here"))
        command = ("python3", "-c", HUNGRY)
        amounts = {"worker": Amounts(1000, 64)}
        confirmed, end = end_of(bench, command, role_amounts=amounts, said_memory=frozenset({"worker"}))
        assert confirmed.confinement.limits is LimitKind.PROCESS
        assert end.outcome is Outcome.USER_ERROR
        assert b"MemoryError" in bench.log("j")

    def test_memory_that_a_task_did_not_name_is_no_bound(self, bench: Bench) -> None:
        with_limits(bench, Limiter(trouble="none here"))
        _, end = end_of(bench, ("python3", "-c", HUNGRY), role_amounts={"worker": Amounts(1000, 64)})
        assert end.outcome is Outcome.SUCCESS

    def test_all_tasks_of_an_account_have_a_bound_on_processes_together(self, bench: Bench) -> None:
        bench.restart()
        end_of(bench, "grep -i '^max processes' /proc/self/limits", role_amounts={"worker": Amounts(1000, 0, 2000)})
        *_, soft, hard, _ = bench.log("j").decode().split()
        assert soft == hard
        assert int(soft) <= 2000 * (os.cpu_count() or 1)

    @pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one CPU")
    def test_tasks_are_pinned_to_as_many_cpus_as_they_asked_for_and_not_all_to_the_same(self, bench: Bench) -> None:
        with_limits(bench, Limiter(trouble="none here", pins=True))
        script = "python3 -c 'import os; print(*os.sched_getaffinity(0))' > cpu-$MILLPOND_TASK; sleep 4713"
        bench.define("j", script, role_amounts={"worker": Amounts(1000, 64)})
        bench.start("j", tasks=(0, 1))
        assert bench.appears("cpu-0")
        assert bench.appears("cpu-1")
        assert eventually(lambda: all((bench.workdir / f"cpu-{n}").read_text().strip() for n in (0, 1)))
        pinned = [(bench.workdir / f"cpu-{number}").read_text().split() for number in (0, 1)]
        assert [len(cpus) for cpus in pinned] == [1, 1]
        assert pinned[0] != pinned[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start tasks as others")
class TestAsSomebodyElse:
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (tmp_path / "state",))
        trouble = trouble if sandbox is None else trouble_with_identities(sandbox)
        if trouble:
            pytest.skip(f"tasks cannot run as others here: {trouble}")
        bench = Bench(tmp_path, sandbox)
        yield bench
        bench.end_all()

    def test_a_user_that_forks_without_end_meets_the_bound_and_others_go_on(self, bench: Bench) -> None:
        other = {**self.settings(bench), "identity": numbered("max", NUMBER + 1, bench.state_dir)}
        bench.define("other", "echo up; while [ ! -e $HOME/go ]; do sleep 0.05; done; sh -c 'echo forked'", **other)
        bench.start("other")
        bench.events(1)
        cpus = os.cpu_count() or 1
        script = f"for i in $(seq {16 * cpus + 8}); do sleep {bench.own_sleep} & done; wait"
        bench.define("bomb", script, role_amounts={"worker": Amounts(500, 0, 16)}, **self.settings(bench))
        bench.start("bomb")
        bench.events(1)
        assert eventually(lambda: b"fork" in bench.log("bomb").lower())
        (bench.state_dir / "homes" / "max" / "go").touch()
        assert eventually(lambda: bench.log("other") == b"up\nforked\n")
        bench.stop("bomb", grace_s=0.0)
        assert bench.nothing_runs_like(bench.own_sleep)

    def settings(self, bench: Bench) -> dict[str, object]:
        blobs = bench.state_dir / "blobs"
        workspace = Workspace(str(blobs), str(bench.state_dir / "datasets"))
        workdir = bench.state_dir / "jobs" / "j" / "work"
        workdir.mkdir(parents=True, exist_ok=True)
        identity = numbered("mia", NUMBER, bench.state_dir)
        return {"identity": identity, "workspace": workspace, "workdir": workdir}

    def test_a_task_runs_under_its_users_number_with_a_home_and_an_output_of_its_own(self, bench: Bench) -> None:
        script = (
            "id -u; id -G; echo $USER $HOME; umask 077; touch /tmp/x; echo kept > $HOME/note; "
            "echo result > $MILLPOND_OUTPUT/result; touch here; echo again >> /dev/stdout; "
            "grep -i '^cap[epb]' /proc/self/status"
        )
        _, end = end_of(bench, script, **self.settings(bench))
        lines = bench.log("j").decode().splitlines()
        assert end.outcome is Outcome.SUCCESS, lines
        assert lines[:2] == [str(NUMBER), str(NUMBER)]
        assert lines[2] == f"mia {bench.state_dir}/homes/mia"
        assert lines[3] == "again"
        assert {line.split()[1] for line in lines[4:]} == {"0" * 16}
        output = bench.state_dir / "jobs/j/attempt-1/files/output/result"
        assert (output.read_text(), output.stat().st_uid) == ("result\n", NUMBER)
        assert (bench.state_dir / "jobs/j/work/here").stat().st_uid == NUMBER
        assert (bench.state_dir / "homes/mia/note").stat().st_uid == NUMBER

    def test_it_reads_neither_what_belongs_to_root_nor_the_home_of_another(self, bench: Bench, tmp_path: Path) -> None:
        numbered("max", NUMBER + 1, bench.state_dir)
        (bench.state_dir / "homes/max/secret").write_text("of max")
        mine = Path("/var/lib") / f"{tmp_path.name}-{os.getpid()}-of-root"
        mine.write_text("of root")
        mine.chmod(0o600)
        try:
            script = f"cat {mine}; cat {bench.state_dir}/homes/max/secret; cat {bench.state_dir}/token; touch /etc/x"
            end_of(bench, script, **self.settings(bench))
        finally:
            mine.unlink()
        log = bench.log("j").decode()
        assert "of root" not in log
        assert "of max" not in log
        assert "Permission denied" in log

    def test_no_program_of_its_path_makes_its_sandbox(self, bench: Bench, folder: Path) -> None:
        for name in ("setpriv", "env", "sh"):
            (folder / name).write_text(f'#!/bin/bash\nid -u >> {folder}/run-by; exec /usr/bin/{name} "$@"\n')
            (folder / name).chmod(0o755)
        (folder / "run-by").touch()
        env = {"PATH": f"{folder}:/usr/bin:/bin"}
        _, end = end_of(bench, ("/bin/true",), **(self.settings(bench) | {"env": env, "workdir": Path("/")}))
        assert end.outcome is Outcome.SUCCESS, bench.log("j")
        assert (folder / "run-by").read_text() == ""

    def test_it_works_in_no_folder_that_its_user_could_not_enter_whether_it_is_there_or_not(
        self, bench: Bench, folder: Path
    ) -> None:
        closed = folder / "closed"
        (closed / "inner").mkdir(parents=True)
        closed.chmod(0o700)
        (folder / "link").symlink_to(closed / "inner")
        (closed / "inner" / "program").write_text("#!/bin/sh\n")
        (closed / "inner" / "program").chmod(0o755)
        reasons = []
        for number, where in enumerate((closed / "inner", closed / "missing", folder / "link")):
            settings = self.settings(bench) | {"workdir": where}
            bench.define(f"j{number}", ("./program",), **settings)
            bench.start(f"j{number}")
            (refused,) = bench.events(1)
            reasons.append(refused.reason.replace(str(where), "HERE"))  # type: ignore[attr-defined]
        assert "'HERE'" in reasons[0]
        assert "Permission denied" in reasons[0]
        assert reasons == [reasons[0]] * 3

    def test_its_sandbox_shows_nothing_that_its_user_could_not_get_to(self, bench: Bench, folder: Path) -> None:
        for below in ("closed/inner", "open/bin"):
            (folder / below).mkdir(parents=True)
        (folder / "closed/inner/file").write_text("of root")
        (folder / "open/bin/file").write_text("of all")
        (folder / "laid-since").symlink_to(folder / "closed/inner")
        (folder / "closed").chmod(0o700)
        settings = self.settings(bench) | {"workdir": Path("/")}
        env = {"PATH": f"{folder}/open/bin:{folder}/closed/inner:{folder}/laid-since:/usr/bin:/bin"}
        end_of(bench, f"cat {folder}/*/bin/file {folder}/*/inner/file {folder}/*/file", **settings | {"env": env})
        assert b"of all" in bench.log("j")
        assert b"of root" not in bench.log("j")
        for data in (folder / "laid-since", folder / "closed/inner"):
            workspace = Workspace(str(bench.state_dir / "blobs"), "", data=(DataMount("set", path=str(data)),))
            bench.define(data.name, "cat $MILLPOND_DATA_SET/file", **settings | {"workspace": workspace})
            bench.start(data.name)
            (refused,) = bench.events(1)
            assert "Permission denied" in refused.reason  # type: ignore[attr-defined]

    def test_it_reads_its_dataset_which_the_machines_other_accounts_do_not(self, bench: Bench) -> None:
        blobs, datasets = bench.state_dir / "blobs", bench.state_dir / "datasets"
        content = b"a picture"
        entries = [{"path": "deep/a", "digest": hashlib.sha256(content).hexdigest(), "size": 9, "executable": False}]
        snapshot = json.dumps({"files": entries, "links": []}).encode()
        for data in (content, snapshot):
            path = blob_path(blobs, hashlib.sha256(data).hexdigest())
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        mount = DataMount("set", snapshot=hashlib.sha256(snapshot).hexdigest())
        workspace = Workspace(str(blobs), str(datasets), data=(mount,))
        _, end = end_of(bench, "cat $MILLPOND_DATA_SET/deep/a", **self.settings(bench) | {"workspace": workspace})
        assert (end.outcome, bench.log("j")) == (Outcome.SUCCESS, content)
        assert datasets.stat().st_mode & 0o077 == 0

    def test_a_file_to_which_its_program_gave_another_name_stays_whose_it_is(self, bench: Bench) -> None:
        settings = self.settings(bench)
        of_root, place = bench.state_dir / "of-root", settings["workdir"]
        of_root.touch()
        (place / "name").hardlink_to(of_root)  # type: ignore[operator]
        (place / "plain").touch()  # type: ignore[operator]
        (place / "link").symlink_to(of_root)  # type: ignore[operator]
        end_of(bench, "true", **settings)
        assert of_root.stat().st_uid == 0
        assert {(place / name).lstat().st_uid for name in ("plain", "link")} == {NUMBER}  # type: ignore[operator]

    def test_it_works_in_its_home_and_through_no_link_there_in_a_folder_of_others(
        self, bench: Bench, folder: Path
    ) -> None:
        settings = self.settings(bench)
        home = bench.state_dir / "homes/mia"
        (home / "deep").mkdir()
        os.chown(home / "deep", NUMBER, NUMBER)
        (folder / "closed").mkdir(mode=0o700)
        (folder / "closed/file").write_text("of root")
        (home / "link").symlink_to(folder / "closed")
        _, end = end_of(bench, "touch here; pwd", **settings | {"workdir": home / "deep"})
        assert (end.outcome, bench.log("j")) == (Outcome.SUCCESS, f"{home}/deep\n".encode())
        bench.define("k", "cat file", **settings | {"workdir": home / "link"})
        bench.start("k")
        (refused,) = bench.events(1)
        assert "Permission denied" in refused.reason  # type: ignore[attr-defined]

    def test_a_folder_of_the_machine_is_made_for_its_output_with_its_own_rights_only(
        self, bench: Bench, folder: Path
    ) -> None:
        for_all, closed = folder / "for-all", folder / "closed"
        for made, mode in ((for_all, 0o1777), (closed, 0o755)):
            made.mkdir()
            made.chmod(mode)
        settings = self.settings(bench)
        workspace = Workspace(str(bench.state_dir / "blobs"), "", output=str(closed / "out"))
        bench.define("j", "true", workdir=Path("/"), identity=settings["identity"], workspace=workspace)
        bench.start("j")
        (refused,) = bench.events(1)
        assert "Permission denied" in refused.reason  # type: ignore[attr-defined]
        assert not (closed / "out").exists()
        workspace = Workspace(str(bench.state_dir / "blobs"), "", output=str(for_all / "out"))
        bench.define(
            "k", "echo x > $MILLPOND_OUTPUT/x", workdir=Path("/"), identity=settings["identity"], workspace=workspace
        )
        bench.start("k")
        bench.events(2)
        assert (for_all / "out" / "x").stat().st_uid == NUMBER
