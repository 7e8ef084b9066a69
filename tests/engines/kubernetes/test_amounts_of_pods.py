"""What pods take of their nodes, as Kubernetes itself counts it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millpond.engines.kubernetes.adoption.pod_demand import demand_of
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod, ScheduledSpec
from millpond.engines.kubernetes.claims.claim_requests import ClaimDemand
from millpond.engines.kubernetes.cluster.objects import PodSpec
from millpond.engines.kubernetes.cluster.resource_amounts import asked_by


def asks(cpu: str, memory: str = "0", **requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory, **requests}}}


def sidecar(cpu: str, memory: str = "0", **requests: str) -> dict[str, Any]:
    return {**asks(cpu, memory, **requests), "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "cpu_milli", "memory_mib"),
    [
        pytest.param({"containers": [asks("2", "1Gi"), asks("500m", "24Mi")]}, 2500, 1048, id="all that run together"),
        pytest.param(
            {"initContainers": [asks("3", "1Mi"), asks("1", "2Gi")], "containers": [asks("2", "1Gi")]}, 3000, 2048,
            id="or one of those before them",
        ),
        pytest.param(
            {"initContainers": [sidecar("1", "512Mi")], "containers": [asks("2", "1Gi")]}, 3000, 1536,
            id="sidecars beside them",
        ),
        pytest.param(
            {"initContainers": [sidecar("1"), asks("3"), sidecar("2")], "containers": [asks("500m")]}, 4000, 0,
            id="or one of those before them beside the sidecars that run already",
        ),
        pytest.param(
            {"initContainers": [asks("3"), sidecar("1")], "containers": [asks("1")]}, 3000, 0,
            id="and not beside those that come later",
        ),
        pytest.param(
            {"initContainers": [asks("3")], "containers": [asks("1")], "overhead": {"cpu": "250m"}}, 3250, 0,
            id="what the runtime takes beside any of them",
        ),
        pytest.param(
            {
                "resources": {"requests": {"cpu": "6"}},
                "initContainers": [asks("7")],
                "containers": [asks("1", "1Gi")],
                "overhead": {"cpu": "250m"},
            },
            6250, 1024,
            id="instead of these what the pod names as a whole",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [PodSpec, ScheduledSpec])
def test_cpus_and_memory_are_counted_as_by_kubernetes(
    kind: type[PodSpec | ScheduledSpec], spec: dict[str, Any], cpu_milli: int, memory_mib: int
) -> None:
    amounts = asked_by(msgspec.convert(spec, kind))
    assert (amounts.cpu_milli, amounts.memory_mib) == (cpu_milli, memory_mib)


def test_cards_of_sidecars_are_counted_beside_the_others() -> None:
    gpu = {"nvidia.com/gpu": "1"}
    spec = {"initContainers": [sidecar("1", **gpu)], "containers": [asks("1", **gpu)]}
    assert asked_by(msgspec.convert(spec, PodSpec)).cards == {"nvidia.com/gpu": 2}


def test_what_a_pod_names_as_a_whole_and_nobody_counts_is_told() -> None:
    spec = {"resources": {"requests": {"hugepages-2Mi": "4Mi"}}, "containers": [asks("1")]}
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "0"}, "spec": spec}, ScheduledPod)
    assert "it asks for hugepages-2Mi, which Millpond does not count" in demand_of(pod, ClaimDemand(), {}).trouble
