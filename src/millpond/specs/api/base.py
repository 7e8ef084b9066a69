"""What all bodies of the REST API have in common; those of each subject are in a file of their own (``*_bodies``).

Instants are seconds since 1970 (UTC). Shares of a card are milli (1000 = one card), memory is MiB, CPU is milli-cores.
The body of a submission is a job file (``specs.job.job_file.JobFile``) as JSON.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

API_PREFIX = "/api/v1"
IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Request header of a submission: repeating it with the same key gives the same job, never a second one."""


LONGEST_REASON = 200
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
"""Free text that is shown beside other text: without line ends, control characters, and what turns its direction."""
LATEST = 1e11
"""A bound for instants, some thousand years away."""
CanaryPercent = Annotated[float, Field(gt=0, lt=100)]
"""What a new revision of a service may get of the requests before it is promoted."""


class Body(BaseModel):
    """Base of all bodies: a newer server may add fields, an older client ignores them."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ErrorDetail(Body):
    """One thing that is wrong in what was sent.

    Attributes:
        loc: path of the field (``tasks.min``); empty for the whole.
        line, column: from 1; 0 when unknown.
        hint: the nearest valid name, the allowed values, or what to do.
    """

    loc: str = ""
    line: int = 0
    column: int = 0
    message: str
    hint: str = ""


class ErrorBody(Body):
    """What is wrong and what to do about it.

    Attributes:
        code: the kind of error in one word, for programs: ``invalid``, ``not-found``, ``conflict``, ``unavailable``,
            ``unauthorized``, ``forbidden``, ``too-many-tries``, ``defect``, or ``request`` where the request itself
            is malformed.
        id: finds an unexpected error in the server's log.
    """

    cause: str
    code: str = ""
    remedy: str = ""
    details: list[ErrorDetail] = []
    id: str = ""


class ErrorInfo(Body):
    """Body of every answer that is not a success."""

    error: ErrorBody
