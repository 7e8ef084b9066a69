"""Queries that keep the scheduler's thread long: answered one after the other, for a part of each turn.

A script may ask of ten thousand jobs at once why they wait. What happens meanwhile is not kept waiting for all these
answers, nor are other questions.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.server.runtime.core import Core
from millpond.server.runtime.inbox import Message, Query, answer, is_wanted

TURN_S: Final = 0.05
"""For so long questions are answered in a turn: one is always, and the last of them may take longer."""


class LongQuestions:
    """Those that wait for an answer, first to last."""

    def __init__(self) -> None:
        self._waiting: deque[Query] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self, messages: Sequence[Message]) -> list[Message]:
        """Take the long questions out of what came in; returns the rest."""
        self._waiting += [message for message in messages if isinstance(message, Query) and message.is_long]
        return [message for message in messages if not (isinstance(message, Query) and message.is_long)]

    def answer_some(self, core: Core) -> None:
        """Answer those whose turn it is, and that somebody still waits for."""
        until = time.monotonic() + TURN_S
        while self._waiting:
            question = self._waiting.popleft()
            if is_wanted(question):
                answer(question, core)
                if time.monotonic() >= until:
                    return

    def turn_away(self) -> None:
        """Answer all with an error: the thread has ended."""
        while self._waiting:
            question = self._waiting.popleft()
            if is_wanted(question):
                question.answer.set_exception(UnavailableError("the scheduler has ended", "ask again when it runs"))
