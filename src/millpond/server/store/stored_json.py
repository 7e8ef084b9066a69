"""JSON columns, read so that an error names the damaged row: SQLite does not notice a flipped bit within a value."""

from __future__ import annotations

import json
from typing import Any, Final

from millpond.model.codec import from_plain
from millpond.model.errors import InvalidInputError

RESTORE: Final = "restore a backup of the database (pond restore)"


def plain_in(text: str, row: str) -> Any:
    """What a row holds.

    Args:
        row: what it is, for people: ``entry 7 of the log``.

    Raises:
        InvalidInputError: it is damaged.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{row} is damaged ({error})", RESTORE) from error


def value_in(text: str, row: str) -> Any:
    """The model value that a row holds.

    Raises:
        InvalidInputError: it is damaged, or a newer version wrote it.
    """
    plain = plain_in(text, row)
    try:
        return from_plain(plain)
    except InvalidInputError as error:
        raise InvalidInputError(f"{row} cannot be read ({error.cause})", error.remedy) from error
