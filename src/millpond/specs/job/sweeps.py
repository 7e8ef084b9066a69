"""Sweeps in job files: one job for each trial of some parameters, on a grid or at random.

Trials are numbered from 0, and what a trial's number stands for follows from the job file alone, so nothing about them
is stored.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.arrays import LONGEST_INDICES, MOST_MEMBERS, Members, parse_members
from millpond.specs.validation import Shortened, Strict, or_short

Value = int | float | str | bool
"""What a parameter can be."""
Parameters = dict[str, Value]

MOST_PARAMETERS: Final = 50
MOST_VALUES: Final = 10_000
LONGEST_VALUE: Final = 1_000
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
NUMBER: Final = r"[-+]?+(?:(?:\d{1,40}+(?>\.\d{1,40}+|)|\.\d{1,40}+)(?>[eE][-+]?+\d{1,4}+|)|nan|inf|NaN|Infinity)"
"""A number in a printed line; it takes what it can and gives nothing back, so that no line takes long.

Without possessive groups, which do not match nothing with Python before 3.11.5 (Debian 12 has 3.11.2)."""
_CONTINUES_NUMBER: Final = re.compile(r"\d|\.\d|[eE][-+]?\d")
_LARGEST: Final = 1e300
"""A bound for bounds: their difference is a number too."""
_Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]
_Bound = _Whole | Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
_Bounds = Annotated[list[_Bound], Field(min_length=2, max_length=2)]


class Space(Shortened):
    """Values of one parameter; a list is ``values``. Exactly one of these.

    Attributes:
        values: these.
        range: whole numbers from the first to the last, both included; a third number is the step.
        uniform, log_uniform: any number between two; with ``log_uniform`` each power of ten is as likely as the next.
    """

    model_config = or_short({"type": "array", "items": {}, "minItems": 1})

    values: Annotated[list[Value], Field(min_length=1, max_length=MOST_VALUES)] | None = None
    range: Annotated[list[_Whole], Field(min_length=2, max_length=3)] | None = None
    uniform: _Bounds | None = None
    log_uniform: _Bounds | None = None

    @classmethod
    def from_short(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"values": value}
        raise BadValueError(
            f"{as_written(value)} has no values", "write [a, b], {range: [1, 10]} or {log_uniform: [1e-5, 1e-1]}"
        )

    @model_validator(mode="after")
    def _makes_sense(self) -> Space:
        given = [name for name in ("values", "range", "uniform", "log_uniform") if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadValueError(f"{len(given)} of values, range, uniform and log_uniform", "give exactly one of them")
        for value in self.values or ():
            if isinstance(value, float) and not math.isfinite(value):
                raise BadValueError(f"{value} is not a number to try", "leave it out")
            if isinstance(value, str) and (len(value) > LONGEST_VALUE or "\0" in value):
                raise BadValueError("a text that is too long or has a NUL character", "shorten it")
        if self.range is not None and not 1 <= len(self._whole()) <= MOST_VALUES:
            raise BadValueError(f"a range of {self.range}", f"use [first, last] with 1 to {MOST_VALUES} values")
        bounds = self.uniform or self.log_uniform
        if bounds is not None and not bounds[0] < bounds[1]:
            raise BadValueError(f"bounds {bounds}", "write the lower one first")
        if self.log_uniform is not None and self.log_uniform[0] <= 0:
            raise BadValueError(f"log_uniform from {self.log_uniform[0]}", "use bounds above 0")
        return self

    @property
    def choices(self) -> Sequence[Value] | None:
        """All its values; None when there is no end of them."""
        if self.values is not None:
            return self.values
        return self._whole() if self.range is not None else None

    def draw(self, lots: random.Random) -> Value:
        """One of its values."""
        choices = self.choices
        if choices is not None:
            return choices[lots.randrange(len(choices))]
        if self.log_uniform is not None:
            low, high = (math.log(bound) for bound in self.log_uniform)
            return float(f"{math.exp(lots.uniform(low, high)):.6g}")
        assert self.uniform is not None, "a space is one of four"
        return float(f"{lots.uniform(*self.uniform):.6g}")

    def _whole(self) -> Sequence[int]:
        first, last, step = (*(self.range or [0, -1]), 1)[:3]
        return range(first, last + 1, step) if step >= 1 else range(0)


class SweepMetric(Shortened):
    """The number by which trials are compared; what ``millpond.job.report`` reports of it, or what the trial prints.

    Attributes:
        name: as the trials report it.
        goal: whether less or more of it is better.
        printed: how a printed line gives it, with ``{value}`` for the number: ``val loss: {value}``. Default: the name,
            then ``=`` or ``:``.
        printed_step: likewise for the step, with ``{step}``. Without one in the line, lines with a value are counted.
    """

    model_config = or_short({"type": "string", "minLength": 1})

    name: Annotated[str, Field(min_length=1, max_length=100)]
    goal: Literal["minimize", "maximize"] = "minimize"
    printed: Annotated[str, Field(max_length=200)] | None = None
    printed_step: Annotated[str, Field(max_length=200)] | None = None

    @classmethod
    def from_short(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    def described(self) -> str:
        """Its name, and how a trial reports it."""
        line = (self.printed or f"{self.name}={{value}}").replace("{value}", "0.5")
        argument = f"{self.name}=0.5" if self.name.isidentifier() else f"**{{{self.name!r}: 0.5}}"
        return f"{self.name}; report it with millpond.job.report({argument}), or print a line such as {line!r}"

    @model_validator(mode="after")
    def _has_places(self) -> SweepMetric:
        for text, place in ((self.printed, "{value}"), (self.printed_step, "{step}")):
            if text is not None and text.count(place) != 1:
                raise BadValueError(
                    f"{text!r} does not have {place} exactly once", f"write for example 'loss: {place}'"
                )
            after = text.partition(place)[2] if text is not None else ""
            if _CONTINUES_NUMBER.match(after):
                cause = f"{text!r}: what follows {place} would be read as a part of the number, so no line would fit"
                raise BadValueError(cause, f"put a blank behind {place}, or end there")
        return self

    def better(self, one: float, other: float) -> bool:
        """Whether the first is nearer to the goal than the second."""
        return one < other if self.goal == "minimize" else one > other


class Halving(Strict):
    """Successive halving: at each rung, all but the best of those that came so far are stopped.

    Attributes:
        factor: the best of so many go on: with 3 the best third.
        first_step: the first rung; the next ones are ``factor`` times as far each.
        rungs: the steps of the rungs instead, rising.
    """

    factor: Annotated[int, Field(ge=2, le=100)] = 3
    first_step: Annotated[int, Field(ge=1, le=10**12)] = 1
    rungs: Annotated[list[Annotated[int, Field(ge=1, le=10**15)]], Field(min_length=1, max_length=50)] | None = None

    @model_validator(mode="after")
    def _rising(self) -> Halving:
        if self.rungs is not None and any(one >= other for one, other in pairwise(self.rungs)):
            raise BadValueError(f"rungs {self.rungs}", "write rising steps")
        return self


class SweepFile(Strict):
    """A job for each trial of some parameters.

    Attributes:
        parameters: name and values of each.
        method: ``grid`` tries all combinations, ``random`` draws ``samples`` of them.
        samples: with ``grid``, no more than the first so many.
        seed: the same seed draws the same parameters.
        parallel: at most so many trials at once.
        metric: by what they are compared.
        halving: stop those early that fall behind.
        only: these trials alone, such as ``3,7-9``.
    """

    parameters: Annotated[dict[str, Space], Field(min_length=1, max_length=MOST_PARAMETERS)]
    method: Literal["grid", "random"] = "grid"
    samples: Annotated[int, Field(ge=1, le=MOST_MEMBERS)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**63)] = 0
    parallel: Annotated[int, Field(ge=1, le=MOST_MEMBERS)] | None = None
    metric: SweepMetric | None = None
    halving: Halving | None = None
    only: Annotated[str, Field(min_length=1, max_length=LONGEST_INDICES)] | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> SweepFile:
        _check_names(self.parameters)
        endless = [name for name, space in self.parameters.items() if space.choices is None]
        if self.method == "grid" and endless:
            raise BadValueError(
                f"a grid over {endless[0]}, of which there is no end", "use method: random with samples"
            )
        if self.method == "random" and self.samples is None:
            raise BadValueError("a random sweep without samples", "say how many trials to draw")
        if self.halving is not None and self.metric is None:
            raise BadValueError("halving without a metric", "name the number that decides: metric: loss")
        if self.count > MOST_MEMBERS:
            raise BadValueError(
                f"a sweep of {self.count} trials", f"use at most {MOST_MEMBERS}, for example with samples"
            )
        if self.only is not None:
            chosen = parse_members(self.only)
            if chosen.parallel is not None or chosen.last >= self.count:
                raise BadValueError(f"trials {self.only}", f"name some of 0 to {self.count - 1}")
        return self

    @property
    def count(self) -> int:
        """Trials in all."""
        if self.method == "random":
            return self.samples or 0
        size = math.prod(len(space.choices or ()) for space in self.parameters.values())
        return size if self.samples is None else min(size, self.samples)

    @cached_property
    def members(self) -> Members:
        """The trials to be run."""
        ranges = (range(self.count),) if self.only is None else parse_members(self.only).ranges
        return Members(ranges, self.parallel)

    def trial(self, number: int) -> Parameters:
        """The parameters of a trial. Numbers count as on a clock: the last parameter changes first."""
        if self.method == "random":
            return {
                name: space.draw(random.Random(f"{self.seed}:{number}:{name}"))
                for name, space in self.parameters.items()
            }
        found: Parameters = {}
        for name, space in reversed(self.parameters.items()):
            choices = space.choices or ()
            number, place = divmod(number, len(choices))
            found[name] = choices[place]
        return {name: found[name] for name in self.parameters}


def _check_names(names: Mapping[str, Any]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadValueError(f"{name!r} is not a name of a parameter", "use letters, digits and _")
        if (other := seen.setdefault(name.upper(), name)) != name:
            raise BadValueError(f"the parameters {other} and {name} have one variable", "rename one of them")
        if name == "index":
            raise BadValueError("a parameter called index", "{index} is the trial's number; rename it")
