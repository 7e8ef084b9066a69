"""Files of a configuration as text: the server waits for no pipe and fills no memory, whatever lies in their place."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.specs.errors import BadValueError, Problem
from millpond.specs.source_positions import Located
from millpond.specs.source_positions import Path as FieldPath

LARGEST_MIB: Final = 64


def text_of(path: Path) -> str:
    """What is in a configuration file.

    Raises:
        UnavailableError: it cannot be read.
    """
    try:
        return bounded_text(path)
    except BadValueError as error:
        raise UnavailableError(f"cannot read {path} ({error.cause})", error.hint) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UnavailableError(f"cannot read {path} ({reason})", "name a readable configuration file") from error


def secret_in(file: str | None, located: Located, at: FieldPath, problems: list[Problem]) -> str:
    """The secret in a file, so that the configuration itself can be shown; empty where none is named.

    Args:
        at: where the configuration names it.
        problems: gets what is wrong with it; the secret is then empty.
    """
    if file is None:
        return ""
    try:
        secret = bounded_text(Path(file).expanduser()).strip()
    except BadValueError as error:
        problems.append(located.problem(at, f"the secret in {file} cannot be read ({error.cause})", error.hint))
        return ""
    except (OSError, UnicodeDecodeError) as error:
        message = f"the secret in {file} cannot be read ({getattr(error, 'strerror', 'no text')})"
        problems.append(located.problem(at, message, "name a file that the server's account may read"))
        return ""
    if not secret:
        problems.append(located.problem(at, f"{file} is empty", "write the secret into it, or leave this out"))
    return secret


def bounded_text(path: Path) -> str:
    """The text of a file, without a byte order mark.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8 text.
        BadValueError: it is no file, or larger than ``LARGEST_MIB``.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # opening a pipe would wait for a writer
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise BadValueError("it is no file", "name a file: a pipe or a device is not read")
        if found.st_size > LARGEST_MIB * 2**20:
            raise BadValueError(f"it has {found.st_size / 2**20:.0f} MiB", f"keep it to {LARGEST_MIB} MiB")
        return file.read(LARGEST_MIB * 2**20).decode("utf-8-sig")
