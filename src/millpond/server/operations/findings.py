"""Findings of a diagnosis: how well one thing works, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How well something works."""

    OK = "ok"
    LIMITED = "limited"
    """Millpond runs, and something it could do here does not work."""
    BROKEN = "broken"
    """A server cannot run here, or the one that does takes no requests."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        remedy: what would mend it; empty where it is ok.
    """

    what: str
    grade: Grade
    found: str
    remedy: str = ""
