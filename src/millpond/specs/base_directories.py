"""Where the files of this account lie, by the XDG Base Directory Specification, and the state of a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError

STATE_DIR_HELP: Final = "Directory of the server that is meant [default: $MILLPOND_STATE or ~/.local/state/millpond]."
"""Of the option ``--state-dir``; see ``default_state_dir``."""


def config_home() -> Path:
    """Of its settings.

    Raises:
        UnavailableError: as ``state_home``.
    """
    return _directory("XDG_CONFIG_HOME", ".config")


def state_home() -> Path:
    """Of what its programs keep.

    Raises:
        UnavailableError: the account has no home directory, as in containers that run under a mere number.
    """
    return _directory("XDG_STATE_HOME", ".local/state")


def default_state_dir() -> Path:
    """The state directory where none is named: ``$MILLPOND_STATE``, else one under the user's state home."""
    if chosen := os.environ.get("MILLPOND_STATE"):
        return Path(chosen)
    return state_home() / "millpond"


def _directory(variable: str, below_home: str) -> Path:
    if chosen := os.environ.get(variable):
        return Path(chosen)
    try:
        return Path.home() / below_home
    except RuntimeError as error:
        raise UnavailableError(f"the account {os.getuid()} has no home directory here", "set HOME") from error
