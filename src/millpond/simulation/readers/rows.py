"""Rows of a CSV file that know where they stand, so that every complaint names file, line and column."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from millpond.model.amounts import decimal_text
from millpond.model.errors import InvalidInputError
from millpond.simulation.trace import TraceJob, Workload, refuse_rows

Choice = TypeVar("Choice")


class Row:
    """One line of a CSV file.

    Attributes:
        file, line: where it stands; lines count from 1, the header included.
    """

    __slots__ = ("_columns", "_values", "file", "line")

    def __init__(self, file: str, line: int, columns: dict[str, int], values: list[str]) -> None:
        self.file = file
        self.line = line
        self._columns = columns
        self._values = values

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"

    def text(self, column: str, default: str = "") -> str:
        """The cell, or ``default`` if the column is not there or the cell is empty."""
        index = self._columns.get(column)
        return (self._values[index].strip() if index is not None else "") or default

    def number(self, column: str, *, least: float = -math.inf, default: float | None = None) -> float:
        """The cell as a finite number of at least ``least``; an empty one is ``default``, or wrong if there is none."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least:
            raise self.error(
                column, "a number" if least == -math.inf else f"a number of at least {decimal_text(least)}"
            )
        return value

    def integer(self, column: str, *, least: int, default: int | None = None) -> int:
        """The cell as a whole number of at least ``least``."""
        value = self.number(column, default=None if default is None else float(default), least=-math.inf)
        if value != int(value) or value < least:
            raise self.error(column, f"a whole number of at least {least}")
        return int(value)

    def choice(self, column: str, choices: dict[str, Choice], default: Choice) -> Choice:
        """The value of ``choices`` that the cell names; an empty cell is ``default``."""
        text = self.text(column)
        if not text:
            return default
        if text.lower() not in choices:
            raise self.error(column, f"one of {', '.join(choices)}")
        return choices[text.lower()]

    def error(self, column: str, expected: str) -> InvalidInputError:
        """A complaint about one cell."""
        found = repr(self.text(column)) if self.text(column) else "nothing"
        return InvalidInputError(
            f"{self.where}: column {self._columns.get(column, -1) + 1} ({column}): expected {expected}, found {found}"
        )


class Table:
    """A CSV file, plain or gzip-compressed, with a header line.

    Args:
        columns: of a file that has no header line.

    Raises:
        InvalidInputError: the file cannot be read, is not text, or has no header.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None, delimiter: str = ",") -> None:
        self.path = path
        self._lines = csv.reader(io.StringIO(_text_of(path), newline=""), delimiter=delimiter)
        header = next(self._lines, None) if columns is None else columns
        if header is None:
            raise InvalidInputError(f"{path} is empty", "give a CSV file with a header line")
        self.header = [name.strip() for name in header]
        self._columns = {name: index for index, name in enumerate(self.header)}
        if len(self._columns) != len(self.header):
            twice = next(name for name in self.header if self.header.count(name) > 1)
            raise InvalidInputError(f"{path}:1: column {twice!r} is there twice", "name each column once")

    def require(self, needed: Collection[str], known: Collection[str] | None = None) -> None:
        """Refuse a header that lacks a needed column or, where ``known`` is given, has one that nothing reads.

        Raises:
            InvalidInputError: naming the first such column, and the nearest known name.
        """
        for name in needed:
            if name not in self._columns:
                joined = len(self.header) == 1 and re.search(r"[;\t|]", self.header[0])
                hint = f"separate columns with commas, not {joined[0]!r}; " if joined else ""
                raise InvalidInputError(
                    f"{self.path}:1: column {name!r} is missing (found: {', '.join(self.header)})",
                    f"{hint}this format needs the columns {', '.join(needed)}; see docs/trace-format.md",
                )
        for index, name in enumerate(self.header, 1):
            if known is not None and name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise InvalidInputError(
                    f"{self.path}:1: column {index}: unknown name {name!r}", f"{hint}known are {', '.join(known)}"
                )

    def rows(self) -> Iterator[Row | InvalidInputError]:
        """The rows in order without blank lines; one with a wrong number of cells comes as the complaint about it."""
        for values in self._parsed():
            if not any(values):
                continue
            line = self._lines.line_num
            if len(values) == len(self.header):
                yield Row(str(self.path), line, self._columns, values)
            else:
                column = min(len(values), len(self.header)) + 1
                yield InvalidInputError(
                    f"{self.path}:{line}: column {column}: expected {len(self.header)} cells, found {len(values)}"
                )

    def right_rows(self) -> Iterator[Row]:
        """The same of a file in which every row counts.

        Raises:
            InvalidInputError: one has a wrong number of cells.
        """
        for row in self.rows():
            if isinstance(row, InvalidInputError):
                raise InvalidInputError(row.cause, "correct the row")
            yield row

    def _parsed(self) -> Iterator[list[str]]:
        try:
            yield from self._lines
        except csv.Error as error:
            where = f"{self.path}:{self._lines.line_num}"
            raise InvalidInputError(
                f"{where}: not a CSV line ({error})", "close every quote; give a CSV file"
            ) from error


def read_jobs(table: Table, trace_job: Callable[[Row], TraceJob | None], *, skip_bad_rows: bool) -> Workload:
    """The jobs of a trace in order of submission; rows submitted at one instant keep their order.

    Args:
        trace_job: the job of a row; None: the row is left out, and counted.
        skip_bad_rows: leave wrong rows out and count them, instead of refusing the whole file.

    Raises:
        InvalidInputError: rows were wrong and are not to be skipped, or none is left.
    """
    found: dict[str, TraceJob] = {}
    errors: list[str] = []
    dropped = 0
    for row in table.rows():
        if isinstance(row, InvalidInputError):
            errors.append(row.cause)
            continue
        try:
            entry = trace_job(row)
            if entry is None:
                dropped += 1
            elif (earlier := found.setdefault(entry.job.id, entry)) is not entry:
                raise InvalidInputError(f"job id {entry.job.id!r} was used before, at {earlier.where}")
        except InvalidInputError as error:
            located = error.cause if error.cause.startswith(row.where) else f"{row.where}: {error.cause}"
            errors.append(f"{located} ({error.remedy})" if error.remedy else located)
    refuse_rows(errors, skip_bad_rows)
    if not found:
        raise InvalidInputError(f"{table.path} holds no job to replay", "give a file with at least one valid row")
    jobs = tuple(sorted(found.values(), key=lambda entry: entry.submit_at))
    return Workload(jobs, str(table.path), tuple(errors), dropped)


def _text_of(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidInputError(f"{path}:{line}: not UTF-8 text", "save it as UTF-8") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInputError(f"{path} is a broken gzip file ({error})", "fetch or compress it again") from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read ({error.strerror})", "check the path") from error
