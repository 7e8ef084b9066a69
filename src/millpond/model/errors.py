"""The exception tree. Every error names its cause and the remedy, so that the last line a user sees is useful."""

from __future__ import annotations


class MillpondError(Exception):
    """An error a user can act on.

    Args:
        cause: what is wrong, with the offending value in it.
        remedy: what to do about it; empty when nothing can be advised.

    Attributes:
        code: the kind of error in one word, for programs; that of the server where it refused.
    """

    exit_code = 1
    code = "defect"

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(f"{cause}; {remedy}" if remedy else cause)
        self.cause = cause
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[MillpondError], tuple[str, str]]:
        """Survives the way between processes with cause and remedy apart."""
        return type(self), (self.cause, self.remedy)


class InvalidInputError(MillpondError):
    """What the user wrote cannot be accepted: a value, a file, a combination."""

    exit_code = 2
    code = "invalid"


class NotFoundError(MillpondError):
    """The named object does not exist."""

    exit_code = 4
    code = "not-found"


class ConflictError(MillpondError):
    """The request contradicts the present state (a duplicate id, a job that has already ended)."""

    exit_code = 5
    code = "conflict"


class NotAllowedError(MillpondError):
    """The caller has no right to it."""

    exit_code = 3
    code = "forbidden"


class NotLoggedInError(NotAllowedError):
    """The caller is not authenticated, or no longer."""

    code = "unauthorized"


class TooManyTriesError(NotAllowedError):
    """Too many logins failed; the remedy says when the next one is looked at."""

    code = "too-many-tries"


class UnavailableError(MillpondError):
    """Something that is needed cannot be reached or used: a server, a port, a directory, a driver."""

    exit_code = 2
    code = "unavailable"


class BusyError(UnavailableError):
    """Too much of the caller's is under way already. Nothing was begun, and soon there is room."""

    code = "busy"


class LeadershipLostError(MillpondError):
    """Another server does this one's work. Not a fault of this one: a service manager may start it again."""


class InconsistentStateError(MillpondError):
    """An internal promise is broken (a ledger below zero, an illegal transition). Always a defect of Millpond."""

    exit_code = 70
