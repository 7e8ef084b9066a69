"""Whether what a template needs is installed, before anything is submitted."""

from __future__ import annotations

import shutil
import subprocess

from millpond.model.errors import UnavailableError
from millpond.specs.templates import Need, Template

_FIND_MODULE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
_LOOK_FOR_S = 20.0


def require(template: Template, path: str) -> None:
    """Check that everything a template needs is found with this ``PATH``.

    Raises:
        UnavailableError: something is missing; how to come by it stands in the remedy.
    """
    missing = [need for need in template.header.needs if not _is_there(need, path)]
    if missing:
        names = " and ".join(need.name for need in missing)
        ways = "; ".join(dict.fromkeys(need.install for need in missing))
        raise UnavailableError(
            f"template {template.name!r} needs {names}, not found with the PATH of this shell",
            f"activate the environment that has it, or install it: {ways}",
        )


def _is_there(need: Need, path: str) -> bool:
    if need.program is not None:
        return shutil.which(need.program, path=path) is not None
    python = shutil.which("python3", path=path)
    if python is None:
        return False
    command = [python, "-c", _FIND_MODULE, need.module or ""]
    try:
        return subprocess.run(command, capture_output=True, timeout=_LOOK_FOR_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
