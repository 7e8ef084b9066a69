"""An SFTP server that a container's runtime can start in any image that has OpenSSH's own, or some Python.

To enter the container from outside, and serve its files from there, would need the rights of its runtime. What the
runtime starts has the rights of the job, and sees links as the job does. Standard library only.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

_SERVED_BY: Final = "millpond.node.sessions.sftp"
_MODULES: Final = ("millpond.node.sessions.sftp_wire", _SERVED_BY)

# $1: our own server, as a program.
_SCRIPT: Final = """
for program in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec; do
  [ -x "$program/sftp-server" ] && exec "$program/sftp-server"
done
command -v python3 >/dev/null && exec python3 -I -c "$1"
echo "pond: this image has neither python3 nor OpenSSH's sftp-server, so files cannot be copied so;" >&2
echo "pond: add one of them to the image, or copy with commands: ssh HOST cat FILE, ssh HOST 'cat > FILE'" >&2
exit 127
"""

_PROGRAM: Final = """
import sys, types
for name, text in {texts!r}:
    module = sys.modules[name] = types.ModuleType(name)
    above, _, own = name.rpartition(".")
    if above:
        setattr(sys.modules[above], own, module)
    exec(compile(text, name, "exec"), module.__dict__)
sys.modules[{server!r}].serve(sys.stdin.buffer, sys.stdout.buffer)
"""


def command_inside() -> list[str]:
    """The command, for any image with a shell."""
    return ["sh", "-c", _SCRIPT, "sftp", program()]


def program() -> str:
    """Our own server with all that it imports of ours, as one program for Python 3.8 and newer."""
    texts = [(package, "") for package in ("millpond", "millpond.node", "millpond.node.sessions")]
    texts += [(name, _source(name)) for name in _MODULES]
    return _PROGRAM.format(texts=texts, server=_SERVED_BY)


def _source(module: str) -> str:
    above, _, own = module.rpartition(".")
    return resources.files(above).joinpath(f"{own}.py").read_text(encoding="utf-8")
