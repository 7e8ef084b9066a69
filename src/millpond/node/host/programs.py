"""Whether a program can be executed, as shells see it. Standard library only.

The kernel does not say so of a name without a folder: one folder of ``PATH`` that may not be entered makes it answer
"Permission denied" of a program that is nowhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path


def require_program(program: str, env: Mapping[str, str]) -> None:
    """Check with the rights that this thread acts with, and from its working directory, that a program is there.

    Raises:
        OSError: it is not, or cannot be executed.
    """
    has_folder = os.sep in program
    paths = [Path(folder, program) for folder in ([""] if has_folder else os.get_exec_path(env))]
    if any(os.access(path, os.X_OK, effective_ids=True) and not path.is_dir() for path in paths):
        return
    number = errno.EACCES if has_folder and Path(program).exists() else errno.ENOENT
    raise OSError(number, os.strerror(number), program)
