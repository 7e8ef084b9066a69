"""How functions and results travel: one line of JSON that anybody can read, then a pickle for its receiver alone.

The server passes both on and looks into neither. The side that unpickles has either sent the function itself, or was
sent it to run it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from millpond.model.errors import InvalidInputError

LARGEST_RESULT = 64 * 2**20
"""Bytes that a result may have; larger things are output."""
LARGEST_ENVELOPE = 2 * LARGEST_RESULT
"""With its header, which may have the text of an exception."""
EACH = "each"
"""In the header of a payload: the function is called with one of so many items, that of the member's index."""


def python_version() -> str:
    """The part of Python's version on which pickled functions depend."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def pack(header: dict[str, Any], body: bytes) -> bytes:
    """An envelope; the header also bears Python's version."""
    return json.dumps({"python": python_version(), **header}).encode() + b"\n" + body


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and body of an envelope.

    Raises:
        InvalidInputError: it is none.
    """
    line, _, body = data.partition(b"\n")
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError("what came is neither a function nor a result", "submit it with the SDK") from error
    if not isinstance(header, dict) or "python" not in header:
        raise InvalidInputError("what came is neither a function nor a result", "submit it with the SDK")
    return header, body
