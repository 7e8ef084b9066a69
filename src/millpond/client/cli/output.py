"""A job's output on the screen: one task's exactly as written, several tasks' line by line with the task in front."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from millpond.client.cli.complaints import say
from millpond.specs.log_bodies import LogChunk


class Output:
    """Prints pieces of output.

    Args:
        stream: where to.
        labelled: put ``[task]`` before each line.
        tell: how to say that another run of the job begins.
    """

    def __init__(self, stream: TextIO, labelled: bool, tell: Callable[[str], None] = say) -> None:
        self._stream = stream
        self._labelled = labelled
        self._tell = tell
        self._open_lines: dict[tuple[int, int], str] = {}
        self._attempt = 0

    def write(self, chunk: LogChunk) -> None:
        """Print one piece."""
        if chunk.attempt > self._attempt:
            if self._attempt:
                self._tell(f"{chunk.job} was started again, run {chunk.attempt}")
            self._attempt = chunk.attempt
        if self._labelled:
            self._write_lines(chunk)
        else:
            self._stream.write(chunk.data)
        self._stream.flush()

    def finish(self) -> None:
        """Print what tasks left without a line end."""
        for (_, task), rest in self._open_lines.items():
            self._stream.write(f"[{task}] {rest}\n")
        self._open_lines.clear()
        self._stream.flush()

    def _write_lines(self, chunk: LogChunk) -> None:
        """Whole lines only: two tasks that write at once must not share a line."""
        key = (chunk.attempt, chunk.task)
        *lines, rest = (self._open_lines.pop(key, "") + chunk.data).split("\n")
        if rest and chunk.attempt_over:
            lines.append(rest)
        elif rest:
            self._open_lines[key] = rest
        for line in lines:
            self._stream.write(f"[{chunk.task}] {line}\n")
