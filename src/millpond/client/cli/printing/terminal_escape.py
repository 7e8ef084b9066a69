"""What a job wrote, made harmless for a terminal: colours stay, what steers the terminal goes, and marks that turn the
direction of writing are shown by their numbers.

A program's output can move the cursor, rename the window, fill the clipboard, or have the terminal answer as if
its user had typed (ECMA-48; the control sequences of xterm). A reader of a colleague's output expects none of that.
"""

from __future__ import annotations

import re
from typing import Final

RESET: Final = "\x1b[0m"
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
    """Takes the pieces of one stream and gives what a terminal may be shown of them.

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
