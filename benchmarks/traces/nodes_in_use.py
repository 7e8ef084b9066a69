"""How many nodes have work, with moves and without: the log of Philly, September and October 2017.

Jobs of that log run to their ends, of whose lengths the policy learns nothing beforehand. A job that moves does 40 s
of its work again, 60 s above eight cards, as in the simulator that the Philly case was measured with. The mean number
of nodes with work is taken over time, from the first submission to the last. The *ideal* has the same cards busy on
full nodes at every instant, so no placement can have fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.traces.cases import PHILLY_LOG, Policy, arguments_of, find, scenario
from millpond.scheduling.placement.arrays import FloatArray
from millpond.simulation.queueing import replay
from millpond.simulation.results.history import History
from millpond.simulation.scenario import read_world

NODES: Final = (140, 100)
CARDS_PER_NODE: Final = 8
ROWS: Final = {
    "random": ("random", False),
    "best-fit": ("best-fit", False),
    "default": ("default", False),
    "default, with moves": ("default", True),
}
"""By row: the placement, and whether work is moved."""
MOST_NODES: Final = {140: 54.5}
MOST_JCT: Final = 1.01
"""Of the mean completion time without moves."""
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class NodesInUse:
    """What a row came to; all but the moves as means over time or jobs.

    Attributes:
        ideal: nodes that the same cards would fill.
    """

    nodes: float
    ideal: float
    mean_jct_s: float
    moves_a_day: float


def nodes_in_use(history: History) -> NodesInUse:
    """Measure a replay from its first submission to its last."""
    begin, end = float(history.submit_at[0]), float(history.submit_at[-1])
    runs = [run for run in history.runs if run.start_at < end]
    held: dict[str, list[tuple[float, float, int]]] = {}
    for run in runs:
        for placement in run.placements:
            span = (run.start_at, min(run.end_at, end), len(placement.grants))
            held.setdefault(placement.node, []).append(span)
    used_s = sum(_covered_s(np.array(spans)) for spans in held.values())
    at, change = _steps([span for spans in held.values() for span in spans])
    full = np.ceil(np.cumsum(change)[:-1] / CARDS_PER_NODE)
    return NodesInUse(
        used_s / (end - begin),
        float((full * np.diff(at)).sum()) / (end - begin),
        float(history.jct_s[history.finished].mean()),
        float(history.preemptions.sum()) * DAY_S / (end - begin),
    )


def _covered_s(spans: FloatArray) -> float:
    """How long at least one of these spans, (n, 3) of begin, end and cards, lasts."""
    at, change = _steps([(begin, end, 1) for begin, end, _ in spans.tolist()])
    return float(np.diff(at)[np.cumsum(change)[:-1] > 0].sum())


def _steps(spans: Sequence[tuple[float, float, int]]) -> tuple[FloatArray, FloatArray]:
    """Instants, ascending, and by how much what is held changes there."""
    begins, ends, amounts = (np.array(column, dtype=float) for column in zip(*spans, strict=True))
    at, change = np.concatenate([begins, ends]), np.concatenate([amounts, -amounts])
    order = np.argsort(at, kind="stable")
    return at[order], change[order]


def played(trace: Path, nodes: int, placement: str, *, moves: bool) -> NodesInUse:
    """One row."""
    policy = Policy("default", "none", preempt=False, placement=placement)
    arguments = [*arguments_of(PHILLY_LOG, policy, trace), *(["--consolidates"] if moves else [])]
    arguments[arguments.index("--cluster") + 1] = f"{nodes}x{CARDS_PER_NODE}"
    plan = scenario(arguments)
    return nodes_in_use(replay(read_world(plan), plan.seeded()).history)


def judged(rows: Mapping[str, NodesInUse], nodes: int) -> bool | None:
    """Whether the targets for so many nodes were met; None where there is none."""
    if nodes not in MOST_NODES:
        return None
    moved, stayed = rows["default, with moves"], rows["default"]
    return moved.nodes <= MOST_NODES[nodes] and moved.mean_jct_s <= MOST_JCT * stayed.mean_jct_s


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the traces, or one above it")
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES, help="so many nodes of eight cards")
    options = parser.parse_args(arguments)
    trace = find(options.traces, PHILLY_LOG.file)
    result: dict[str, Any] = {}
    lines: list[Table | str] = []
    for nodes in options.nodes:
        rows: dict[str, NodesInUse] = {}
        for name, (placement, moves) in ROWS.items():
            note(f"{nodes} nodes, {name}")
            rows[name] = played(trace, nodes, placement, moves=moves)
        met = judged(rows, nodes)
        result[str(nodes)] = {"rows": {name: asdict(row) for name, row in rows.items()}, "met": met}
        lines += [f"{nodes} nodes; targets met: {verdict(met) or '-'}", _table(rows)]
    emit(result, options.json, lines)


def _table(rows: Mapping[str, NodesInUse]) -> Table:
    table = Table("row", "nodes in use", "ideal", "mean completion s", "moves a day", texts=1)
    for name, row in rows.items():
        table.add(name, f"{row.nodes:.1f}", f"{row.ideal:.1f}", f"{row.mean_jct_s:,.0f}", f"{row.moves_a_day:.0f}")
    return table


if __name__ == "__main__":
    main()
