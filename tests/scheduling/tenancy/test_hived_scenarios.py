"""HiveD's own scenarios: the same chain, level and sharing, and the same wait, preemption or error, in every step."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hived_pods import Answer, HivedPods, Place, Pod, machine_of

from millpond.model.errors import InvalidInputError
from millpond.scheduling.tenancy.cells.allocator import CellAllocator
from millpond.specs.config.hived import HivedCluster, read_hived

DATA = Path(__file__).parents[2] / "data" / "hived"
SCENARIOS = json.loads((DATA / "scenarios.json").read_text())
PODS = {row[0]: Pod(*row) for row in SCENARIOS["pods"]}
SIZES = {name: [size for count, size in members for _ in range(count)] for name, members in SCENARIOS["groups"].items()}


def cluster() -> HivedCluster:
    return read_hived((DATA / "cluster.yaml").read_text(), "cluster.yaml")


class Walk:
    """One scenario, held against what is expected of each step."""

    def __init__(self, hived: HivedCluster) -> None:
        self.cells = CellAllocator(hived.chains, hived.clusters)
        self.untouched = fingerprint(self.cells)
        self.pods = HivedPods(self.cells, SIZES)
        self.expected: dict[str, Place] = {}
        self.nodes = {node for spec in hived.chains for node, _ in spec.nodes}

    def run(self, steps: list[dict[str, Any]]) -> None:
        for step in steps:
            getattr(self, step["do"])(step)

    def schedule(self, step: dict[str, Any]) -> None:
        pod, expect = PODS[step["pod"]], step["expect"]
        suggested = self.suggested(step.get("suggested", "all"))
        if "error" in expect:
            with pytest.raises(InvalidInputError):
                self.pods.schedule(pod, suggested)
            return
        answer = self.pods.schedule(pod, suggested, preempts=step.get("phase") != "Filtering")
        self.check(pod, answer, {**step.get("seen", {}), **expect})
        if step.get("then") == "add":
            self.pods.add(pod, suggested)
            self.check_sharing()

    def delete(self, step: dict[str, Any]) -> None:
        names = [step["pod"]] if step["pod"] in PODS else list(self.pods.where)[::-1]
        for name in names:
            self.pods.delete(PODS[name])
            self.expected.pop(name)
        assert not {PODS[name].group for name in names} & set(self.pods.groups)

    def delete_unallocated(self, step: dict[str, Any]) -> None:
        for name in step["pod"]:
            self.pods.delete_unallocated(PODS[name])
            assert PODS[name].group not in self.pods.groups

    def check(self, pod: Pod, answer: Answer, expect: dict[str, Any]) -> None:
        if expect.get("wait"):
            assert answer == Answer(), pod.name
        if "victims" in expect:
            assert answer.victims == set(expect["victims"]), pod.name
        if "bind" in expect and expect["bind"] != "any":
            assert answer.bind is not None, pod.name
            wanted = self.place(*expect["bind"])
            self.expected[pod.name] = wanted
            assert answer.bind[0] == wanted[0], pod.name
            assert len(answer.bind[1]) == len(wanted[1]), pod.name
            assert self.level(answer.bind[1], answer) == self.level(wanted[1], answer), pod.name
        for name, state in expect.get("groups", {}).items() if isinstance(expect.get("groups"), dict) else ():
            group = self.pods.groups.get(name)
            if state.startswith("absent"):
                assert group is None
            elif state.startswith("Preempting"):
                assert group is not None
                assert group.preempting
            elif "no virtual placement" in state and "then" not in state:
                assert name in self.pods.groups

    def check_sharing(self) -> None:
        """Two pods are as near to each other as in the original."""
        for one, other in combinations(self.pods.where, 2):
            if one in self.expected and other in self.expected:
                ours = self.nearness(self.pods.where[one], self.pods.where[other])
                assert ours == self.nearness(self.expected[one], self.expected[other]), (one, other)

    def nearness(self, one: Place, other: Place) -> int | None:
        """The lowest level, from the node down, at which two places share a cell."""
        chain = self.cells.chains[one[0]]
        if one[0] != other[0] or machine_of(chain, one[1][0]) != machine_of(chain, other[1][0]):
            return None
        level = max(self.level_in(chain, (a, b)) for a in one[1][:1] for b in other[1][:1])
        return min(level, chain.node_level)

    def level(self, leaves: tuple[int, ...], answer: Answer) -> int:
        assert answer.bind is not None
        return self.level_in(self.cells.chains[answer.bind[0]], leaves)

    def level_in(self, chain: Any, leaves: tuple[int, ...]) -> int:
        return next(level for level in range(chain.top + 1) if len({chain.number(level, leaf) for leaf in leaves}) == 1)

    def place(self, node: str, gpus: Any) -> Place:
        if isinstance(gpus, str):
            first, last = map(int, gpus.split("-"))
            gpus = list(range(first, last + 1))
        found = [self.cells.where[f"{node}/{gpu}"] for gpu in gpus]
        return found[0][0], tuple(sorted(leaf for _, leaf in found))

    def suggested(self, written: Any) -> set[str] | None:
        if written == "all":
            return None
        if isinstance(written, str):
            return self.nodes - {written.removeprefix("all except ")}
        return set(written)


def fingerprint(cells: CellAllocator) -> Any:
    return [
        (chain.clean, chain.spare, chain.demand, chain.holders, chain.visitors, sorted(chain.bound))
        for chain in cells.copy().chains.values()
    ]


@pytest.mark.parametrize("scenario", SCENARIOS["scenarios"], ids=lambda scenario: scenario["id"])
def test_every_step_is_equivalent(scenario: dict[str, Any]) -> None:
    Walk(cluster()).run(scenario["steps"])


def test_the_end_of_all_work_leaves_the_cells_as_they_were() -> None:
    walk = Walk(cluster())
    walk.run(SCENARIOS["scenarios"][0]["steps"])
    assert fingerprint(walk.cells) == walk.untouched
