"""The variables of a sandboxed task, kept away from the programs that make its sandbox. Standard library only.

These programs have rights that the task must not get: those of the server, on a root server those of root. A variable
such as ``LD_PRELOAD`` or ``PATH`` would have them run the job's code. So they start with an environment of their own,
and a shell sets the task's once it is in the sandbox with the task's rights. The shell reads a file in memory, as
arguments can be seen by every account of the machine.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from millpond.node.host.files import write_all

LOG_VARIABLE: Final = "MILLPOND_LOG"
"""Names the task's log to itself; no two tasks share one, so it also marks all processes of a task."""

_SCRIPT_VARIABLE: Final = "MILLPOND_SETS"
_ENV: Final = shutil.which("env") or "/usr/bin/env"
_FROM_THE_SHELL: Final = ("_", "OLDPWD", "PWD", "SHLVL")
_FOR_SHELLS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MEANS_SOMETHING_TO_SHELLS: Final = re.compile(
    r"_|BASH.*|DIRSTACK|EUID|FUNC.*|GROUPS|HIST.*|IFS|LANG|LC_.*|LINENO|MAIL.*|OPT.*|POSIXLY_CORRECT|PPID|PS[0-9]|PWD|"
    r"OLDPWD|RANDOM|SECONDS|EPOCH.*|SRANDOM|SHELLOPTS|SHLVL|TMOUT|UID"
)


def with_own_environment(argv: Sequence[str]) -> list[str]:
    """The command that sets the task's variables, enters its working directory and becomes ``argv``."""
    return ["/bin/sh", "-c", f'. "${_SCRIPT_VARIABLE}"', "sh", *argv]


def open_script(env: Mapping[str, str], workdir: str, processes: int | None = None) -> int:
    """A file in memory with what that command does, to be passed on to it; the caller closes the descriptor.

    Args:
        processes: the most that the task's account may have in its user namespace; None: no bound.
    """
    handle = os.memfd_create("environment")
    try:
        write_all(handle, os.fsencode(_script(env, workdir, handle, processes)))
    except (OSError, ValueError):
        os.close(handle)
        raise
    return handle


def outer_environment(script: str, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of what makes the sandbox.

    Args:
        script: path of the file with the task's variables.
        env: these; of them only the mark of the task's processes is taken.
    """
    mark = {LOG_VARIABLE: env[LOG_VARIABLE]} if LOG_VARIABLE in env else {}
    return {"PATH": os.environ.get("PATH", os.defpath), _SCRIPT_VARIABLE: script, **mark}


def script_path(handle: int) -> str:
    """Where a process that inherits a descriptor finds its file."""
    return f"/proc/self/fd/{handle}"


def _script(env: Mapping[str, str], workdir: str, handle: int, processes: int | None) -> str:
    """Signals are heard again, as what makes the sandbox is started with them ignored."""
    if any("\0" in text for pair in env.items() for text in pair):
        raise ValueError("a variable has a NUL in it")
    plain = {name for name in env if _FOR_SHELLS.fullmatch(name) and not _MEANS_SOMETHING_TO_SHELLS.fullmatch(name)}
    others = [f"{name}={env[name]}" for name in env if name not in plain]
    dropped = [f"--unset={name}" for name in _FROM_THE_SHELL if name not in env]
    last = [_ENV, "--default-signal", f"--chdir={workdir}", *dropped, "--", *others]
    lines = [f"unset {_SCRIPT_VARIABLE}"]
    if handle < 10:  # what a shell need not know more of
        lines.append(f"exec {handle}<&-")
    if processes is not None:  # shells do not agree on the letter
        lines.append(f"ulimit -u {processes} 2>/dev/null || ulimit -p {processes}")
    lines += [f"export {name}={shlex.quote(env[name])}" for name in plain]
    return "\n".join([*lines, f'exec {shlex.join(last)} "$@"', ""])
