"""Isolate tasks: each in namespaces of its own, made by bubblewrap (``bwrap``) where that is installed.

A sandboxed task sees only its own processes, has a ``/tmp`` of its own, which ends with it, and finds nothing where the
server keeps its state: not the database, not the API token, not the output of other jobs. Everything else is where it
was: the user's own directory, virtual environment and devices.

What is mounted is found at its own path, after all links, and nowhere else. Hidden places are emptied after everything
that may be around them is mounted; only what the server itself gives a task is then put into them. So nothing that a
job names shows what is hidden, whatever way its path takes.

The network is that of the process that makes the sandbox (``namespaces``), and so is ``/dev/shm`` unless a request
says otherwise: the tasks of a gang speak over both.

Source of the options: bwrap(1).
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from millpond.node.host.identities import MachineAccount, SharedAccount
from millpond.node.task.environment import with_own_environment

_THERE_ALREADY = (Path("/"), Path("/dev"))
"""Mounted again, these would hide what was put into them, and devices would be none."""
_PRIVATE = (Path("/tmp"), Path("/var/tmp"))
_SHARED_MEMORY = Path("/dev/shm")
SETPRIV = "setpriv"
_OF_THE_MACHINE = ("CAP_SYS_TIME", "CAP_SYS_BOOT", "CAP_SYS_MODULE")
"""What root could do to the clock and the kernel of all, which no namespace keeps apart."""


@dataclass(frozen=True, slots=True)
class Mount:
    """An absolute path, free of links, that a task finds where it lies, wherever that is."""

    path: Path
    writable: bool


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """What one task is to find.

    Attributes:
        mounts: what the server lets it have. Of two, one within the other, the inner one counts there.
        installed: absolute paths that the job names in its variables and its command, unchecked. They stay visible in
            directories that are otherwise private, and nowhere else.
        identity: whom it runs as; None: as the process that makes the sandbox. Only root can make it for others.
        account: how it shares the account of the process that makes the sandbox; None: the account is its user's own.
        memory_mib: the most that each of its private directories holds; 0: as the kernel has it.
        own_shared_memory: ``/dev/shm`` is one of its private directories; it always is in another's account.
    """

    mounts: Sequence[Mount] = ()
    installed: Sequence[Path] = ()
    identity: MachineAccount | None = None
    account: SharedAccount | None = None
    memory_mib: int = 0
    own_shared_memory: bool = False


_MADE, _EMPTIED, _LINKED, _READ_ONLY_TRY, _READ_ONLY, _WRITABLE = range(-1, 5)


@dataclass(frozen=True, slots=True, order=True)
class _Layer:
    """Options of bwrap about one path.

    In their order: the outer before the inner, as what is mounted later hides what lies below it. Of one path twice:
    what is private first, the writable last.
    """

    depth: int
    rank: int
    options: tuple[str, ...]
    path: Path = field(compare=False)

    @classmethod
    def of(cls, path: Path, rank: int, *options: str) -> _Layer:
        """That a path be mounted so.

        Args:
            rank: ``_MADE`` to ``_WRITABLE``.
        """
        return cls(len(path.parts), rank, options, path)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How to put tasks into sandboxes.

    Attributes:
        program: path of ``bwrap``.
        hidden: directories in which tasks find nothing; absolute and free of links, with all places at which they are
            mounted.
        bounds_size: this version can bound what a private directory holds.
        takes_open: this version mounts what is open (``node.sandbox.named_mounts``).
    """

    program: str
    hidden: tuple[Path, ...]
    bounds_size: bool = True
    takes_open: bool = True

    def around(self, argv: Sequence[str], request: SandboxRequest) -> list[str]:
        """The command that runs ``argv`` in a sandbox; its exit code is that of ``argv``."""
        hidden = self.hidden if request.account is None else _outermost((*self.hidden, *request.account.hidden))
        private = self._private(request)
        mounts = self._mounts(request)
        inside = [_bound(mount) for mount in mounts if _lies_in(mount.path, hidden)]
        outside = [*private, *(_bound(mount) for mount in mounts if not _lies_in(mount.path, hidden))]
        if request.account is None:
            own = [layer.path for layer in private]
            outside += _named(request.installed, own, [layer.path for layer in outside], hidden)
        emptied = [_Layer.of(path, _EMPTIED, "--tmpfs", str(path)) for path in hidden]
        if request.identity is not None:
            empty = {*hidden, *(layer.path for layer in private)}
            outside += _on_the_way([*outside, *emptied], empty)
            inside += _on_the_way(inside, empty)
        options = ["--die-with-parent", "--unshare-pid", *_root(request)]
        if request.identity is None and os.geteuid() == 0:
            options += [option for right in _OF_THE_MACHINE for option in ("--cap-drop", right)]
        for layer in (*sorted(outside), *sorted(emptied), *sorted(inside)):
            if layer.path not in _THERE_ALREADY:
                options += layer.options
        for socket in request.account.masked if request.account is not None else ():
            options += ["--ro-bind", os.devnull, str(socket)]
        for path in hidden:  # or a task could fill the machine's memory there
            options += ["--remount-ro", str(path)]
        # Last, as no folder of a job's may bring the machine's processes back. The task enters its working directory
        # itself, with its own rights.
        options += ["--proc", "/proc", "--chdir", "/"]
        # bwrap stays above the task and must not die of the signals that the task is to hear: the supervisor starts it
        # with them ignored, and the script has them heard again.
        return [self.program, *options, "--", *_becoming(request.identity), *with_own_environment(argv)]

    def _mounts(self, request: SandboxRequest) -> list[Mount]:
        """What is mounted, but for what its user may not have of the account that the task runs as."""
        account = request.account
        if account is None:
            return [*request.mounts]
        allowed = [
            mount
            for mount in request.mounts
            if _lies_in(mount.path, self.hidden) or not _lies_in(mount.path, account.hidden)
        ]
        empty = (*account.hidden, *private_directories())
        installed = [Mount(path, writable=False) for path in account.installed if _lies_in(path, empty)]
        return [*installed, *allowed]

    def _private(self, request: SandboxRequest) -> list[_Layer]:
        """The directories that a task has for itself."""
        found = private_directories()
        if (request.own_shared_memory or request.account is not None) and _SHARED_MEMORY.is_dir():
            found = (*found, _SHARED_MEMORY)
        # Older versions know no --perms, and need none where the task has the uid that makes the sandbox.
        options = [] if request.identity is None else ["--perms", "1777"]
        if self.bounds_size and request.memory_mib:
            options += ["--size", str(request.memory_mib * 2**20)]
        return [_Layer.of(path, _EMPTIED, *options, "--tmpfs", str(path)) for path in found]


@functools.cache
def private_directories() -> tuple[Path, ...]:
    """Where tasks find only what is their own; free of links."""
    return tuple(path.resolve() for path in _PRIVATE if path.is_dir())


def _root(request: SandboxRequest) -> list[str]:
    """What everything else lies on."""
    if request.account is None:
        return ["--dev-bind", "/", "/"]
    return ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-ipc"]


def _named(
    names: Iterable[Path], private: Sequence[Path], bound: Sequence[Path], hidden: Sequence[Path]
) -> list[_Layer]:
    """What a job's variables name in private directories; what lies elsewhere is visible anyhow.

    Each is found where it lies after all links; where a link was named, there is one again. What lies in what is
    mounted besides, such as the working directory, is as writable as that. A job chooses the names: nothing that holds
    or lies in what is hidden from it is shown, and no private directory as a whole.

    Args:
        bound: what is mounted besides.
    """
    found, by_links = dict[Path, _Layer](), list[Path]()
    shown = [path for path in bound if path not in private]
    shown_there = [path for path in shown if _lies_in(path, private)]
    known: dict[str, str | None] = {}
    for name in names:
        tree = _followed(name, known)
        if tree != name:
            by_links.append(name)
        if tree is None or tree in private or not _lies_in(tree, private) or _lies_in(tree, shown_there):
            continue
        if not any(tree.is_relative_to(place) or place.is_relative_to(tree) for place in hidden):
            found[tree] = _Layer.of(tree, _READ_ONLY_TRY, "--ro-bind-try", str(tree), str(tree))
    around = [*shown, *found]
    on_the_ways = {each for name in by_links for each in (name, *name.parents)}
    for link in (each for each in on_the_ways if os.path.islink(each)):  # noqa: PTH114 - see ``_step``
        folder, target = _followed(link.parent, known), _followed(link, known)
        if folder is None or target is None or not _lies_in(folder, private):
            continue
        if not _lies_in(place := folder / link.name, (*around, *hidden)):
            found[place] = _Layer.of(place, _LINKED, "--symlink", str(target), str(place))
    return list(found.values())


def _followed(path: Path, known: dict[str, str | None]) -> Path | None:
    """Where a path leads after all links; None where one cannot be read, as of another user's process.

    Args:
        known: what was found out about others, as what a job names has most folders in common; added to.
    """
    way, target = "", "/"
    for name in path.parts[1:]:
        way = f"{way}/{name}"
        if way not in known:
            known[way] = _step(target, name)
        found = known[way]
        if found is None:
            return None
        target = found
    return path if target == str(path) else Path(target)


def _step(folder: str, name: str) -> str | None:
    """Where a name leads in a folder that is free of links."""
    place = f"{folder.rstrip('/')}/{name}"
    if name != os.pardir and not os.path.islink(place):  # noqa: PTH114 - Path's fails for names that are too long
        return place
    try:
        return os.path.realpath(place)
    except OSError:
        return None


def _lies_in(path: Path, places: Iterable[Path]) -> bool:
    """As ``Path.is_relative_to``, which takes ten times as long."""
    inside = f"{path}/"
    return any(inside.startswith(f"{place}/".replace("//", "/")) for place in places)


def _outermost(places: Iterable[Path]) -> tuple[Path, ...]:
    """Those that lie in none of the others."""
    distinct = set(places)
    return tuple(sorted(place for place in distinct if distinct.isdisjoint(place.parents)))


def _bound(mount: Mount) -> _Layer:
    path = str(mount.path)
    if mount.writable:
        return _Layer.of(mount.path, _WRITABLE, "--bind", path, path)
    return _Layer.of(mount.path, _READ_ONLY, "--ro-bind", path, path)


def _on_the_way(layers: Sequence[_Layer], empty: Set[Path]) -> list[_Layer]:
    """The folders between an emptied directory and a mount below it: bwrap would make them for itself alone."""
    above = {folder for layer in layers for folder in layer.path.parents if not empty.isdisjoint(folder.parents)}
    return [_Layer.of(folder, _MADE, "--perms", "0755", "--dir", str(folder)) for folder in above - empty]


def _becoming(identity: MachineAccount | None) -> list[str]:
    """What turns root into another user, for good: no program can give it any right back."""
    if identity is None:
        return []
    groups = ",".join(map(str, identity.groups))
    rights = ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    return [_setpriv(), f"--reuid={identity.uid}", f"--regid={identity.gid}", f"--groups={groups}", *rights, "--"]


@functools.cache
def _setpriv() -> str:
    """Its path: it is looked for where the server finds programs, never where a job does."""
    return shutil.which(SETPRIV) or f"/usr/bin/{SETPRIV}"
