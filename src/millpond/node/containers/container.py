"""One task in a container, as any runtime gets it, and what a runtime must be able to do.

What a task finds at a path outside a container, it finds at the same path inside: its working directory, its files, its
data. So no path that Millpond gives a program has to be translated. Everything else of the machine is not there.
"""

from __future__ import annotations

import hashlib
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from millpond.model.errors import InvalidInputError
from millpond.node.sandbox.sandbox import Mount

NAME_VARIABLE = "MILLPOND_CONTAINER"
"""Names a task's container to all processes in it."""

STATE_LABEL, JOB_LABEL = "millpond.state", "millpond.job"
"""Labels of a container: whose state directory it belongs to (``state_mark``), and its job's id."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container to be started.

    Attributes:
        name: no other container has it, nor ever had.
        image: identity or reference of an image that is on this machine.
        workdir: absolute; one of the mounts, or in one.
        variables: file with the task's environment, a ``NAME=value`` on each line (``variables_text``).
        scratch: folder of the task's own for what a runtime has to lay down.
        hidden: folders within a mount in which the container finds nothing, but for mounts within them.
        cards: UUIDs of the NVIDIA cards that it gets.
        memory_mib, cpu_milli: what it asked for; 0: nothing.
        processes: the most that it may have; 0: as the runtime has it.
        owner: numbers of user and group that it runs as; None: the image's.
        reads_input: the program that starts it passes its standard input on.
    """

    name: str
    image: str
    argv: Sequence[str]
    workdir: Path
    variables: Path
    scratch: Path
    labels: Mapping[str, str]
    mounts: Sequence[Mount] = ()
    hidden: Sequence[Path] = ()
    cards: Sequence[str] = ()
    memory_mib: int = 0
    cpu_milli: int = 0
    processes: int = 0
    owner: tuple[int, int] | None = None
    reads_input: bool = False


class Runtime(ABC):
    """A program that runs containers.

    Attributes:
        name: ``podman``, ``docker`` or ``apptainer``.
        program: its path.
        leads: the processes of its containers are below the program that starts them, not a daemon's.
        enters: commands beside a task are run by entering its namespaces, not by ``execute``.
    """

    name: ClassVar[str]
    program: str
    leads: ClassVar[bool] = True
    enters: ClassVar[bool] = False

    @property
    def as_caller(self) -> bool:
        """Whether its containers run with the uid that starts it, and with no other."""
        return False

    @abstractmethod
    def run(self, container: Container) -> list[str]:
        """Runs a container in the foreground and exits with its exit code."""

    @abstractmethod
    def try_out(self, image: str, mount: Mount, argv: Sequence[str]) -> list[str]:
        """Runs a program of an image that has nothing of the machine but one mount; leaves nothing."""

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """What the program itself must have in its environment for a container with these variables.

        Nothing by default: a job's variables must not speak to the program, which has the server's rights.
        """
        return {}

    def execute(self, name: str, variables: Path, workdir: Path) -> list[str]:
        """Begins a command beside the task of a running container; program and arguments come behind it."""
        return []

    def kill(self, name: str) -> list[str]:
        """Ends a container; empty where that follows from the end of its processes."""
        return []

    def was_out_of_memory(self, name: str) -> list[str]:
        """Prints ``true`` when the kernel ended the container for want of memory; empty where that is not known."""
        return []

    def end_of(self, name: str) -> list[str]:
        """Prints when a container ended, as a JSON string; empty where nothing is left behind."""
        return []

    def remove(self, name: str) -> list[str]:
        """Drops what is left of a container; empty where nothing is."""
        return []

    def running(self, state: str) -> list[str]:
        """Prints the names of the containers with this mark that run, as far as the program knows; empty as below."""
        return []

    def ended(self, state: str) -> list[str]:
        """Prints the names of the containers with this mark that do not run; empty where none is left behind."""
        return []


def ask(command: Sequence[str], env: Mapping[str, str], within_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program of a runtime that answers soon, and collect what it prints.

    Raises:
        OSError, subprocess.TimeoutExpired: it does not run, or does not answer in time.
    """
    return subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=within_s,
        check=False,
    )


def container_name(record: Path, decision: int) -> str:
    """The name of the container of a task, by its record and the decision that starts it."""
    return f"millpond-{hashlib.sha256(f'{record}@{decision}'.encode()).hexdigest()[:24]}"


def state_mark(state_dir: Path) -> str:
    """Distinguishes the containers of one state directory from those of another."""
    return hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:24]


def variables_text(variables: Mapping[str, str]) -> str:
    """The text of a file of variables.

    Raises:
        InvalidInputError: a value has several lines, which no runtime can read.
    """
    for name, value in variables.items():
        if "\n" in value or "\r" in value:
            raise InvalidInputError(
                f"the variable {name} has several lines, which a container cannot be given",
                "put it in a file, or encode it (base64)",
            )
    return "".join(f"{name}={value}\n" for name, value in variables.items())
