"""Ports of this machine for tasks: where gangs meet (and what each task learns of its place), where services listen."""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import Container
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.node.host.files import read_json, write_json

ADDRESS = "127.0.0.1"

_PORTS = range(20_000, 32_000)
"""Below the range from which Linux takes the ports of outgoing connections (32768 on), so that none of those can sit on
the chosen one before the task listens."""
_TRIES = 200
_FILE = "gang.json"


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The meeting point of one run of a job.

    Attributes:
        port: on ``ADDRESS``; the task of rank 0 is expected to listen there.
        world_size: how many tasks the gang has.
        private: in a network of the gang's own, for as long as the run lasts.
    """

    port: int
    world_size: int
    private: bool = False

    def environment(self, task: int) -> dict[str, str]:
        """The variables frameworks expect.

        Each task counts as a machine of its own (``LOCAL_RANK`` 0 of 1, ``NODE_RANK`` its rank), wherever it is placed:
        it sees only its own devices, numbered from 0, so that a program which picks its card by ``LOCAL_RANK`` picks
        one that it has; and a launcher such as torchrun inside the task starts its workers below that rank.

        torchrun tells machines apart by name and process id, which in sandboxes of one machine are often the same: each
        task gets a loopback address of its own to be known by (``--local-addr``, whose default is ``PET_LOCAL_ADDR``).
        """
        return {
            "MASTER_ADDR": ADDRESS,
            "MASTER_PORT": str(self.port),
            "WORLD_SIZE": str(self.world_size),
            "RANK": str(task),
            "NODE_RANK": str(task),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "PET_LOCAL_ADDR": str(ipaddress.ip_address(ADDRESS) + task),
        }


def recall(attempt_dir: Path) -> Rendezvous | None:
    """The meeting point agreed on earlier for this run; None when there is none yet."""
    plain = read_json(attempt_dir / _FILE)
    try:
        return None if plain is None else Rendezvous(**plain)
    except TypeError:  # it was not written here
        return None


def agree(attempt_dir: Path, tasks: int, taken: Container[int], private: bool = False) -> Rendezvous:
    """The meeting point of a run for at least this many tasks: the one agreed on earlier, grown, or a new one.

    Args:
        taken: ports of gangs that live now, whether or not they listen yet.
        private: a new one is in a network of the gang's own.

    Raises:
        UnavailableError: no port is free.
    """
    earlier = recall(attempt_dir)
    if earlier is not None and earlier.world_size >= tasks:
        return earlier
    agreed = Rendezvous(free_port(taken), tasks, private) if earlier is None else replace(earlier, world_size=tasks)
    attempt_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(attempt_dir / _FILE, asdict(agreed))
    return agreed


def free_port(taken: Container[int]) -> int:
    """A port on ``ADDRESS`` that no program listens on.

    Args:
        taken: ports that were given away, whether or not anybody listens there yet.

    Raises:
        UnavailableError: none was found.
    """
    for _ in range(_TRIES):
        port = random.choice(_PORTS)
        if port not in taken and _is_free(port):
            return port
    raise UnavailableError(
        f"no free port for a task between {_PORTS.start} and {_PORTS.stop}", "end some programs that listen there"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind((ADDRESS, port))
        except OSError:
            return False
    return True
