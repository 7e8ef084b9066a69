"""How fast jobs really are in a simulated world: by the model of their cards, how many, and who shares one with them.

The simulated engine alone reads this. A policy learns of it what it measures (``ProgressMeasured``).

The file is that of Gavel's simulator (Narayanan et al., OSDI'20, ``simulation_throughputs.json``): by card, such as
``v100``, or ``v100_unconsolidated`` for tasks on several nodes; by job, as ``('ResNet-18', 4)``, a name and a number of
cards; then steps a second alone under ``null``, and in pairs on the same cards, of both, under the other job.
"""

from __future__ import annotations

import ast
import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import InvalidInputError

SPREAD: Final = "_unconsolidated"
ALONE: Final = "null"
NO_FIT: Final = 1e-9
"""Speed of a job, as part of that alone, where the table has none for its pair: both hardly go on."""

SizedJob = tuple[str, int]
"""A kind of job, and on how many cards."""


@dataclass(frozen=True, slots=True)
class SpeedTable:
    """Steps a second of each kind of job.

    Attributes:
        alone: by card and kind, ascending by the number of cards: that number, and the speed.
        pairs: by card, a job and the one that shares its cards, the speed of the first.
        resize_s: by kind, what it costs that tasks join a gang or leave it, in seconds; none: nothing.
    """

    alone: Mapping[tuple[str, str], tuple[tuple[int, float], ...]]
    pairs: Mapping[tuple[str, SizedJob, SizedJob], float]
    resize_s: Mapping[str, float] = field(default_factory=dict)

    def knows(self, kind: str) -> bool:
        """Whether it has the speed of a kind of job on any card."""
        return any(known == kind for _, known in self.alone)

    def full(self, kind: str, cards: int) -> float:
        """Steps a second alone on so many of the fastest cards; 0 where it does not know the job."""
        return max((self._alone(card, kind, cards) for card in self._cards(kind)), default=0.0)

    def of(self, kind: str, cards: int, card: str, *, is_spread: bool, beside: SizedJob | None = None) -> float:
        """Steps a second on so many cards of a model, on several nodes or not, alone or beside another job.

        Raises:
            InvalidInputError: it does not know the job on that model.
        """
        card = family_of(card)
        if is_spread and (card + SPREAD, kind) in self.alone:
            card += SPREAD
        speed = self._alone(card, kind, cards)
        if not speed:
            raise InvalidInputError(
                f"the speeds have none of {kind!r} on {card}",
                f"name another model of cards (--cluster NxG:MODEL); it is known on {', '.join(self._cards(kind))}",
            )
        if beside is None:
            return speed
        return self.pairs.get((card, (kind, cards), beside), 0.0) or speed * NO_FIT

    def _alone(self, card: str, kind: str, cards: int) -> float:
        """Between two known numbers of cards on the line between them; beyond, as at the last; below, in proportion."""
        known = self.alone.get((card, kind), ())
        if not known:
            return 0.0
        index = bisect_left(known, (cards, -math.inf))
        if index == len(known):
            return known[-1][1]
        above, speed = known[index]
        if above == cards or index == 0:
            return speed * cards / above
        below, slower = known[index - 1]
        return slower + (speed - slower) * (cards - below) / (above - below)

    def _cards(self, kind: str) -> list[str]:
        return sorted({card for card, known in self.alone if known == kind and not card.endswith(SPREAD)})


@dataclass(frozen=True, slots=True)
class JobSpeed:
    """How fast one job is.

    Attributes:
        job: its kind, and the number of cards that it asks for.
        full: steps a second alone on so many of the fastest cards: what its length is counted by.
    """

    table: SpeedTable
    job: SizedJob
    full: float

    @classmethod
    def of(cls, table: SpeedTable, kind: str, cards: int) -> JobSpeed | None:
        """That of a job; None where it has no cards, or the table does not know its kind."""
        full = table.full(kind, cards) if cards else 0.0
        return cls(table, (kind, cards), full) if full else None

    @property
    def resize_s(self) -> float:
        """What it costs that tasks join it or leave it, in seconds."""
        return self.table.resize_s.get(self.job[0], 0.0)

    def rate(self, cards: int, models: Iterable[str], *, is_spread: bool, beside: SizedJob | None) -> float:
        """Its speed on so many cards as a part of ``full``; on unlike cards that of the slowest.

        Raises:
            InvalidInputError: it is not known on one of the models.
        """
        speeds = (self.table.of(self.job[0], cards, card, is_spread=is_spread, beside=beside) for card in models)
        return min(speeds) / self.full


def family_of(model: str) -> str:
    """The name under which a table has a model of cards: ``v100`` of ``V100-32GB``."""
    return model.lower().partition("-")[0]


def read_speeds(path: Path) -> SpeedTable:
    """The table of a file.

    Raises:
        InvalidInputError: it cannot be read, or has another form.
    """
    try:
        plain = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read ({error.strerror})", "check the path given to --speeds"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{path} is no JSON ({error})", "give a file of speeds; see docs/trace-format.md"
        ) from error
    try:
        return _table(plain)
    except (AttributeError, KeyError, TypeError, ValueError, SyntaxError, RecursionError) as error:
        raise InvalidInputError(
            f"{path} is no file of speeds ({error!r:.120})",
            "by card and job, it has steps a second under null and by the other job; see docs/trace-format.md",
        ) from error


def _table(plain: Any) -> SpeedTable:
    alone: dict[tuple[str, str], dict[int, float]] = {}
    pairs: dict[tuple[str, SizedJob, SizedJob], float] = {}
    for card, jobs in plain.items():
        for text, speeds in jobs.items():
            job = _sized_job(text)
            for other, speed in speeds.items():
                if other == ALONE:
                    alone.setdefault((card, job[0]), {})[job[1]] = _speed(speed, least=1e-12)
                else:
                    own, _ = speed
                    pairs[card, job, _sized_job(other)] = _speed(own, least=0.0)
    if not alone:
        raise ValueError("no speed of a job alone")
    return SpeedTable({key: tuple(sorted(known.items())) for key, known in alone.items()}, pairs)


def _sized_job(text: str) -> SizedJob:
    kind, cards = ast.literal_eval(text)
    if not isinstance(kind, str) or type(cards) is not int or cards < 1:
        raise ValueError(f"{text} is not a job's name and its number of cards")
    return kind, cards


def _speed(value: Any, least: float) -> float:
    speed = float(value)
    if not math.isfinite(speed) or speed < least:
        raise ValueError(f"a speed of {value}")
    return speed
