"""A scenario as people write it: who works when, and under which configurations of the cluster that is played.

Pools, queues and nodes are the sections of the server's configuration file, jobs are job files; both are checked by the
same code as there, so that what a row says can be taken to a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.windows import Window
from millpond.specs.config.cluster import ClusterConfig, check_cluster
from millpond.specs.errors import BadValueError, Problem, SpecError, suggest
from millpond.specs.job.fields import Duration, Name
from millpond.specs.job.job_spec import JobSpec, read_job
from millpond.specs.job.windows import WindowFile
from millpond.specs.source_positions import Located, read_documents
from millpond.specs.validation import Strict, validate

BUILT_IN = ("aistation", "utilisation")
"""Scenarios that come with Millpond."""


_OF_THE_TRACE = frozenset({"gpus", "tasks", "roles"})


def _instant(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise BadValueError(f"{text!r} is no date", "write 2026-01-05 or 2026-01-05 09:00 (UTC)") from error
    return text


class CostsFile(Strict):
    """What the simulated cluster charges (``simulation.world.costs``).

    Attributes:
        start: from the decision to start a job until its work begins; its cards are held meanwhile.
        restore: the same again for a job that ran before.
        lost_work: work since the last checkpoint, which a job that is preempted or fails repeats; one without
            checkpoints repeats all.
        suspend: what suspending takes, and resuming again.
        swap_gib_per_s: device memory that moves to the host or back in a second; 0: it moves at once.
        sharing_speed: speed of training on a card that others use too.
        failing: part of the runs of training jobs that fail.
    """

    start: Duration = 0.0
    restore: Duration = 0.0
    lost_work: Duration = 0.0
    suspend: Duration = 0.0
    swap_gib_per_s: Annotated[float, Field(ge=0)] = 0.0
    sharing_speed: Annotated[float, Field(gt=0, le=1)] = 1.0
    failing: Annotated[float, Field(ge=0, lt=1)] = 0.0


class TraceFile(Strict):
    """Jobs of a trace, which say when they come, how long they run and how many cards they take.

    Attributes:
        format: of the trace; ``synthetic``: made up.
        jobs: the trace's file, its path relative to the scenario; for ``synthetic``, how many.
        load: for ``synthetic``, card time asked for, over what all cards have while jobs come.
    """

    format: Literal["synthetic", "chronus", "muri", "native", "philly"]
    jobs: Annotated[int, Field(ge=1, le=1_000_000)] | Annotated[str, Field(min_length=1, max_length=1_000)]
    load: Annotated[float, Field(gt=0, le=100)] = 0.9


class DemandFile(Strict):
    """What each user submits, again and again; or a trace.

    Attributes:
        job: a job file. If it names no queue and there is one named like the user's group, that is its queue.
        hours: the jobs are submitted when these hours begin.
        trace: instead of hours and users, where its jobs come from; all but their tasks and cards is as ``job`` says.
            Its clock begins as the scenario does.
        end: ``hours``: the user stops the job when the hours end, running or not; ``work``: it ends with its work.
        takes: how long it runs undisturbed; left out: as long as its hours last.
        times: jobs of each user each time.
        users: part of each group's users who submit them.
        busy: which part of each of its cards a job keeps busy in the mean; left out: as usual for its kind.
    """

    job: dict[str, Any]
    hours: WindowFile | None = None
    trace: TraceFile | None = None
    end: Literal["hours", "work"] = "work"
    takes: Annotated[Duration, Field(gt=0)] | None = None
    times: Annotated[int, Field(ge=1, le=1_000)] = 1
    users: Annotated[float, Field(gt=0, le=1)] = 1.0
    busy: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> DemandFile:
        if (self.hours is None) == (self.trace is None):
            raise BadValueError("neither hours nor a trace, or both", "say in one of them when the jobs come")
        if self.trace is not None:
            if self.trace.format == "synthetic" and not isinstance(self.trace.jobs, int):
                raise BadValueError("a synthetic trace from a file", "say how many jobs, as 2000")
            if self.trace.format != "synthetic" and isinstance(self.trace.jobs, int):
                raise BadValueError(f"a number of jobs of a {self.trace.format} trace", "name its file")
            if set(self.job) & _OF_THE_TRACE or self.model_fields_set & {"end", "takes", "times", "users"}:
                raise BadValueError(
                    "tasks, cards, lengths or users beside a trace, which says them",
                    "leave gpus, tasks, roles, end, takes, times and users out",
                )
        return self


class RowFile(Strict):
    """One configuration under which the weeks are played.

    Attributes:
        name: of the row.
        about: what it shows, in a line.
        cluster: the sections of the server's configuration file.
        demand: what users submit.
        costs: other ones than the scenario's.
    """

    name: Name
    about: Annotated[str, Field(max_length=200)] = ""
    cluster: dict[str, Any]
    demand: list[DemandFile] = Field(min_length=1, max_length=100)
    costs: CostsFile | None = None


class ScenarioFile(Strict):
    """A scenario.

    Attributes:
        name: what people call it.
        about: what it shows.
        begin: when it begins, UTC.
        warm_up: weeks that are played before the figures begin.
        weeks: weeks that the figures are about.
        groups: users of each group.
        durations: what the policy knows of the lengths of jobs.
        machine_w: what each machine draws besides its cards; these draw what the row's cluster declares (``energy``).
        costs: what the simulated cluster charges.
        rows: what is compared.
        shared: parts that rows refer to by YAML's anchors; not read.
    """

    name: Name
    about: Annotated[str, Field(max_length=400)] = ""
    begin: Annotated[str, AfterValidator(_instant)]
    warm_up: Annotated[int, Field(ge=0, le=52)] = 1
    weeks: Annotated[int, Field(ge=1, le=52)] = 4
    groups: dict[Name, Annotated[int, Field(ge=1, le=100_000)]] = Field(min_length=1)
    durations: Literal["predicted", "exact"] = "predicted"
    machine_w: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] = 0.0
    costs: CostsFile = CostsFile()
    rows: list[RowFile] = Field(min_length=1, max_length=50)
    shared: Any = None

    @cached_property
    def begin_at(self) -> float:
        """Seconds since 1970."""
        begin = datetime.fromisoformat(self.begin)
        return (begin if begin.tzinfo else begin.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True, slots=True)
class TraceDemand:
    """A checked ``DemandFile`` with a trace; ``path`` is where the file of that is, empty for a synthetic one."""

    spec: JobSpec
    trace: TraceFile
    path: Path
    busy: float | None


@dataclass(frozen=True, slots=True)
class CalendarDemand:
    """A checked ``DemandFile`` with hours."""

    spec: JobSpec
    window: Window
    ends_with_hours: bool
    takes_s: float | None
    times: int
    users: float
    busy: float | None


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """A checked ``RowFile``."""

    file: RowFile
    cluster: ClusterConfig
    demand: tuple[CalendarDemand | TraceDemand, ...]


@dataclass(frozen=True, slots=True)
class CalendarScenario:
    """A checked scenario."""

    file: ScenarioFile
    rows: tuple[ScenarioRow, ...]


def load_scenario(name: str) -> CalendarScenario:
    """A built-in scenario by name, or one in a file.

    Raises:
        InvalidInputError: there is neither.
        UnavailableError: the file cannot be read.
        SpecError: it is wrong, with every fault found.
    """
    path = Path(name)
    if name not in BUILT_IN and not path.is_file():
        raise InvalidInputError(
            f"there is no scenario {name!r}", f"{suggest(name, BUILT_IN)}; or give the path of a scenario file"
        )
    try:
        if name in BUILT_IN:
            text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
        else:
            text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"{name} cannot be read", "name a readable scenario file in UTF-8") from error
    return read_scenario(text, name)


def read_scenario(text: str, source: str = "") -> CalendarScenario:
    """The scenario in a text.

    Raises:
        SpecError: it is wrong, with every fault found.
    """
    documents = read_documents(text, source)
    if len(documents) > 1:
        raise SpecError([documents[1].problem((), "a second document", "keep the scenario in one")])
    located = documents[0]
    file = validate(ScenarioFile, located)
    problems: list[Problem] = []
    folder = Path(source).parent
    rows = [_row((row, number), located, folder, problems) for number, row in enumerate(file.rows)]
    if problems:
        raise SpecError(problems)
    return CalendarScenario(file, tuple(row for row in rows if row is not None))


def _row(numbered: tuple[RowFile, int], located: Located, folder: Path, problems: list[Problem]) -> ScenarioRow | None:
    row, number = numbered
    at = ("rows", number)
    try:
        cluster = check_cluster(located.part((*at, "cluster")), is_simulated=True)
    except SpecError as error:
        problems.extend(error.problems)
        return None
    demand: list[CalendarDemand | TraceDemand] = []
    for position, each in enumerate(row.demand):
        place = (*at, "demand", position)
        try:
            spec = read_job(located.part((*place, "job")))
        except SpecError as error:
            problems.extend(error.problems)
            continue
        problems.extend(_unknown(spec, cluster, located, (*place, "job")))
        if each.trace is not None:
            demand.append(TraceDemand(spec, each.trace, folder / str(each.trace.jobs), each.busy))
        elif each.hours is not None:
            window, ends = each.hours.window(), each.end == "hours"
            demand.append(CalendarDemand(spec, window, ends, each.takes, each.times, each.users, each.busy))
    return ScenarioRow(row, cluster, tuple(demand))


def _unknown(spec: JobSpec, cluster: ClusterConfig, located: Located, at: tuple[str | int, ...]) -> list[Problem]:
    """Queues and pools that a job names and the row's cluster does not have."""
    found = []
    known = {
        "queue": ["default", *(queue.name for queue in cluster.queues)],
        "pool": ["default", *(pool.name for pool in cluster.pools)],
    }
    for field, names in known.items():
        name = getattr(spec.job, field)
        if name not in names:
            found.append(located.problem((*at, field), f"unknown {field} {name!r}", suggest(name, names)))
    return found
