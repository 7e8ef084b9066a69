"""How much of a fragmented cluster each placement rule can hand out.

The case is that of Weng et al., "Beware of Fragmentation", USENIX ATC 2023, on the openb trace of 2023: all pods
once plus clones drawn with replacement until 130 % of the GPUs are asked for, shuffled, placed one by one for good;
a pod that finds no room is not tried again, nor is one that no node could ever take. Pods of the same list make up the
typical mix, as in the paper.

Beside our own runs stand what the authors of FGD published for it, and the cutting-stock bound on the same shuffles
(``packing_bound``): what even a placement that knows the future, may refuse pods and sees one big machine could reach.

    python -m benchmarks.traces.placement_quality --traces DIR [--lists default,gpuspec33] [--placements default,fgd]
        [--seeds 10]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.traces.cases import find
from benchmarks.traces.packing_bound import CARD_MILLI, most_allocated_milli
from millpond.scheduling.settings import Settings
from millpond.simulation.clusters import capacity_milli
from millpond.simulation.packing import CHECKPOINTS, inflate
from millpond.simulation.readers import openb
from millpond.simulation.scenario import Packing

LISTS = ("default", "cpu100", "gpushare40", "gpushare100", "gpuspec10", "gpuspec33", "multigpu20")
PUBLISHED_FGD = {
    "default": {100: 95.23, 130: 95.39},
    "cpu100": {130: 95.35},
    "gpushare40": {130: 94.15},
    "gpushare100": {100: 86.64, 130: 86.90},
    "gpuspec10": {130: 94.95},
    "gpuspec33": {100: 87.84, 130: 94.55},
    "multigpu20": {130: 95.65},
}
"""Allocated GPU % when so many percent have arrived, mean of ten seeds. Source: the authors' simulator, github
hkust-adsl/kubernetes-scheduler-simulator at 8f3d641, the file analysis_allo_discrete.csv of its expected results."""
TARGETS = {"default": {100: 95.45, 130: 95.60}, "gpuspec33": {100: 87.84, 130: 94.55}}
"""What ``default`` should reach; of lists that are not here, FGD's published mean at 130 %."""


def shuffles(folder: Path, name: str, seeds: range) -> dict[int, Packing]:
    """A pod list and its clones in so many orders, by their seeds."""
    nodes = openb.read_nodes(find(folder, "openb_node_list_gpu_node.csv"))
    pods = openb.read_pods(find(folder, f"openb_pod_list_{name}.csv"), skip_bad_rows=False)
    gpu_milli, capacity = [entry.job.gpu_milli for entry in pods.jobs], capacity_milli(nodes)
    orders = {seed: inflate(gpu_milli, capacity, CHECKPOINTS[-1] / 100, seed) for seed in seeds}
    return {seed: Packing(nodes, pods, tuple(order)) for seed, order in orders.items()}


def bounds(packing: Packing) -> dict[int, float]:
    """The bound on the allocated GPU %, when each of ``CHECKPOINTS`` has arrived."""
    capacity, arrived, asked = capacity_milli(packing.nodes), 0, Counter[int]()
    found: dict[int, float] = {}
    for index in packing.order:
        job = packing.pods.jobs[index].job
        request = job.roles[0].request
        arrived += job.gpu_milli
        if request.devices:
            asked[request.slice.compute_milli] += request.devices
        for mark in CHECKPOINTS:
            if mark not in found and 100 * arrived >= mark * capacity:
                found[mark] = 100 * most_allocated_milli(asked, capacity // CARD_MILLI) / capacity
    return found


def quality(folder: Path, name: str, placements: Sequence[str], seeds: range) -> Iterator[dict[str, Any]]:
    """Rules on one list, over several shuffles."""
    packings = shuffles(folder, name, seeds)
    bound = _means(map(bounds, packings.values()))
    for placement in placements:
        note(f"{name}: {placement}, {len(seeds)} shuffles")
        results = [each.run(Settings(placement=placement, seed=seed)) for seed, each in packings.items()]
        allocated = [{mark: each.allocated_gpu_percent[str(mark)] or 0.0 for mark in CHECKPOINTS} for each in results]
        means = _means(allocated)
        targets = TARGETS.get(name, {130: PUBLISHED_FGD[name][130]}) if placement == "default" else {}
        yield {
            "list": name,
            "placement": placement,
            "seeds": [seeds.start, seeds.stop - 1],
            "allocated_gpu_percent": means,
            "deviation": {mark: pstdev(each[mark] for each in allocated) for mark in CHECKPOINTS},
            "bound": bound,
            "published_fgd": PUBLISHED_FGD[name],
            "targets": targets,
            "met": all(means[mark] >= least for mark, least in targets.items()) if targets else None,
            "cpu_s_per_run": fmean(result.cpu_s for result in results),
        }


def _means(rows: Iterable[Mapping[int, float]]) -> dict[int, float]:
    columns = zip(*(row.values() for row in rows), strict=True)
    return dict(zip(CHECKPOINTS, map(fmean, columns), strict=True))


def _table(lines: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "list", "rule", "shuffles", "@100", "sd", "bound", "FGD publ.", "target", "@130", "sd", "bound", "FGD publ.",
        "target", "met", "CPU s", texts=2,
    )  # fmt: skip
    for line in lines:
        first, last = line["seeds"]
        cells = [line["list"], line["placement"], str(last - first + 1)]
        for mark in CHECKPOINTS[1:]:
            cells += [f"{line[part][mark]:.2f}" for part in ("allocated_gpu_percent", "deviation", "bound")]
            cells += [f"{line[part][mark]:.2f}" if mark in line[part] else "" for part in ("published_fgd", "targets")]
        table.add(*cells, verdict(line["met"]), f"{line['cpu_s_per_run']:.1f}")
    return table


@program
def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    parser = command_line(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="folder with the openb files, at any depth")
    parser.add_argument("--lists", default=",".join(LISTS))
    parser.add_argument("--placements", default="default,fgd,best-fit")
    parser.add_argument("--seeds", type=int, default=5, help="number of shuffles")
    parser.add_argument("--first-seed", type=int, default=42)
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    placements = options.placements.split(",")
    lines = [line for name in options.lists.split(",") for line in quality(options.traces, name, placements, seeds)]
    emit({"rows": lines}, options.json, [_table(lines)])


if __name__ == "__main__":
    main()
