"""What the bodies that are pydantic models have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

CanaryPercent = Annotated[float, Field(gt=0, lt=100)]
"""What a new revision of a service may get of the requests before it is promoted."""


class Body(BaseModel):
    """Base of these bodies: a newer server may add fields, an older client ignores them."""

    model_config = ConfigDict(extra="ignore", frozen=True)
