"""The parts of the server's configuration about tasks as processes: whom they run as, what they are kept to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from millpond.specs.errors import BadValueError
from millpond.specs.validation import Strict

FIRST_NUMBER, LAST_NUMBER = 200_000, 265_535
"""Numbers that useradd(8) does not give by default."""
_LEAST_NUMBER, _MOST_NUMBER = 1_000, 2**32 - 3


class UserKind(StrEnum):
    """Whom tasks run as where the server is root."""

    RANGE = "range"
    """Each user as a number of their own, which is no account of the machine."""
    UNIX = "unix"
    """Each user as the machine's account of the same name."""
    SERVER = "server"
    """All as the server itself."""


@dataclass(frozen=True, slots=True)
class RunAs:
    """Whom tasks run as where the server is root; ``first`` and ``last`` bound the numbers of ``RANGE``."""

    kind: UserKind = UserKind.RANGE
    first: int = FIRST_NUMBER
    last: int = LAST_NUMBER


class NetworkRule(StrEnum):
    """Which network tasks get whose job names none."""

    AUTO = "auto"
    """The machine's while one person uses the server; from the second on a private one, where the kernel makes some."""
    PRIVATE = "private"
    """One that only the tasks of their job on the machine share."""
    HOST = "host"
    """The machine's."""


@dataclass(frozen=True, slots=True)
class TaskRules:
    """What tasks are kept to besides what they ask for.

    Attributes:
        cpu_is_bound: they get no more CPU time than they asked for, even where it is idle.
        processes: the most that one may have, threads included.
        network: which they get.
    """

    cpu_is_bound: bool = False
    processes: int = 4096
    network: NetworkRule = NetworkRule.AUTO


def _range(value: Any) -> Any:
    found = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", value) if isinstance(value, str) else None
    if found is None:
        raise BadValueError(f"{value!r} is no range of numbers", "write FIRST-LAST, such as 200000-265535")
    first, last = int(found[1]), int(found[2])
    if not _LEAST_NUMBER <= first <= last <= _MOST_NUMBER:
        raise BadValueError(f"{value!r} is no range of user numbers", f"use {_LEAST_NUMBER} to {_MOST_NUMBER}")
    return f"{first}-{last}"


class RunAsFile(Strict):
    """Whom tasks run as where the server is root; elsewhere they run as the server's account.

    Attributes:
        users: ``range``: each user as a number of their own; ``unix``: as the machine's account of the same
            name; ``server``: as the server.
        range: user numbers of no other account, for ``users: range``.
    """

    users: Literal["range", "unix", "server"] = "range"
    range: Annotated[str, BeforeValidator(_range)] = f"{FIRST_NUMBER}-{LAST_NUMBER}"

    def rule(self) -> RunAs:
        """The checked form."""
        first, _, last = self.range.partition("-")
        return RunAs(UserKind(self.users), int(first), int(last))


class TasksFile(Strict):
    """What tasks are kept to besides what they ask for.

    Attributes:
        cpu: ``weight``: their share where others want the CPUs too; ``bound``: never more than that.
        processes: the most that one may have, threads included.
        network: which network they get whose job names none: the machine's (``host``), or one that only the tasks of
            their job on the machine share (``private``); ``auto``: the latter from the second person on.
    """

    cpu: Literal["weight", "bound"] = "weight"
    processes: Annotated[int, Field(ge=16, le=4_000_000)] = 4096
    network: Literal["auto", "private", "host"] = "auto"

    def rules(self) -> TaskRules:
        """The checked form."""
        return TaskRules(self.cpu == "bound", self.processes, NetworkRule(self.network))
