"""The steps from each version's tables to the next, as alembic runs them (``env``, ``versions``).

A database of an earlier version takes them; a new one gets the tables of this version at once (``schema``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent


def newest_revision() -> str:
    """The last migration there is; their files are numbered in order."""
    script = max((FOLDER / "versions").glob("*.py")).read_text()
    found = re.search(r'^revision = "(.+)"$', script, re.MULTILINE)
    assert found is not None, "every migration has a revision"
    return found[1]
