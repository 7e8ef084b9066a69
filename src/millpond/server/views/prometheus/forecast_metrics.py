"""Metrics of energy and forecasts for Prometheus: the power state of machines, and the accuracy of forecasts.

They are by pool and by queue: labels by service would be unbounded texts of users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from millpond.model.states import TaskState
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.pool.nodes import NodeInfo, SpareInfo
from millpond.specs.api.services import ScalingInfo


def power_states(nodes: Sequence[NodeInfo]) -> Iterator[Metric]:
    """How many machines of each pool are at which power, and of how many nothing is heard."""
    counts = Counter((node.pool, node.power) for node in nodes)
    yield gauge(
        "millpond_nodes", "Machines by their power: on, off, or on their way", ("pool", "power"), counts.items()
    )
    silent = Counter({node.pool: 0 for node in nodes})
    silent.update(node.pool for node in nodes if node.silent)
    text = "Machines of which nothing is heard, or of whose cluster"
    yield gauge("millpond_silent_nodes", text, ("pool",), [((pool,), count) for pool, count in silent.items()])


def spare_forecasts(spares: Sequence[SpareInfo]) -> Iterator[Metric]:
    """How many empty machines stay on, and what the forecast behind that would have been worth."""
    for name, text, figure in _SPARE_FIGURES:
        found = [((each.pool,), value) for each in spares if (value := figure(each)) is not None]
        yield gauge(f"millpond_pool_{name}", text, ("pool",), found)


def replicas(
    jobs: Iterable[JobInfo], scaling: Mapping[str, ScalingInfo], named: Callable[[str], str]
) -> Iterator[Metric]:
    """How many replicas the rules of services ask for and have, by queue, and how many services have a forecast.

    Args:
        named: gives the label of a queue.
    """
    wanted, running, forecasts = Counter[str](), Counter[str](), Counter[str]()
    for job in jobs:
        rule = scaling.get(job.id)
        if rule is None:
            continue
        queue = named(job.queue)
        wanted[queue] += rule.wanted
        running[queue] += sum(task.state == TaskState.RUNNING for task in job.tasks)
        if rule.ahead_s is not None:
            forecasts["no" if rule.forecast is None else "yes"] += 1
    by_queue: tuple[tuple[str, str, Counter[str]], ...] = (
        ("wanted", "Replicas that the rules of its services ask for", wanted),
        ("running", "Replicas of these services that run", running),
    )
    for name, text, counts in by_queue:
        yield gauge(f"millpond_queue_{name}_replicas", text, ("queue",), [((of,), n) for of, n in counts.items()])
    text = "Services whose rule asks for a forecast, by whether there is one"
    yield gauge("millpond_services", text, ("forecast",), [((of,), n) for of, n in forecasts.items()])


_SPARE_FIGURES: Final[tuple[tuple[str, str, Callable[[SpareInfo], float | None]], ...]] = (
    ("spare_nodes", "Empty machines that stay on", lambda each: each.spare),
    ("forecast_cover_ratio", "Part of the rises of demand that a forecast is to cover", lambda each: each.cover),
    ("forecast_met_ratio", "Part that it would have covered in the tested days", lambda each: each.coverage),
    ("forecast_skill", "Part of the loss of the fixed number that it saves; 1 is perfect", lambda each: each.skill),
)


def gauge(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    """A family of current values."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for names, value in values:
        family.add_metric(names, value)
    return family
