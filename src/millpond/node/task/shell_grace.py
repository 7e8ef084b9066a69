"""The grace of programs below a shell, in a sandbox or container: these end with their first program.

The notice goes to the whole process group. A shell that has no ``trap`` for it dies of it at once, and what it runs
would be killed with the sandbox, whose handler has just been called. So the first program there is a small shell that
runs the command, and after the notice stays until nothing is left in its process group, as the supervisor waits for
the rest of a task outside a sandbox. Its exit code is the command's. Standard library only.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Final

_IS_SHELL: Final = re.compile(r"(?:.*/)?(?:(?:ba|da|k|z)?sh|[^/]+\.sh)", re.DOTALL)
_SCRIPT: Final = """\
told=
trap : TERM INT HUP QUIT USR1 USR2
trap told=1 {notice}
others() {{
    for stat in /proc/[0-9]*/stat; do
        case $stat in /proc/1/*|/proc/$$/*|/proc/$PPID/*) continue ;; esac
        {{ read -r line <"$stat"; }} 2>/dev/null || continue
        set -- ${{line##*) }}
        [ "$1" != Z ] && [ "$3" = "$group" ] && return 0
    done
    return 1
}}
"$@"
code=$?
[ -n "$told" ] || exit "$code"
read -r line </proc/$$/stat && set -- ${{line##*) }} && group=$3
while others && sleep 0.1; do :; done
exit "$code"
"""
"""Of a process's ``stat``, behind its name: state, parent, group. The group is 0 where its leader is outside."""


def with_grace_below(argv: Sequence[str], notice_signal: str) -> list[str]:
    """The command that ends as ``argv`` does, after a notice not before the rest of its process group; of a program
    that is no shell by its name, ``argv`` itself.

    Args:
        notice_signal: name of the signal that asks ``argv`` to end.
    """
    if not _IS_SHELL.fullmatch(argv[0]):
        return list(argv)
    return ["/bin/sh", "-c", _SCRIPT.format(notice=int(signal.Signals[notice_signal])), "sh", *argv]
