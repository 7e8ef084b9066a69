"""Job arrays in job files: ``array: 10000``, ``array: 0-99:2%8``, ``array: {indices: "1,5-9", parallel: 4}``."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.fields import MOST_TASKS
from millpond.specs.validation import Shortened, or_short

MOST_MEMBERS: Final = MOST_TASKS
HIGHEST_INDEX: Final = 10**9
LONGEST_INDICES: Final = 1_000_000

_PART: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?")
_COUNT: Final = re.compile(r"[0-9]{1,10}")
_HINT: Final = "write a count (100), or indices such as 0-99, 0-99:2, 1,5,7-9, with %8 for at most 8 at once"


@dataclass(frozen=True)
class Members:
    """The indices of an array's members, rising.

    Attributes:
        ranges: they do not overlap; kept as ranges, so that a hundred thousand indices cost as much as one.
        parallel: how many may be under way at once; None: as many as there is room for.
    """

    ranges: tuple[range, ...]
    parallel: int | None = None

    def __len__(self) -> int:
        return self._counts[-1]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.ranges)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return ",".join(map(_written, self.ranges))

    @cached_property
    def _counts(self) -> Sequence[int]:
        """How many indices there are before each range, and in all: there may be as many ranges as members."""
        return tuple(accumulate(map(len, self.ranges), initial=0))

    @property
    def first(self) -> int:
        """The lowest index."""
        return self.ranges[0][0]

    @property
    def last(self) -> int:
        """The highest index."""
        return self.ranges[-1][-1]

    def position(self, index: int) -> int | None:
        """The place of an index among all, from 0; None when it is none of them."""
        place = bisect_right(self.ranges, index, key=_first_of) - 1
        if place < 0 or index not in self.ranges[place]:
            return None
        return self._counts[place] + self.ranges[place].index(index)

    def at(self, position: int) -> int:
        """The index at a place.

        Raises:
            IndexError: there is no such place.
        """
        place = bisect_right(self._counts, position) - 1
        return self.ranges[place][position - self._counts[place]]


def _first_of(part: range) -> int:
    return part[0]


def parse_members(text: str) -> Members:
    """``0-99:2,200%8``.

    Raises:
        BadValueError: it is something else, or an index comes twice, or there are too many.
    """
    indices, limited, most = text.partition("%")
    if limited and (not _COUNT.fullmatch(most) or not 1 <= int(most) <= MOST_MEMBERS):
        raise BadValueError(f"{most[:20]!r} is not how many may run at once", _HINT)
    ranges = sorted((_range(part.strip()) for part in indices.split(",")), key=lambda part: part[0])
    count = sum(map(len, ranges))
    if count > MOST_MEMBERS:
        raise BadValueError(f"an array of {count} members", f"use at most {MOST_MEMBERS}")
    if any(one[-1] >= other[0] for one, other in pairwise(ranges)):
        seen = sorted(chain.from_iterable(ranges))
        twice = next((one for one, other in pairwise(seen) if one == other), None)
        if twice is not None:
            raise BadValueError(f"the index {twice} comes twice", "name each once")
        ranges = _runs(seen)
    return Members(tuple(ranges), int(most) if limited else None)


def written_indices(indices: Iterable[int]) -> str:
    """Indices in the short form: ``0-3,7``."""
    return ",".join(map(_written, _runs(sorted(indices))))


class ArrayFile(Shortened):
    """Many jobs of one job file that differ in their index alone.

    Attributes:
        count: so many, with the indices 0 to count - 1.
        indices: these instead: ``0-99:2``, ``1,5,7-9``.
        parallel: at most so many at once.
    """

    model_config = or_short({"type": "integer", "minimum": 1, "maximum": MOST_MEMBERS}, {"type": "string"})

    count: Annotated[int, Field(ge=1, le=MOST_MEMBERS)] | None = None
    indices: Annotated[str, Field(min_length=1, max_length=LONGEST_INDICES)] | None = None
    parallel: Annotated[int, Field(ge=1, le=MOST_MEMBERS)] | None = None

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """``100`` and ``0-99%8`` as the long form."""
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= MOST_MEMBERS:
                raise BadValueError(f"an array of {value} members", f"use 1 to {MOST_MEMBERS}")
            return {"count": value}
        if not isinstance(value, str) or not value or len(value) > LONGEST_INDICES:
            raise BadValueError(f"{as_written(value)} is not an array", _HINT)
        given, limited, most = value.partition("%")
        if _COUNT.fullmatch(given):
            form: dict[str, Any] = {"count": int(given)}
            parallel = parse_members(f"0%{most}").parallel if limited else None
        else:
            form, parallel = {"indices": given}, parse_members(value).parallel
        return form if parallel is None else form | {"parallel": parallel}

    @model_validator(mode="after")
    def _one_of(self) -> ArrayFile:
        if (self.count is None) == (self.indices is None):
            raise BadValueError("an array with neither or both of count and indices", _HINT)
        if self.indices is not None and "%" in self.indices:
            raise BadValueError("a limit within the indices", "write it as parallel")
        self.members  # noqa: B018 - judges the indices
        return self

    @cached_property
    def members(self) -> Members:
        """Which members there are."""
        if self.count is not None:
            return Members((range(self.count),), self.parallel)
        return Members(parse_members(self.indices or "").ranges, self.parallel)


def _range(part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise BadValueError(f"{part[:40]!r} is neither an index nor a range of indices", _HINT)
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first or step < 1 or last > HIGHEST_INDEX:
        raise BadValueError(
            f"the range {part!r} is empty or too high", f"indices rise from 0 to at most {HIGHEST_INDEX}"
        )
    return range(first, last + 1, step)


def _runs(rising: Sequence[int]) -> list[range]:
    """Rising numbers as ranges without gaps."""
    runs: list[range] = []
    for number in rising:
        if runs and runs[-1].stop == number:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs


def _written(part: range) -> str:
    if len(part) == 1:
        return str(part[0])
    return f"{part[0]}-{part[-1]}" + (f":{part.step}" if part.step > 1 else "")
