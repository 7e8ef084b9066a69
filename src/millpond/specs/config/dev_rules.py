"""The section ``dev`` of the configuration: rules for places to work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from millpond.specs.errors import BadValueError
from millpond.specs.job.fields import Duration
from millpond.specs.validation import Strict


class DevFile(Strict):
    """Rules for places to work (kind ``dev``).

    Attributes:
        idle_after: unused for this long, one is suspended or stopped; left out: never.
        warn_before: so long before, its user is warned.
        on_idle: ``suspend``: it gives its cards back, by swapping where the node can, else by an end with notice and
            grace; ``freeze``: it is halted and keeps its device memory on its cards; ``stop``: it is ended.
        open_pages: ``touched``: what people do in open pages is use, as far as it can be seen from what pages do by
            themselves; ``ignore``: whatever pages do, only opening them is.
        longest: how far a time limit can be extended; left out: as far as one likes.
    """

    idle_after: Annotated[Duration, Field(ge=60)] | None = None
    warn_before: Annotated[Duration, Field(ge=0)] = 600.0
    on_idle: Literal["suspend", "freeze", "stop"] = "suspend"
    open_pages: Literal["touched", "ignore"] = "touched"
    longest: Annotated[Duration, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> DevFile:
        if self.idle_after is not None and self.warn_before > self.idle_after:
            raise BadValueError("a warning earlier than the idle time itself", "lower warn_before")
        return self


@dataclass(frozen=True, slots=True)
class DevRules:
    """Rules for places to work; None: no such rule.

    Attributes:
        on_idle: ``suspend``, ``freeze`` or ``stop``.
        heeds_pages: what is done in open pages is use.
    """

    idle_after_s: float | None = None
    warn_before_s: float = 600.0
    on_idle: str = "suspend"
    longest_s: float | None = None
    heeds_pages: bool = True
