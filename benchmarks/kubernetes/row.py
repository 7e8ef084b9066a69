"""One measured figure beside its target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure.

    Attributes:
        target: what it should reach, None where it only explains others.
        least: whether the target is a lower bound.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether it reaches its target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.least else self.value <= self.target
