"""Bodies by pydantic: what those that are models have in common, and what reads and writes any body for the server.

The server has many of them, and pydantic is faster on many than ``codec``.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

CanaryPercent = Annotated[float, Field(gt=0, lt=100)]
"""What a new revision of a service may get of the requests before it is promoted."""


class Body(BaseModel):
    """Base of these bodies: a newer server may add fields, an older client ignores them."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RequestBody(Body):
    """Base of those that ask for something: an unknown field is a mistake, not something to pass over."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """What reads, checks and writes the bodies of a kind; made once, as that takes long."""
    return TypeAdapter(kind)
