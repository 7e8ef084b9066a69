"""Bodies as JSON and back by pydantic, whatever they are declared as: for the server, which has many of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """What reads, checks and writes the bodies of a kind; made once, as that takes long."""
    return TypeAdapter(kind)
