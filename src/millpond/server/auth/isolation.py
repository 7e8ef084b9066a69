"""Whether the jobs of different users are isolated on this machine, and what is refused where they are not.

With one person on the server its jobs may read each other's files: they are all that person's. From the second on they
may not. Where tasks cannot be kept apart then, nothing new starts, submissions are refused, and every answer says what
to install. What runs goes on, marked as what it is.

Where the server is root, tasks of all users but the server's owner run under user numbers of their own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.events import Event, SchedulingPaused, SchedulingResumed
from millpond.model.reasons import Cause
from millpond.node.host.clocks import WallClock
from millpond.node.host.file_rights import with_rights_of
from millpond.node.host.identities import (
    HOMES,
    MachineAccount,
    SharedAccount,
    account_named,
    is_taken,
    numbered,
    shared_account,
)
from millpond.node.sandbox.detection import (
    INSTALL,
    INSTALL_IDENTITIES,
    SandboxMode,
    find_sandbox,
    trouble_with_identities,
)
from millpond.node.sandbox.sandbox import Sandbox, private_directories
from millpond.server.auth.accounts import Accounts
from millpond.specs.config.tasks import RunAsFile
from millpond.specs.job.job_file import JobFile
from millpond.specs.paths import followed

_GATEWAY: Final = "(ssh gateway)"
"""No user can be called so."""
_AGAIN: Final = "then start the server again; what runs goes on meanwhile"
_BY_NUMBERS: Final = RunAsFile()


@dataclass(frozen=True, slots=True)
class IsolationLevel:
    """How this machine keeps tasks apart.

    Attributes:
        mode: what the operator wants.
        sandbox: None where there is none.
        trouble, remedy: why tasks are not kept apart, and what would mend it; empty when they are.
        is_root: the server may start tasks as any account.
    """

    mode: SandboxMode
    sandbox: Sandbox | None = None
    trouble: str = ""
    remedy: str = ""
    is_root: bool = False


def look_around(mode: SandboxMode, state_dir: Path, run_as: RunAsFile) -> IsolationLevel:
    """How tasks can be kept apart here.

    Raises:
        UnavailableError: the operator requires it, and it does not work.
    """
    is_root = os.geteuid() == 0
    sandbox, trouble = find_sandbox(mode, (state_dir,))
    if sandbox is None:
        return IsolationLevel(mode, None, trouble, INSTALL, is_root)
    if is_root and run_as.users != "server":
        trouble = trouble_with_identities(sandbox)
        if trouble:
            if mode is SandboxMode.REQUIRED:
                raise UnavailableError(f"tasks cannot be kept apart: {trouble}", INSTALL_IDENTITIES)
            return IsolationLevel(mode, sandbox, f"they all run as root: {trouble}", INSTALL_IDENTITIES, is_root)
    return IsolationLevel(mode, sandbox, "", "", is_root)


class Isolation:
    """What this server holds its tasks to.

    Args:
        apart: as ``look_around`` found it.
        owner: the account whose tasks run as the server itself.
        run_as: the rule for all others, as it was when ``apart`` was found.
    """

    def __init__(
        self,
        apart: IsolationLevel,
        accounts: Accounts,
        owner: str,
        state_dir: Path,
        run_as: RunAsFile = _BY_NUMBERS,
        clock: WallClock = lambda: 0.0,
    ) -> None:
        self.apart = apart
        self._accounts = accounts
        self._owner = owner
        self._state_dir = state_dir
        self._run_as = run_as
        self._clock = clock

    @property
    def hindrance(self) -> str:
        """Why no task may start; empty when they may."""
        if not self.apart.trouble or self.apart.mode in (SandboxMode.OFF, SandboxMode.PREFERRED):
            return ""
        if not self.is_shared:
            return ""
        return f"{self._people()} people use this server, and jobs could read each other's files ({self.apart.trouble})"

    @property
    def advice(self) -> str:
        """What would mend it."""
        return f"{self.apart.remedy}; {_AGAIN}"

    @property
    def warning(self) -> str:
        """A warning for admins who add people; empty when all is well."""
        if self.hindrance:
            return f"no job starts from now on: {self.hindrance}; {self.advice}"
        if self.apart.trouble and self.is_shared:
            is_chosen = self.apart.mode is SandboxMode.OFF
            remedy = "start the server without --sandbox off" if is_chosen else self.apart.remedy
            return f"jobs can read each other's files ({self.apart.trouble}); {remedy}"
        closed = closed_above(self._state_dir) if self.is_shared and self._has_other_accounts else None
        if closed is not None:
            whose = f"jobs of all others than {self._owner} fail: their accounts may not enter {closed}"
            return f"{whose}, above the state directory; {opening(closed)}"
        return ""

    @property
    def is_shared(self) -> bool:
        """Whether several people use this server."""
        return self._people() > 1

    def check(self, user: str) -> None:
        """Whether a job of this user may be taken on.

        Raises:
            UnavailableError: it could not be kept apart from others.
            NotFoundError: it is to run as an account of the machine, and there is none.
        """
        if self.hindrance:
            raise UnavailableError(self.hindrance, self.advice)
        if self.is_another(user) and self._run_as.users == "unix":
            account_named(user)

    def working_folder(self, workdir: str, user: str) -> Path:
        """Where a working directory leads after all links, as far as the account that the user's tasks run as sees.

        Raises:
            InvalidInputError: nowhere, or into the server's own state, of which a user has nothing but their home; or
                the account may not go there.
        """
        identity, state = self.identity_of(user), self._state_dir.resolve()
        found = with_rights_of(identity, lambda: followed(workdir, "working directory"))
        if identity is not None and found.is_relative_to(state) and found.is_relative_to(identity.home):
            found = _followed_from_home(found, identity)
        if found.is_relative_to(state) and not (user and found.is_relative_to(state / HOMES / user)):
            raise InvalidInputError(
                f"the working directory {workdir} lies in the server's own state", "name another folder"
            )
        if identity is not None and not found.is_relative_to(state):
            with_rights_of(identity, lambda: _check_way_to(found, workdir, identity))
        return found

    def identity_of(self, user: str) -> MachineAccount | None:
        """Whom the tasks of a user run as; None: as the server does.

        Raises:
            NotFoundError: as an account of the machine, and there is none.
            UnavailableError: the numbers are used up.
            OSError: a home cannot be made.
        """
        if not self.is_another(user):
            return None
        rule = self._run_as
        if rule.users == "unix":
            return account_named(user)
        return numbered(user, self._accounts.numbers.of(user, rule.numbers, is_taken), self._state_dir)

    def home_of(self, user: str) -> str:
        """The home that the tasks of a user have on this machine. Blocks.

        Raises:
            NotFoundError, UnavailableError, OSError: as ``identity_of`` and ``account_of``.
        """
        own = self.identity_of(user) or self.account_of(user)
        return own.home if own is not None else str(Path.home())

    def gateway_uid(self) -> int | None:
        """The account of the SSH gateway, of which nothing else runs; None where the server is not root.

        Raises:
            UnavailableError: the numbers are used up.
        """
        if not self.apart.is_root:
            return None
        rule = self._run_as
        return self._accounts.numbers.of(_GATEWAY, rule.numbers, is_taken)

    def account_of(self, user: str) -> SharedAccount | None:
        """What a user's tasks get of the server's account; None: all of it, or an account of their own.

        Raises:
            OSError: a home cannot be made.
        """
        alone = self.apart.is_root or self.apart.sandbox is None or not self.is_shared
        return None if alone or user in ("", self._owner) else shared_account(user, self._state_dir)

    def check_paths(self, file: JobFile, user: str, is_listed: Callable[[str, Path], bool]) -> None:
        """Whether a job may have the folders of the machine that it names, where it runs as another user's account.

        Args:
            is_listed: whether the configuration has a queue's jobs write to a path.

        Raises:
            InvalidInputError: what it names belongs to the owner of the account, or may do so.
        """
        account = self.account_of(user)
        if account is None:
            return
        whose = f"jobs on this server run as the account of {self._owner}"
        for path in file.named_paths:
            found = followed(path, "path")
            is_hidden = any(found.is_relative_to(place) for place in account.hidden)
            if is_hidden and not found.is_relative_to(self._state_dir.resolve()):
                raise InvalidInputError(
                    f"{path} is {self._owner}'s own: {whose}",
                    "send the files (`ship: true`), or name another folder",
                )
        if file.output is not None and not is_listed(file.queue, followed(file.output, "output path")):
            raise InvalidInputError(
                f"the output path {file.output} may be {self._owner}'s own: {whose}",
                "leave output out and fetch it with `pond get-output`, or have an admin list the folder for the queue",
            )

    def events(self, held: str) -> list[Event]:
        """The events by which the scheduler starts work, or no longer does.

        Args:
            held: why the scheduler starts nothing, by an earlier event; empty: it does.
        """
        text = f"{self.hindrance}; {self.advice}" if self.hindrance else ""
        if text == held:
            return []
        if text:
            return [SchedulingPaused(self._clock(), Cause.NOT_ISOLATED, text)]
        return [SchedulingResumed(self._clock(), Cause.NOT_ISOLATED)]

    def is_another(self, user: str) -> bool:
        """Whether a user's tasks run under another account than the server."""
        return user not in ("", self._owner) and self._has_other_accounts

    @property
    def _has_other_accounts(self) -> bool:
        if not self.apart.is_root or self.apart.sandbox is None or self.apart.trouble:
            return False
        return self._run_as.users != "server"

    def _people(self) -> int:
        """Accounts of people that are in use."""
        return sum(not user.disabled and not user.service for user in self._accounts.users())


def closed_above(state_dir: Path) -> Path | None:
    """The outermost folder on the way to the state directory that is closed to others; None where none is.

    Sandboxes make the way anew in the directories that are private to a task.
    """
    way = state_dir.resolve().parents
    if not set(way).isdisjoint(private_directories()):
        return None
    return next((each for each in reversed(way) if each.is_dir() and not each.stat().st_mode & stat.S_IXOTH), None)


def opening(closed: Path) -> str:
    """What lets the accounts of users enter a folder above the state directory."""
    return f"chmod o+x {closed}, or choose another place with --state-dir"


def _followed_from_home(folder: Path, identity: MachineAccount) -> Path:
    """Where a folder in a home of the state directory leads: the way to the home is closed to its user."""
    home = os.open(identity.home, os.O_PATH | os.O_DIRECTORY)
    try:
        below = os.path.relpath(folder, identity.home)
        found = with_rights_of(identity, lambda: os.open(below, os.O_PATH, dir_fd=home))
    except PermissionError as error:
        raise _closed(str(folder), identity) from error
    except OSError:
        return folder  # the start says so: it may be made by then
    finally:
        os.close(home)
    try:
        return Path(f"/proc/self/fd/{found}").readlink()
    finally:
        os.close(found)


def _check_way_to(folder: Path, workdir: str, identity: MachineAccount) -> None:
    """Whether a folder may be entered, if it exists; to be called with the rights of the account in question."""
    try:
        os.stat(f"{folder}/.")  # noqa: PTH116 - of the folder itself it says nothing, and Path leaves the dot out
    except PermissionError as error:
        raise _closed(workdir, identity) from error
    except OSError:
        return  # the start says so: it may be made by then


def _closed(workdir: str, identity: MachineAccount) -> InvalidInputError:
    return InvalidInputError(
        f"jobs of {identity.name} run under user number {identity.uid}, which may not go to {workdir}",
        "send the directory with the job (`--ship`, or `ship: true`), or let that account in",
    )
