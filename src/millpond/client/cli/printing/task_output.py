"""A job's output on the screen: one task's exactly as written, several tasks' line by line with the task in front.

What a task wrote to standard error goes to standard error. A terminal is shown it without what would steer it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TextIO

from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.task_lines import RESET, TaskLines
from millpond.specs.api.jobs.logs import LogChunk

_LONGEST_SEQUENCE: Final = 4_096
"""Characters that may belong to one sequence; what is longer, or goes on in another line, is text."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*+m")
_STEERING: Final = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]"  # a control sequence: CSI, parameters, final character
    r"|\x1b[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\|(?=\x1b|\n))"  # a string: OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*+[0-Z\\^-~]"  # another escape: a character set, a reset
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # a control character, of eight bits too; not tab, line end, return
)
_TURNING: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""A line with one of them reads otherwise than it is (Unicode Technical Report 36, section 2.10.3)."""
_BEGUN: Final = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+|[\]PX^_][^\x07\x1b\n]*+\x1b?+|[ -/]*+)?\Z")
"""A sequence at the end of a piece, which may go on in the next one."""


class TerminalFilter:
    """Takes the pieces of one stream and gives what a terminal may be shown of them: colours stay, what steers the
    terminal goes, and marks that turn the direction of writing are shown by their numbers.

    A program's output can move the cursor, rename the window, fill the clipboard, or have the terminal answer as if
    its user had typed (ECMA-48; the control sequences of xterm). A reader of a colleague's output expects none of that.

    Attributes:
        has_colours: whether anything that was shown sets colours.
    """

    def __init__(self) -> None:
        self.has_colours = False
        self._begun = ""

    def shown(self, piece: str) -> str:
        """A piece, without what steers the terminal; a sequence that is cut in two is kept for the next one."""
        text = self._begun + piece
        cut = _BEGUN.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
        self._begun = "" if cut is None else text[cut.start() :]
        shown = _STEERING.sub(self._colour, text[: len(text) - len(self._begun)])
        return _TURNING.sub(lambda mark: f"\\u{ord(mark[0]):04x}", shown)

    def _colour(self, found: re.Match[str]) -> str:
        if _COLOUR.fullmatch(found[0]) is None:
            return ""
        self.has_colours = True
        return found[0]


class Output:
    """Prints pieces of output.

    Args:
        streams: where to, standard output and standard error.
        labelled: put ``[task]`` before each line.
        timed: put the time before each line.
        notify: how to say that another run of the job begins.
        raw: to a terminal too, exactly what was written.
    """

    def __init__(
        self,
        streams: tuple[TextIO, TextIO],
        labelled: bool,
        timed: bool = False,
        notify: Callable[[str], None] = say,
        *,
        raw: bool = False,
    ) -> None:
        self._filtered = {stream for stream in streams if not raw and stream.isatty()}
        self._filters: dict[tuple[int, int, str], TerminalFilter] = {}
        self._streams = streams
        self._labelled = labelled
        self._timed = timed
        self._notify = notify
        self._lines = TaskLines()
        self._attempt = 0

    def write(self, chunk: LogChunk) -> None:
        """Print one piece."""
        if chunk.attempt > self._attempt:
            if self._attempt:
                self._lines.clear()
                self._notify(f"{chunk.job} was started again, run {chunk.attempt}")
            self._attempt = chunk.attempt
        stream = self._stream(chunk.stream)
        data = self._shown(chunk, stream)
        if self._labelled or self._timed:
            self._lines.write((chunk.attempt, chunk.task, chunk.stream), self._head(chunk), data, stream)
            if chunk.attempt_over:
                for name in ("stdout", "stderr"):
                    self._lines.end((chunk.attempt, chunk.task, name))
        else:
            stream.write(data)
        stream.flush()

    def finish(self) -> None:
        """Print what tasks left without a line end."""
        self._lines.end_all()
        self.restore()

    def restore(self) -> None:
        """Leave the terminal without the colours of a task, and without a line that is not over."""
        self._lines.clear()
        for stream in {self._stream(key[2]) for key, known in self._filters.items() if known.has_colours}:
            stream.write(RESET)
            stream.flush()

    def _stream(self, name: str) -> TextIO:
        return self._streams[name == "stderr"]

    def _shown(self, chunk: LogChunk, stream: TextIO) -> str:
        """What the stream may be shown of a piece."""
        if stream not in self._filtered:
            return chunk.data
        return self._filters.setdefault((chunk.attempt, chunk.task, chunk.stream), TerminalFilter()).shown(chunk.data)

    def _head(self, chunk: LogChunk) -> str:
        """What stands before a line that begins in this piece."""
        time = ""
        if self._timed:
            time = "-" * formats.PRECISE_WIDTH if chunk.written_at is None else formats.precise_text(chunk.written_at)
        return " ".join(part for part in (time, f"[{chunk.task}]" if self._labelled else "") if part) + " "
