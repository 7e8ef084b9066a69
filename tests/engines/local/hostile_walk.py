"""Jobs that want to see more than they may: paths, links, ``..``, variables and commands put together by chance.

Each case goes the way of a real job: what it names is checked as at submission and at launch, its order is made, and
what the supervisor would run is run. In the sandbox a program then tries every way to each secret that the case knows.
"""

from __future__ import annotations

import json
import os
import random
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from millpond.model.decisions import Placement
from millpond.model.errors import InvalidInputError
from millpond.node.host.identities import HOMES, numbered
from millpond.node.sandbox.detection import SandboxMode, find_sandbox
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import TaskFiles, TaskId
from millpond.node.task.start_plan import TaskStartPlan
from millpond.node.task.start_planner import TaskStart, plan_start
from millpond.node.task.task_start import TaskStartup
from millpond.node.task.workspace import DataMount, Workspace
from millpond.server.auth.isolation import Isolation, IsolationLevel
from millpond.server.storage.files.mounts import MountRules

CANARY: Final = "canary-5d1f"
NUMBER: Final = 265_003
SECRETS: Final = ("token", "millpond.sqlite", "homes/other/secret", "jobs/other/attempt-1/task-0.log")
TREES: Final = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")
STEERING: Final = ("LD_LIBRARY_PATH", "LD_AUDIT", "HOME", "TMPDIR", "BASH_ENV", "ENV", "GCONV_PATH", "PWD", "CDPATH")
READER: Final = r"""
exec > "$1" 2> /dev/null
canary=$2 secrets=$3 hidden=$4; shift 4
for way in $hidden; do echo planted > "$way/planted"; done
for way; do
    for secret in $secrets; do
        rest=$secret
        while [ -n "$rest" ]; do
            if read -r line < "$way/$rest"; then case $line in *$canary*) echo "read $way/$rest";; esac; fi
            case $rest in */*) rest=${rest#*/};; *) rest=;; esac
        done
    done
done
echo walked
"""
"""Tries each way to each secret, with as much of its path behind it as may be missing, and writes to what is hidden."""


@dataclass(slots=True)
class Case:
    """What one job names, the links that were laid for it, and which names were meant to lead to what is hidden."""

    env: dict[str, str] = field(default_factory=dict)
    program: str = "/bin/sh"
    workdir: str = "/"
    data: str = ""
    output: str = ""
    links: list[Path] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)

    @property
    def named(self) -> list[str]:
        """The places that it asks for."""
        return [self.workdir, self.data, self.output]

    @property
    def ways(self) -> list[str]:
        """Every place that it names."""
        named = [*self.named, str(Path(self.program).parent)]
        listed = [entry for value in self.env.values() for entry in value.split(":")]
        return [way for way in dict.fromkeys([*named, *listed, *map(str, self.links)]) if way]


class World:
    """A state directory with secrets of the server and of another user, and a user's project beside it."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder, self.mode, self.walked = folder, mode, 0
        self.home = folder / "srv"
        self.state = self.home / "state"
        self.project = folder / "project"
        self.links = folder / "links"
        for made in (self.project, self.links):
            made.mkdir(parents=True, exist_ok=True)
            made.chmod(0o777)
        shared = mode == "shared account"
        self.secrets = [self.state / name for name in SECRETS] + [self.home / ".ssh" / "id_ed25519"] * shared
        for secret in self.secrets:
            secret.parent.mkdir(parents=True, exist_ok=True)
            secret.write_text(f"{CANARY}\n")
            secret.chmod(0o666)  # that nothing but the sandbox keeps it
        for above in (self.state, *self.state.rglob("*")):
            if above.is_dir():
                above.chmod(0o777)
        self.sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (self.state,))
        assert self.sandbox is not None, trouble
        self.identity = numbered("eve", NUMBER, self.state) if mode == "identity" else None
        people = [SimpleNamespace(disabled=False, service=False)] * 2 * shared
        accounts: Any = SimpleNamespace(users=lambda: people)
        self.isolation = Isolation(IsolationLevel(SandboxMode.AUTO, self.sandbox), accounts, "ada", self.state)
        self.rules = MountRules(dict, self.state)

    def files(self) -> set[str]:
        """All that lies where the task may not write but for what is the walk's own."""
        hidden = self.home if self.mode == "shared account" else self.state
        own = (self.state / "jobs" / "mine", self.state / HOMES / "eve")
        return {str(path) for path in hidden.rglob("*") if not any(path.is_relative_to(place) for place in own)}

    def leaks_of(self, case: Case, number: int) -> list[str] | None:
        """What a case got that it must not have; None: it was refused."""
        before = self.files()
        named: Any = SimpleNamespace(named_paths=list(filter(None, case.named)), output=case.output or None, queue="q")
        try:
            self.isolation.check_paths(named, "eve", self.rules.is_listed)
            workdir = self.isolation.working_folder(case.workdir, "eve")
            data = (DataMount("d", str(self.rules.readable("q", case.data))),) if case.data else ()
            output = str(self.rules.writable("q", case.output)) if case.output else ""
        except InvalidInputError:
            return None
        task = TaskId("mine", number, 0)
        files = TaskFiles.of(self.state, task)
        (files.record.parent / "files").mkdir(parents=True)
        workspace = Workspace(str(self.state / "blobs"), str(self.state / "datasets"), data=data, output=output)
        account = self.isolation.account_of("eve")
        launch = LaunchSpec(
            (case.program, "-c", "true"), workdir, workspace=workspace, identity=self.identity, account=account
        )
        env = {"PATH": "/usr/bin:/bin", **case.env}
        plan = plan_start(self.state, TaskStart(task, 1, Placement(0, "worker", "n"), env), launch, self.sandbox)
        told = self._run(plan, files, case)
        self.walked += "walked" in told.splitlines()
        found = [line for line in told.splitlines() if line.startswith("read ")]
        return found + [f"planted {path}" for path in sorted(self.files() - before)]

    def _run(self, plan: TaskStartPlan, files: TaskFiles, case: Case) -> str:
        """What the case prints, started as its supervisor would; nothing where it cannot be started."""
        ways = [*case.ways, str(self.state), f"/proc/self/root{self.state}", "/proc/self/cwd"]
        secrets = " ".join(str(secret)[1:] for secret in self.secrets)
        hidden = " ".join([*case.hidden, str(self.state), f"/proc/self/root{self.state}"])
        assert plan.wrapped is not None
        before = plan.wrapped[: -len(plan.command)]
        report = files.record.parent / "files" / "report"
        reader = ["/bin/sh", "-c", READER, "sh", str(report), CANARY, secrets, hidden, *ways]
        return self.run(replace(plan, wrapped=[*before, *reader]), files)

    def run(self, plan: TaskStartPlan, files: TaskFiles) -> str:
        """What a task reports, started as its supervisor would; nothing where it cannot be started."""
        startup, report = TaskStartup(files.record, plan), files.record.parent / "files" / "report"
        heard = signal.signal(signal.SIGIO, signal.SIG_IGN)  # by which a supervisor hears of output
        try:
            os.waitpid(startup.start(), 0)
        except OSError:
            return ""
        finally:
            if startup.output is not None:
                startup.output.close()
            signal.signal(signal.SIGIO, heard)
        return report.read_text(errors="replace") if report.exists() else ""


def cases(world: World, seed: int, count: int) -> Iterator[Case]:
    """So many jobs; the same ones for the same seed."""
    chance = random.Random(seed)
    for number in range(count):
        case = Case(workdir=str(world.project))
        for name in chance.sample((*TREES, *STEERING), chance.randint(1, 4)):
            entries = [_spelled(world, case, chance, number) for _ in range(chance.randint(1, 3))]
            if name == "PATH":
                entries = [entry + chance.choice(("", "/bin", "/bin/")) for entry in entries]
            case.env[name] = ":".join([*entries, "/usr/bin", "/bin"])
        if chance.random() < 0.3:
            case.program = _spelled(world, case, chance, number) + chance.choice(("/sh", "/bin/sh", "/../bin/sh"))
        for named in ("workdir", "data", "output"):
            if chance.random() < 0.12:
                setattr(case, named, _spelled(world, case, chance, number))
        yield case
        for link in case.links:
            link.unlink(missing_ok=True)


def _spelled(world: World, case: Case, chance: random.Random, number: int) -> str:
    """One of many names of a place that holds a secret, lies beside one, or seems to."""
    other = world.state / "homes" / "other"
    target = chance.choice(
        (world.state, world.state.parent, world.folder, world.folder.parent, Path("/"), other, world.state / "jobs")
    )
    spelled = chance.choice((_plain, _dotted, _from_temporary, _linked, _linked, _through_proc, _from_project))
    name = spelled(world, case, chance, target) if number else str(target)
    if target.is_relative_to(world.state):
        case.hidden.append(name)
    return name


def _plain(world: World, case: Case, chance: random.Random, target: Path) -> str:
    return str(target) + chance.choice(("", "/", "/.", "//", "/./."))


def _dotted(world: World, case: Case, chance: random.Random, target: Path) -> str:
    name = chance.choice(("no-such-folder", "tmp", "usr", "proc"))
    return f"/{name}/../" * chance.randint(1, 3) + str(target).lstrip("/")


def _from_temporary(world: World, case: Case, chance: random.Random, target: Path) -> str:
    start = chance.choice(("/tmp/..", "/tmp/../tmp/..", "/tmp/../tmp/../tmp/..", "/var/tmp/../..", "/tmp/./.."))
    return start + str(target)


def _linked(world: World, case: Case, chance: random.Random, target: Path) -> str:
    """By a link, or a link to a link, in the private directories or in the project."""
    leads_to = str(target)
    for _ in range(chance.randint(1, 3)):
        folder = chance.choice((Path("/tmp"), Path("/var/tmp"), world.project, world.links))
        link = folder / f"{world.folder.name}-{len(case.links)}"
        link.symlink_to(os.path.relpath(leads_to, folder) if chance.random() < 0.5 else leads_to)
        case.links.append(link)
        leads_to = str(link)
    return leads_to + chance.choice(("", "", "/.", "/../" + target.name, "/srv", "/state", "/srv/state"))


def _through_proc(world: World, case: Case, chance: random.Random, target: Path) -> str:
    way = chance.choice(("/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../..", "/dev/fd/../root"))
    return way + str(target)


def _from_project(world: World, case: Case, chance: random.Random, target: Path) -> str:
    return f"{world.project}/{os.path.relpath(target, world.project)}"


def walk(folder: Path, count: int, seed: int, mode: str) -> dict[str, Any]:
    """How many cases ran and were refused, and what leaked."""
    world, leaks, refused = World(folder, mode), [], 0
    for number, case in enumerate(cases(world, seed, count)):
        found = world.leaks_of(case, number + 1)
        refused += found is None
        leaks += [f"case {number} of seed {seed}: {leak}: {case}" for leak in found or ()]
    return {"walked": world.walked, "refused": refused, "leaks": leaks}


def as_account(account: int, folder: Path, work: Callable[[], Any]) -> Any:
    """What some work in a folder returns as another account, which is not root's; only root can ask for it."""
    os.chown(folder, account, account)
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)  # whatever other tests of this process left there
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setgroups([])
            os.setresgid(account, account, account)
            os.setresuid(account, account, account)
            answer = {"found": work()}
        except BaseException:
            answer = {"trouble": traceback.format_exc()}
        os.write(tell, json.dumps(answer).encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as end:
        said = end.read()
    _, status = os.waitpid(pid, 0)
    assert said, f"the other account's process ended without a word (status {status})"
    answer = json.loads(said)
    assert "found" in answer, answer["trouble"]
    return answer["found"]
