"""What is wrong with a text that is not YAML: where to look, and what to write instead.

The parser names what it met where it gave up, such as the end of the file for a quote that was never closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import yaml

_CLOSE: Final = "close it: ' with ', \" with \", { with }, [ with ]"


_NO_ALIAS: Final = "put text that begins with * or & in quotes"


_REMEDIES: Final = (
    ("mapping values are not allowed", "indent the line like those around it, or put text with ': ' in it in quotes"),
    ("found character '\\t'", "indent with spaces"),
    ("cannot start any token", "put text that begins with it in quotes"),
    ("found undefined alias", _NO_ALIAS),
    ("expected alphabetic or numeric character", _NO_ALIAS),
    ("found unknown escape character", "write \\\\ for a backslash, or use single quotes"),
    ("could not find expected ':'", "write 'name: value'"),
    ("expected <block end>", "look at the quotes and the indentation of this line"),
    ("<stream end>", _CLOSE),
    ("found unexpected end of stream", _CLOSE),
)


_AT_THE_BEGINNING: Final = ("could not find expected ':'", "<stream end>", "found unexpected end of stream")
"""Faults that are met long after what they are about."""


@dataclass(frozen=True, slots=True)
class YamlFault:
    """A fault of a text.

    Attributes:
        line, column: from 1; 0 where they are not known.
        remedy: may be empty.
    """

    cause: str
    remedy: str
    line: int
    column: int


def yaml_fault(error: yaml.MarkedYAMLError) -> YamlFault:
    """What the parser's error is about."""
    problem = str(error.problem or error.context)
    is_earlier = any(known in problem for known in _AT_THE_BEGINNING)
    mark = (is_earlier and error.context_mark) or error.problem_mark or error.context_mark
    remedy = next((remedy for known, remedy in _REMEDIES if known in problem), "")
    cause = "what begins here has no end" if remedy is _CLOSE else problem
    return YamlFault(cause, remedy, mark.line + 1 if mark else 0, mark.column + 1 if mark else 0)
