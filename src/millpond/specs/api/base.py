"""What all of the REST API has in common; the bodies of each subject are in a file of their own.

Requests are pydantic models (``models.Body``), as the server checks what it is sent. Answers are dataclasses, which a
client reads by ``codec``: to import pydantic takes half of the time of a command that lists jobs. The answers about
accounts, files, images, secrets and SSH are models too, in one file with their requests.

Instants are seconds since 1970 (UTC). Shares of a card are milli (1000 = one card), memory is MiB, CPU is milli-cores.
The body of a submission is a job file (``specs.job.job_file.JobFile``) as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field

API_PREFIX = "/api/v1"
IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Request header of a submission: repeating it with the same key gives the same job, never a second one."""


LONGEST_REASON = 200
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
"""Free text that is shown beside other text: without line ends, control characters, and what turns its direction."""
LATEST = 1e11
"""A bound for instants, some thousand years away."""
ERROR_CODES = {
    "request": "The request itself is malformed, or there is no such route (400, 404, 405, 422).",
    "invalid": "What was sent cannot be accepted; `details` has each fault with its place (422).",
    "not-found": "There is no such object, or the caller may not see it (404).",
    "conflict": "It contradicts the present state (409, 416).",
    "unauthorized": "Not logged in, or not any more (401).",
    "forbidden": "The caller has no right to it (403).",
    "too-many-tries": "Too many logins failed, or too many codes were sent; the remedy says when to try again (429).",
    "too-large": "The body of the request is larger than it may be (413).",
    "too-slow": "The body of the request came too slowly (408).",
    "busy": "Too much of the caller's is under way already; nothing was begun, and it can soon be asked again (503).",
    "unavailable": "Something that is needed cannot be reached or used now (503).",
    "standby": "This server stands by; another one leads (503).",
    "defect": "A defect of the server; `id` finds it in the server's log (500).",
}
"""What the codes of errors mean, with the statuses that they come with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetail:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """What is wrong and what to do about it.

    Attributes:
        code: the kind of error in one word, for programs: one of ``ERROR_CODES``.
        id: finds an unexpected error in the server's log.
    """

    cause: str
    code: str = ""
    remedy: str = ""
    details: list[ErrorDetail] = field(default_factory=list)
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Body of every answer that is not a success."""

    error: ErrorBody
