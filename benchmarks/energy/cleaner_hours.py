"""What jobs emit that may start up to a day later: the log of Philly on a finite cluster, on California's grid of 2021.

Jobs of up to a day are flexible by 24 hours; longer ones begin at once, and take their cards. *At once*: none is
flexible. *By what is known*: the policy hears the carbon intensities of the hours behind it, and what the server's
forecast makes of them. *Oracle*: it hears the true ones of the eight days to come, and decides by the same rule.
*All-knowing*: it knows what will be submitted, too, and divides the cards that long jobs leave by a linear program; a
bound, as cards are one sum to it. *Unbounded*: each job begins at its best hour, whatever runs. Jobs run without
preemption, so all do the same work on the same cards, and what they emit is in proportion to the intensity while they
run; flexible jobs are counted.

A job is late by shifting if it starts more than a day behind its submission and, at once, would not have.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.traces.cases import PHILLY_LOG, Policy, arguments_of, find, scenario
from millpond.model.energy import EnergyRates, RateMeasure, RateSeries, regular_steps
from millpond.simulation.clusters import capacity_milli
from millpond.simulation.core import make_scheduler
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.results.history import History, history_of
from millpond.simulation.scenario import Scenario, read_world
from millpond.simulation.world.simulated_rates import PublishedRates

LEAST_OF_ORACLE: Final = 85.0
"""Percent of what the oracle saves."""
FLEXIBLE_S: Final = 86_400.0
LONGEST_S: Final = 86_400.0
"""Longer jobs are not flexible: a later start changes little of what they emit."""
CARBON_FILE: Final = "US-CAL-CISO_2021_hourly.csv.gz"
HOUR_S: Final = 3_600.0
BEGINS: Final = ("2021-03-01", "2021-09-01")
FORESEEN_S: Final = 8 * 86_400.0
KNOWLEDGE: Final = ("exact", "predicted")
"""What the policy knows of lengths."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """What a row came to.

    Attributes:
        intensity: grams of CO2 for a kWh, the mean over all card-seconds that jobs held.
        late: flexible jobs that start more than a day behind their submission.
        late_by_shifting: those of them that would not have, at once.
        mean_wait_s: of flexible jobs, from submission to the first start.
        wait_of_others_s: the same of those that are not.
    """

    intensity: float
    late: int
    late_by_shifting: int
    mean_wait_s: float
    wait_of_others_s: float


def read_carbon(file: Path) -> RateSeries:
    """The direct carbon intensities of a zone (Electricity Maps)."""
    with gzip.open(file, "rt", encoding="utf-8") as text:
        lines = list(csv.reader(text))
    column = next(index for index, title in enumerate(lines[0]) if "direct" in title)
    instants = [datetime.fromisoformat(line[0]).replace(tzinfo=UTC).timestamp() for line in lines[1:]]
    return regular_steps(instants, [float(line[column]) for line in lines[1:]])


class Intensity:
    """The mean intensity over spans, by its integral."""

    def __init__(self, series: RateSeries) -> None:
        self._at = np.append(series.begins, series.until)
        steps = np.array(series.values, dtype=float) * np.diff(self._at)
        self._sums = np.concatenate(([0.0], np.cumsum(steps)))

    def over(self, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Intensity times seconds, of each span."""
        found: np.ndarray = np.interp(ends, self._at, self._sums) - np.interp(begins, self._at, self._sums)
        return found


def world_of(plan: Scenario, begin: str, carbon: RateSeries, count: int) -> World:
    """The first jobs of the trace, as if it began on another day."""
    shift_s = datetime.fromisoformat(begin).replace(tzinfo=UTC).timestamp()
    world = read_world(plan)
    jobs = tuple(replace(each, submit_at=each.submit_at + shift_s) for each in world.workload.jobs)
    workload = replace(world.workload, jobs=jobs[:count])
    return replace(world, workload=workload, rates=EnergyRates(carbon=carbon))


def played(plan: Scenario, world: World, ahead_s: float | None) -> History:
    """One row.

    Args:
        ahead_s: how far ahead intensities are known; None: no job waits for them.
    """
    if ahead_s is not None:
        jobs = (
            replace(each, job=replace(each.job, flexible_s=FLEXIBLE_S)) if each.duration_s <= LONGEST_S else each
            for each in world.workload.jobs
        )
        published = PublishedRates(RateMeasure.CARBON, ahead_s)
        world = replace(world, workload=replace(world.workload, jobs=tuple(jobs)), published=published)
    simulation = Simulation(world, make_scheduler(plan.seeded()))
    simulation.run()
    return history_of(simulation)


def emitted(history: History, at_once: History, intensity: Intensity) -> Emitted:
    """What a play emitted, beside that in which all start at once."""
    runs = [run for run in history.runs if history.duration_s[run.job] <= LONGEST_S]
    begins, ends = (np.array([getattr(run, name) for run in runs]) for name in ("start_at", "end_at"))
    cards = history.gpu_milli[[run.job for run in runs]]
    waits, waits_at_once = (each.first_start_at - each.submit_at for each in (history, at_once))
    is_flexible = history.duration_s <= LONGEST_S
    late = is_flexible & (waits > FLEXIBLE_S + 1.0)
    return Emitted(
        float((intensity.over(begins, ends) * cards).sum() / ((ends - begins) * cards).sum()),
        int(late.sum()),
        int((late & (waits_at_once <= FLEXIBLE_S)).sum()),
        float(waits[is_flexible].mean()),
        float(waits[~is_flexible].mean()) if not is_flexible.all() else 0.0,
    )


def best_without_bounds(history: History, intensity: Intensity) -> float:
    """The mean intensity if each job began at the best of the whole hours that it may, or at once."""
    is_counted = history.duration_s <= LONGEST_S
    lengths, first, cards = (each[is_counted] for each in (history.duration_s, history.submit_at, history.gpu_milli))
    whole = np.arange(1, int(FLEXIBLE_S / HOUR_S) + 1)
    starts = np.column_stack([first, *(np.minimum((first // HOUR_S + k) * HOUR_S, first + FLEXIBLE_S) for k in whole)])
    sums = np.min([intensity.over(begin, begin + lengths) for begin in starts.T], axis=0)
    return float((sums * cards).sum() / (lengths * cards).sum())


def best_with_all_known(history: History, intensity: Intensity) -> float:
    """The mean intensity by the best starts on the cards that long jobs leave; NaN where these are too few."""
    is_counted = history.duration_s <= LONGEST_S
    first = float(history.submit_at.min() // HOUR_S * HOUR_S)
    hours = first + HOUR_S * np.arange(int((history.submit_at.max() - first) / HOUR_S) + 75)
    room = np.full(len(hours), capacity_milli(history.nodes) * HOUR_S)
    for job in np.flatnonzero(~is_counted):
        room -= history.gpu_milli[job] * _overlaps(history.first_start_at[job], history.ended_at[job], hours)
    cells: list[tuple[int, int, float]] = []
    costs: list[float] = []
    owners: list[int] = []
    for owner, job in enumerate(np.flatnonzero(is_counted)):
        submitted, length, milli = history.submit_at[job], history.duration_s[job], history.gpu_milli[job]
        whole = (submitted // HOUR_S + np.arange(1, 25)) * HOUR_S
        for start in (submitted, *whole[whole < submitted + FLEXIBLE_S], submitted + FLEXIBLE_S):
            begin, end = int((start - first) // HOUR_S), int((start + length - first) // HOUR_S) + 1
            taken = milli * _overlaps(start, start + length, hours[begin:end])
            cells += [(begin + offset, len(costs), part) for offset, part in enumerate(taken.tolist())]
            costs.append(float(intensity.over(np.array([start]), np.array([start + length]))[0]) * milli)
            owners.append(owner)
    rows, columns, parts = (np.array(each) for each in zip(*cells, strict=True))
    uses = coo_matrix((parts / HOUR_S, (rows, columns)), shape=(len(hours), len(costs))).tocsr()
    one_each = coo_matrix((np.ones(len(costs)), (owners, np.arange(len(costs))))).tocsr()
    total = float((history.duration_s * history.gpu_milli)[is_counted].sum())
    scaled = np.array(costs) / total
    found = linprog(scaled, uses, room / HOUR_S, one_each, np.ones(one_each.shape[0]), method="highs")
    return float(found.fun) if found.success else float("nan")


def _overlaps(begin: float, end: float, hours: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.clip(np.minimum(end, hours + HOUR_S) - np.maximum(begin, hours), 0.0, None)
    return found


def compared(plan: Scenario, begin: str, carbon: RateSeries, count: int) -> dict[str, Any]:
    """All rows of one beginning."""
    world, intensity = world_of(plan, begin, carbon, count), Intensity(carbon)
    at_once = played(plan, world, None)
    rows = {"at once": emitted(at_once, at_once, intensity)}
    for name, ahead_s in (("by what is known", 0.0), ("oracle", FORESEEN_S)):
        note(f"{plan.cluster} from {begin}, lengths {plan.durations}: {name}")
        rows[name] = emitted(played(plan, world, ahead_s), at_once, intensity)
    saved = {name: saved_percent(rows["at once"].intensity, row.intensity) for name, row in rows.items()}
    saved["all-knowing"] = saved_percent(rows["at once"].intensity, best_with_all_known(at_once, intensity))
    saved["unbounded"] = saved_percent(rows["at once"].intensity, best_without_bounds(at_once, intensity))
    return {"rows": {name: asdict(row) for name, row in rows.items()}, "saved": saved, "met": is_met(rows, saved)}


def saved_percent(before: float, after: float) -> float:
    """What part is saved."""
    return 100.0 * (1.0 - after / before)


def is_met(rows: dict[str, Emitted], saved: dict[str, float]) -> bool:
    """Whether the targets were met."""
    known = rows["by what is known"]
    return saved["by what is known"] >= LEAST_OF_ORACLE / 100.0 * saved["oracle"] and not known.late_by_shifting


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the traces, or one above it")
    parser.add_argument("--begin", nargs="*", default=list(BEGINS), help="the day of 2021 on which the log begins")
    parser.add_argument("--nodes", type=int, nargs="*", default=[100], help="so many nodes of eight cards")
    parser.add_argument("--jobs", type=int, default=10_000, help="so many of the log, from its beginning")
    parser.add_argument("--durations", nargs="*", default=list(KNOWLEDGE), choices=KNOWLEDGE)
    options = parser.parse_args(arguments)
    carbon = read_carbon(find(options.traces, CARBON_FILE))
    trace = find(options.traces, PHILLY_LOG.file)
    headings = ("g CO2/kWh", "saved %", "of the oracle %", "late by shifting", "mean wait h", "of others h", "met")
    table = Table("nodes", "begin", "lengths", "row", *headings, texts=4)
    result: dict[str, Any] = {}
    for nodes in options.nodes:
        for begin in options.begin:
            for durations in options.durations:
                plan = replace(
                    scenario(arguments_of(PHILLY_LOG, Policy("default", durations, preempt=False), trace)),
                    cluster=f"{nodes}x8",
                )
                found = result[f"{nodes} {begin} {durations}"] = compared(plan, begin, carbon, options.jobs)
                _show(table, (str(nodes), begin, durations), found)
    emit(result, options.json, [table])


def _show(table: Table, case: tuple[str, str, str], found: dict[str, Any]) -> None:
    best = found["saved"]["oracle"]
    for name, saved in found["saved"].items():
        row = found["rows"].get(name)
        shown = ("", "", "", "") if row is None else _cells(row)
        met = verdict(found["met"]) if name == "by what is known" else ""
        table.add(*case, name, shown[0], f"{saved:.2f}", f"{100 * saved / best:.1f}", *shown[1:], met)


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    wait, of_others = (f"{row[name] / HOUR_S:.2f}" for name in ("mean_wait_s", "wait_of_others_s"))
    return f"{row['intensity']:.2f}", f"{row['late_by_shifting']}", wait, of_others


if __name__ == "__main__":
    main()
