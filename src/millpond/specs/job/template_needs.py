"""Which of the things that a template needs are on this machine."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

from millpond.specs.job.templates import Template, TemplateNeed

_FIND_MODULE: Final = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


_LOOK_FOR_S: Final = 20.0


def missing_needs(template: Template, path: str) -> list[TemplateNeed]:
    """What a template needs and is not found with a ``PATH``. Blocks: a Python may be asked for its modules."""
    return [need for need in template.header.needs if not _is_there(need, path)]


def _is_there(need: TemplateNeed, path: str) -> bool:
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
