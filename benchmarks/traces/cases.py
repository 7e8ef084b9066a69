"""The published traces that benchmarks replay, and how a benchmark names a replay: as arguments of ``pond replay``.

Every conventional default (what a preemption costs, when Tiresias looks) is that of ``pond replay``, because the
arguments go through its own parser. So each figure can be had again by typing the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millpond.client.cli.commands.simulation import replay
from millpond.client.cli.commands.simulation.simulation_options import scenario_of
from millpond.model.errors import InvalidInputError
from millpond.simulation.scenario import Scenario

_NOT_OF_THE_SCENARIO = ("write_jobs", "json_file")


@dataclass(frozen=True, slots=True)
class Case:
    """One trace on one cluster.

    Attributes:
        file: the trace's name; it is looked for below the folder that the user names.
        cluster: nodes x cards.
    """

    name: str
    trace_format: str
    file: str
    cluster: str


MURI = tuple(Case(f"muri-{number}", "muri", f"trace{number}.csv", "8x8") for number in (1, 3, 4))
PHILLY = Case("philly", "philly", "case_3d48h_30x8.csv", "30x8")
PHILLY_LOG = Case("philly-log", "philly", "philly_2017-09_2017-10.csv.gz", "72x8")
CASES = (*MURI, PHILLY)


@dataclass(frozen=True, slots=True)
class Policy:
    """What is to be tried on a case."""

    ordering: str
    durations: str
    preempt: bool
    placement: str = "default"

    @property
    def label(self) -> str:
        """A few words."""
        return f"{self.ordering}, {self.durations}{'' if self.preempt else ', no preemption'}"


def find(folder: Path, name: str) -> Path:
    """The file of this name in a folder or below it.

    Raises:
        InvalidInputError: there is no such folder, or no such file in it, or more than one.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"no folder {folder}", "name the folder of the traces with --traces")
    found = [folder / name] if (folder / name).is_file() else sorted(folder.rglob(name))
    if len(found) != 1:
        what = "several files" if found else "no file"
        raise InvalidInputError(f"{folder} holds {what} {name}", "name the folder of the traces with --traces")
    return found[0]


def arguments_of(case: Case, policy: Policy, trace: Path) -> list[str]:
    """The arguments of ``pond replay`` that play a case."""
    return [
        *("--format", case.trace_format, "--jobs", str(trace), "--cluster", case.cluster),
        *("--ordering", policy.ordering, "--placement", policy.placement, "--durations", policy.durations),
        "--preempt" if policy.preempt else "--no-preempt",
    ]


def scenario(arguments: list[str]) -> Scenario:
    """What ``pond replay`` would play with these arguments."""
    given = replay.command.make_context("replay", list(arguments)).params
    return scenario_of(**{name: value for name, value in given.items() if name not in _NOT_OF_THE_SCENARIO})
