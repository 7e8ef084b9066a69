"""Why a job can never run here, as a value: for its refusal and for its explanation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """Why a job can never run here, and what would mend it: a field of the job and a value for it."""

    what: str
    remedy: str = ""
    field: str = ""
    value: str = ""
    numbers: tuple[tuple[str, int], ...] = ()
