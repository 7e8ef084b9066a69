"""The version of the installed program; written into snapshots and answers."""

from __future__ import annotations

from importlib import metadata
from typing import Final

VERSION: Final = metadata.version("millpond")
