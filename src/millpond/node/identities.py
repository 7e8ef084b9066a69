"""Whom a task runs as on its machine, where the server is root: an account of its user's own.

Of two kinds. Either the machine's own account of the same name, with its groups and its home; or a number that belongs
to this user alone and to no account, with a home in the state directory.
"""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millpond.model.errors import NotFoundError

HOMES = "homes"
"""Folder of the state directory with the homes of users who have no account on the machine."""
FIRST_PERSON = 1000
"""Accounts below this number are those of the machine itself (login.defs(5), UID_MIN)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the machine.

    Attributes:
        groups: numbers of all groups that it is in.
        home: absolute.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str

    def plain(self) -> dict[str, Any]:
        """For the supervisor's order."""
        return asdict(self)

    @property
    def environment(self) -> dict[str, str]:
        """What programs are told of whom they run as."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def account_named(name: str) -> Identity:
    """The machine's account of this name.

    Raises:
        NotFoundError: there is none, or it is one of the machine's own.
    """
    remedy = f"make one with `useradd --create-home {name}`, or have jobs run under numbers of their own (run_as)"
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise NotFoundError(f"user {name!r} has no account on this machine", remedy) from None
    if found.pw_uid < FIRST_PERSON:
        raise NotFoundError(f"the account {name!r} is one of the machine's own, not a person's", remedy)
    groups = os.getgrouplist(name, found.pw_gid)
    return Identity(found.pw_uid, found.pw_gid, tuple(groups), name, found.pw_dir)


def numbered(name: str, number: int, state_dir: Path) -> Identity:
    """A user whose number nobody else has; its home is made if it is not there.

    Raises:
        OSError: it cannot be made.
    """
    home = state_dir / HOMES / name
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chown(home, number, number)
    return Identity(number, number, (number,), name, str(home))


def is_taken(number: int) -> bool:
    """Whether an account or a group of the machine has this number."""
    for find in (pwd.getpwuid, grp.getgrgid):
        try:
            find(number)
        except KeyError:
            continue
        return True
    return False
