"""The local engine as this server uses it: which nodes it has, what its jobs execute, what keeps them to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millpond.model.errors import InvalidInputError, NotFoundError, UnavailableError
from millpond.model.workloads import CheckpointMode
from millpond.node.cgroups import Amounts, GroupMode, find_controllers, open_for_groups
from millpond.node.devices.fake import VENDOR, FakeVendor
from millpond.node.launch import LaunchSpec
from millpond.node.limiting import REMEDY, Limiter
from millpond.node.machine import Machine, describe_machine
from millpond.node.records import attempt_dir
from millpond.node.runner import running_under
from millpond.server.files.service import Files
from millpond.server.isolation import Isolation
from millpond.server.provisions.admission import Provisions
from millpond.server.store.store import Store
from millpond.server.vault.secrets import Vault
from millpond.specs.cluster import ClusterConfig
from millpond.specs.confining import TaskRules
from millpond.specs.job import JobFile, RoleFile, check_job


def describe(fake_gpus: str, config: ClusterConfig, state_dir: Path) -> Machine:
    """This machine, or the pretended nodes that stand in for it.

    Raises:
        InvalidInputError: two nodes have one name, or ``fake_gpus`` cannot be read.
    """
    if not config.nodes:
        return describe_machine(fake_gpus, running_under(state_dir))
    nodes = (*config.nodes, *(describe_machine(fake_gpus).nodes if fake_gpus else ()))
    twice = [name for name, count in Counter(node.name for node in nodes).items() if count > 1]
    if twice:
        raise InvalidInputError(f"two nodes are called {twice[0]!r}", "rename the one in the configuration")
    cards = sum(len(node.devices) for node in nodes)
    return Machine(nodes, {VENDOR: FakeVendor(nodes)}, (f"{cards} fake GPUs on {len(nodes)} fake nodes",))


@dataclass(frozen=True, slots=True)
class Launcher:
    """Knows what jobs execute, and under which rules.

    Attributes:
        rules: gives what tasks are kept to besides what they ask for.
    """

    store: Store
    files: Files
    isolation: Isolation
    vault: Vault
    provisions: Provisions
    state_dir: Path
    rules: Callable[[], TaskRules] = TaskRules

    def launch_of(self, job: str) -> LaunchSpec:
        """What a job executes, from the job file it was submitted with.

        Raises:
            NotFoundError: there is no such job, or no more a dataset or a secret of its, or no account it is to run as.
            InvalidInputError: this version no longer understands its file, or it may no longer have the data it names.
            UnavailableError: it could not be kept apart from others, or a secret of its cannot be opened, or it runs in
                a container and nothing here runs containers any more.
        """
        submitted = self.store.submitted(job)
        if submitted is None:
            raise NotFoundError(f"no job {job!r}", "submit it again")
        spec = check_job(submitted.document)
        launch = spec.launch
        checkpoint = spec.to_job(job).checkpoint
        self.isolation.check(submitted.user)
        identity = self.isolation.identity_of(submitted.user)
        return LaunchSpec(
            command=next(iter(launch.commands.values())),
            workdir=Path(launch.workdir) if launch.workdir else _own_folder(job, self.state_dir),
            env={**launch.env, **self.vault.environment(submitted.user, submitted.group, spec.file.secrets)},
            checkpoint_signal=checkpoint.signal if checkpoint.mode is CheckpointMode.SIGNAL else "",
            role_commands=launch.commands,
            workspace=self.files.workspace(spec.file),
            serves=spec.file.serves,
            role_amounts={role.name: self._amounts(role) for role in spec.file.all_roles()},
            said_memory=frozenset(role.name for role in spec.file.all_roles() if _said_memory(spec.file, role)),
            identity=identity,
            container=self.provisions.launch(spec.file, identity),
        )

    def _amounts(self, role: RoleFile) -> Amounts:
        rules = self.rules()
        return Amounts(role.cpus or 0, role.memory or 0, rules.processes, rules.cpu_is_bound)


def _said_memory(file: JobFile, role: RoleFile) -> bool:
    """Whether a role named its memory, and uses no cards."""
    written = next((each for each in file.roles or () if each.name == role.name), None)
    said = "memory" in file.model_fields_set or (written is not None and written.memory is not None)
    return said and (role.gpus is None or role.gpus.cards == 0)


def _own_folder(job: str, state_dir: Path) -> Path:
    """A folder for a job that named none; all its attempts share it."""
    folder = attempt_dir(state_dir, job, 1).parent / "work"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def make_limiter(mode: GroupMode, machine: Machine) -> Limiter:
    """What keeps tasks to their amounts on this machine; opens the server's control group for theirs where it may.

    Raises:
        UnavailableError: they are asked for, and cannot be had.
    """
    controllers, trouble = find_controllers(mode)
    if controllers is not None:
        try:
            open_for_groups(controllers)
        except OSError as error:
            controllers, trouble = None, f"the server's control group cannot be divided ({error.strerror})"
    if controllers is None and mode is GroupMode.ALWAYS:
        raise UnavailableError(f"tasks cannot have control groups: {trouble}", "use --control-groups auto")
    return Limiter(controllers, trouble, pins=VENDOR not in machine.vendors)


def unlimited_text(limiter: Limiter) -> str:
    """Why all processes of a task together are not kept to its amounts, and what would mend it; empty when they are."""
    return f"{limiter.trouble}; {REMEDY}" if limiter.trouble else ""
