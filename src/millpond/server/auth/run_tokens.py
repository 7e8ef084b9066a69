"""Tokens of runs: with one, a pod fetches the files of its own run and brings back its output.

Nothing is stored: a token says whose run it is for, signed, and opens something only while that run lives.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "pondrun_"
HOW: Final = "run"
"""How such a caller came in (``roles.Caller.how``)."""


@dataclass(frozen=True, slots=True)
class PodRun:
    """One run of a job, and the job's user."""

    user: str
    job: str
    attempt: int

    @property
    def name(self) -> str:
        """Stands for a token's id."""
        return f"{self.job}/{self.attempt}"


class RunTokens:
    """Signs and reads them.

    Args:
        secret: what they are signed with; another one makes all of them void.

    Attributes:
        lives: whether a run goes on, or may; where no jobs are pods, none does.
    """

    def __init__(self, secret: str) -> None:
        self._key = hashlib.sha256(b"millpond run\0" + secret.encode()).digest()
        self.lives: Callable[[str, int], bool] = lambda _job, _attempt: False

    def token(self, run: PodRun) -> str:
        """The token of a run, always the same."""
        said = base64.urlsafe_b64encode(json.dumps([run.user, run.job, run.attempt]).encode()).decode().rstrip("=")
        return f"{PREFIX}{said}.{self._signature(said)}"

    def run_of(self, token: str) -> PodRun | None:
        """The run that a token is for; None when it is not this server's, or that run is over."""
        said, _, signature = token.removeprefix(PREFIX).partition(".")
        if not token.startswith(PREFIX) or not hmac.compare_digest(signature.encode(), self._signature(said).encode()):
            return None
        user, job, attempt = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
        return PodRun(user, job, attempt) if self.lives(job, attempt) else None

    def _signature(self, said: str) -> str:
        return hmac.new(self._key, said.encode(), hashlib.sha256).hexdigest()
