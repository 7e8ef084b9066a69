"""Where the files of the account that runs this lie: the XDG Base Directory Specification."""

from __future__ import annotations

import os
from pathlib import Path

from millpond.model.errors import UnavailableError


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


def _directory(variable: str, below_home: str) -> Path:
    if chosen := os.environ.get(variable):
        return Path(chosen)
    try:
        return Path.home() / below_home
    except RuntimeError as error:
        raise UnavailableError(f"the account {os.getuid()} has no home directory here", "set HOME") from error
