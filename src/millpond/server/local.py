"""The local engine as this server uses it: which nodes it has, and what its jobs execute."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from millpond.engines.local.engine import EngineOptions, LocalEngine
from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.model.workloads import CheckpointMode
from millpond.node.devices.fake import VENDOR, FakeVendor
from millpond.node.launch import LaunchSpec
from millpond.node.machine import Machine, describe_machine
from millpond.node.records import attempt_dir
from millpond.node.runner import running_under
from millpond.server.files.service import Files
from millpond.server.store.store import Store
from millpond.specs.cluster import ClusterConfig
from millpond.specs.job import check_job


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


def make_engine(machine: Machine, state_dir: Path, store: Store, files: Files, options: EngineOptions) -> LocalEngine:
    """The engine, which runs what the store knows of each job."""
    return LocalEngine(machine, state_dir, lambda job: launch_of(job, store, files, state_dir), options)


def launch_of(job: str, store: Store, files: Files, state_dir: Path) -> LaunchSpec:
    """What a job executes, from the job file it was submitted with.

    Raises:
        NotFoundError: there is no such job, or no more a dataset that it reads.
        InvalidInputError: this version no longer understands its file, or it may no longer have the data it names.
    """
    document = store.document(job)
    if document is None:
        raise NotFoundError(f"no job {job!r}", "submit it again")
    spec = check_job(document)
    launch = spec.launch
    checkpoint = spec.to_job(job).checkpoint
    return LaunchSpec(
        command=next(iter(launch.commands.values())),
        workdir=Path(launch.workdir) if launch.workdir else _own_folder(job, state_dir),
        env=launch.env,
        checkpoint_signal=checkpoint.signal if checkpoint.mode is CheckpointMode.SIGNAL else "",
        role_commands=launch.commands,
        workspace=files.workspace(spec.file),
        serves=spec.file.serves,
    )


def _own_folder(job: str, state_dir: Path) -> Path:
    """A folder for a job that named none; all its attempts share it."""
    folder = attempt_dir(state_dir, job, 1).parent / "work"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
