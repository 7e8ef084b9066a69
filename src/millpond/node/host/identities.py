"""The accounts that tasks run as where the server is root: one account for each user.

An account is of two kinds. Either the machine's own account of the same name, with its groups and its home; or a number
that belongs to this user alone and to no account, with a home in the state directory.

Where the server is not root, all tasks run as its own account. ``SharedAccount`` says what of it another user gets.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from millpond.model.errors import NotFoundError
from millpond.node.host.installation import own_installation

HOMES = "homes"
"""Folder of the state directory with the homes of users who have no account on the machine."""
_POWERFUL = tuple(map(Path, ("/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")))
FIRST_PERSON = 1000
"""Accounts below this number are those of the machine itself (login.defs(5), UID_MIN)."""


@dataclass(frozen=True, slots=True)
class MachineAccount:
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

    @property
    def environment(self) -> dict[str, str]:
        """The variables that say as whom programs run."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


@dataclass(frozen=True, slots=True)
class SharedAccount:
    """That a task runs as the server's own account, for a user who is not the account's owner.

    Such a task writes nowhere but where the server lets it, and shares no memory with others.

    Attributes:
        home: absolute; the user's own.
        hidden: absolute directories in which it finds nothing: the home of the account, and where its services listen.
        masked: sockets of services that give more rights than the account has.
        installed: what it may read all the same.
    """

    home: str
    hidden: tuple[Path, ...] = ()
    masked: tuple[Path, ...] = ()
    installed: tuple[Path, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that programs get about it."""
        return {"HOME": self.home}


def shared_account(name: str, state_dir: Path) -> SharedAccount:
    """What a user gets of the server's account; their home is made if it is not there.

    Raises:
        OSError: it cannot be made.
    """
    home = state_dir / HOMES / name
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    uid = os.geteuid()
    places = [Path(os.environ.get("HOME", "/")), Path(f"/run/user/{uid}")]
    with contextlib.suppress(KeyError):
        places.append(Path(pwd.getpwuid(uid).pw_dir))
    own = {place.resolve() for place in places if place.is_dir() and place.stat().st_uid == uid} - {Path("/")}
    masked = [path for path in _POWERFUL if os.access(path, os.W_OK)]
    return SharedAccount(str(home), tuple(sorted(own)), tuple(masked), own_installation())


def account_named(name: str) -> MachineAccount:
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
    return MachineAccount(found.pw_uid, found.pw_gid, tuple(groups), name, found.pw_dir)


def numbered(name: str, number: int, state_dir: Path) -> MachineAccount:
    """A user with a number of its own; its home is made if it is not there.

    Raises:
        OSError: it cannot be made.
    """
    home = state_dir / HOMES / name
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chown(home, number, number)
    return MachineAccount(number, number, (number,), name, str(home))


def is_taken(number: int) -> bool:
    """Whether an account or a group of the machine has this number."""
    for find in (pwd.getpwuid, grp.getgrgid):
        try:
            find(number)
        except KeyError:
            continue
        return True
    return False
