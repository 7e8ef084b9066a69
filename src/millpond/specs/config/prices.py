"""The section ``prices`` of the configuration: what an hour of a card costs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from millpond.specs.validation import Strict

ANY_MODEL = "default"
"""In a price list: all models that it does not name."""


class PriceList(Strict):
    """What an hour of a whole card costs.

    Attributes:
        currency: in which prices are shown.
        gpu_hour: by model; ``default`` is for all others.
    """

    currency: Annotated[str, Field(min_length=1, max_length=10)] = "EUR"
    gpu_hour: dict[str, Annotated[float, Field(ge=0, le=1_000_000)]] = Field(default={})

    def cost(self, model: str, gpu_hours: float) -> float | None:
        """What so many hours cost; None where the list does not say."""
        price = self.gpu_hour.get(model, self.gpu_hour.get(ANY_MODEL))
        return None if price is None or not model else price * gpu_hours
