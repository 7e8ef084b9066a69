"""Forkservers that engines borrow one after the other: to start one takes longer than most tests of a task do.

An engine has one to itself, which a test may kill, and gets one only that was started with the same variables and in
the same directory: supervisors inherit both.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from millpond.node.task.forkserver_client import ForkserverClient

_Surroundings = tuple[Path, frozenset[tuple[str, str]]]


class LentForkserver:
    """What an engine takes for its own."""

    def __init__(self, forkserver: ForkserverClient, give_back: Callable[[ForkserverClient], None]) -> None:
        self._forkserver = forkserver
        self._give_back = give_back
        self.spawn = forkserver.spawn

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """For a test that kills it."""
        return self._forkserver._process

    def close(self) -> None:
        """Its engine is closed."""
        self._give_back(self._forkserver)


@contextmanager
def forkservers() -> Iterator[Callable[..., object]]:
    """What lends them, called as ``ForkserverClient`` is; all end with the context."""
    idle: defaultdict[_Surroundings, list[ForkserverClient]] = defaultdict(list)

    def lend(group: Path | None = None) -> object:
        if group is not None:
            return ForkserverClient(group)
        here = idle[_surroundings()]
        return LentForkserver(here.pop() if here else ForkserverClient(), here.append)

    yield lend
    for each in idle.values():
        for forkserver in each:
            forkserver.close()


def _surroundings() -> _Surroundings:
    variables = (each for each in os.environ.items() if each[0] != "PYTEST_CURRENT_TEST")
    return Path.cwd(), frozenset(variables)
