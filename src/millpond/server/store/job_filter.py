"""Which jobs a list has, and in which order: of views in memory, and of rows as a database finds them by an index."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.specs.api.jobs.jobs import JobInfo

_JOBS: Final = schema.jobs
_INDEXED: Final = ("parent", "name", "user", "queue", "state")
_RARE: Final = 1_000
"""So many jobs are read one by one in a few milliseconds."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are wanted: those in one of these states, of this user, in this queue, of this name; empty: any.

    Attributes:
        name: ``*`` stands for any letters, ``?`` for one; case counts.
        behind: instant of submission and id of the job behind which they stand in a list.
        oldest_first: so their list is ordered, else the newest first.
    """

    states: tuple[str, ...] = ()
    user: str = ""
    queue: str = ""
    name: str = ""
    behind: tuple[float, str] | None = None
    oldest_first: bool = False

    def matches(self, info: JobInfo) -> bool:
        """Whether a job is one of them."""
        return (
            (not self.states or info.state in self.states)
            and (not self.user or info.user == self.user)
            and (not self.queue or info.queue == self.queue)
            and (not self.name or self._is_named(info.name))
            and (self.behind is None or self._is_behind(info, *self.behind))
        )

    @property
    def has_pattern(self) -> bool:
        """Whether several names may be meant."""
        return "*" in self.name or "?" in self.name

    def _is_named(self, name: str) -> bool:
        return fnmatchcase(name, _literal_bracket(self.name)) if self.has_pattern else name == self.name

    def _is_behind(self, info: JobInfo, at: float, job: str) -> bool:
        own, other = listed_at(info), (-at, job)
        return own < other if self.oldest_first else own > other


ALL_JOBS: Final = JobFilter()


def listed_at(info: JobInfo) -> tuple[float, str]:
    """Where a job stands in a list: the newest first, those of one instant by their ids."""
    return -info.submitted_at, info.id


def conditions_of(engine: sa.Engine, wanted: JobFilter, of: str | None) -> list[sa.ColumnElement[bool]]:
    """What is true of the rows of the jobs that are wanted.

    Args:
        of: the members of this array; empty: jobs and arrays; None: jobs and members.
    """
    conditions = _matches(wanted, of, _indexed(engine, wanted, of))
    if wanted.has_pattern:
        conditions.append(_is_like(engine, wanted.name))
    if wanted.behind is not None:
        conditions += _stands_behind(*wanted.behind, oldest_first=wanted.oldest_first)
    return conditions


def order_of(wanted: JobFilter, of: str | None) -> tuple[sa.ColumnElement[Any], ...]:
    """By what the rows are sorted: jobs as ``listed_at`` or the other way round, members of one array by index."""
    if of:  # indices rise with time, and those of one instant with their ids, the shorter first
        return _JOBS.c.submitted_at, sa.func.length(_JOBS.c.id), _JOBS.c.id
    if wanted.oldest_first:
        return _JOBS.c.submitted_at, _JOBS.c.id.desc()
    return _JOBS.c.submitted_at.desc(), _JOBS.c.id


def _is_like(engine: sa.Engine, pattern: str) -> sa.ColumnElement[bool]:
    """That a name is as a pattern says; by the index of all that lists are filtered by, whatever else is asked."""
    name = _JOBS.c.name
    if engine.dialect.name == "sqlite":
        return name.concat("").op("GLOB", is_comparison=True)(_literal_bracket(pattern))
    plain = re.sub(r"([\\%_])", r"\\\1", pattern)
    return name.like(plain.translate({ord("*"): "%", ord("?"): "_"}), escape="\\")


def _indexed(engine: sa.Engine, wanted: JobFilter, of: str | None) -> Collection[str]:
    """The columns of which an index may be used to find such jobs; ``of`` as in ``conditions_of``.

    SQLite does not know how often a value occurs, and may take the index of one that almost all jobs have. So it is
    asked whether one of several values is rare; where none is, what is the narrowest as a rule decides.
    PostgreSQL knows it, and would read the whole table for expressions, of which it knows nothing.
    """
    if engine.dialect.name != "sqlite":
        return _INDEXED
    if of:
        return ("parent",)
    asked = _asked(wanted)
    rare = (name for name, values in asked.items() if _is_rare(engine, _JOBS.c[name], values))
    if len(asked) > 1 and (narrowest := next(rare, None)) is not None:
        return (narrowest,)
    if wanted.has_pattern:
        return ("parent",)
    if wanted.name:
        return ("name", "parent", "user") if wanted.user else ("name",)
    return ("user", "queue") if wanted.user or wanted.queue else ("parent", "state")


def _is_rare(engine: sa.Engine, column: sa.Column[str], values: Sequence[str]) -> bool:
    """Whether ``_RARE`` jobs at most have one of these values."""
    with engine.connect() as connection:
        return connection.execute(sa.select(column).where(column.in_(values)).offset(_RARE).limit(1)).first() is None


def _stands_behind(at: float, job: str, *, oldest_first: bool) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """What is true of jobs behind one of an instant; the first of the two finds the place in the index."""
    time, same = _JOBS.c.submitted_at, _JOBS.c.submitted_at == at
    if oldest_first:
        return time >= at, sa.or_(time > at, sa.and_(same, _JOBS.c.id < job))
    return time <= at, sa.or_(time < at, sa.and_(same, _JOBS.c.id > job))


def _matches(wanted: JobFilter, of: str | None, indexed: Collection[str]) -> list[sa.ColumnElement[bool]]:
    """What is true of the jobs that are wanted; ``of`` as in ``conditions_of``.

    Args:
        indexed: the columns of which an index may be used; all others are compared as expressions.
    """

    def column(name: str) -> sa.ColumnElement[str]:
        found = _JOBS.c[name]
        return found if name in indexed else found.concat("")

    conditions: list[sa.ColumnElement[bool]] = [column(name).in_(values) for name, values in _asked(wanted).items()]
    conditions.append(_JOBS.c.members == 0 if of is None else column("parent") == of)
    return conditions


def _asked(wanted: JobFilter) -> dict[str, tuple[str, ...]]:
    """The values that are asked for, by column."""
    name = "" if wanted.has_pattern else wanted.name
    each = {"user": (wanted.user,), "name": (name,), "queue": (wanted.queue,), "state": wanted.states}
    return {name: values for name, values in each.items() if any(values)}


def _literal_bracket(pattern: str) -> str:
    """A pattern in which a bracket is no set of letters."""
    return pattern.replace("[", "[[]")
