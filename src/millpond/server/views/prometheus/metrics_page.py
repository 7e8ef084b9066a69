"""The page that Prometheus scrapes: counters, and the current state.

Names and units follow https://prometheus.io/docs/practices/naming/: base units, ratios from 0 to 1.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, Protocol, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from millpond.model.errors import MillpondError, UnavailableError
from millpond.model.states import JobState
from millpond.node.devices.device_metrics import device_metrics, slice_metrics
from millpond.server.auth.tokens import TokenRegistry
from millpond.server.monitoring.instruments import ALL_OTHERS, MOST_QUEUES
from millpond.server.runtime.active_jobs.job_cache import JobCache
from millpond.server.version import VERSION
from millpond.server.views.about import ServerHealth
from millpond.server.views.hardware.machines import Machines
from millpond.server.views.prometheus.forecast_metrics import gauge, power_states, replicas, spare_forecasts
from millpond.server.views.prometheus.pool_metrics import (
    MOST_DEVICES,
    KnownNodes,
    closed_devices,
    conspicuous_devices,
    idle_devices,
    node_metrics,
)
from millpond.server.views.queues import Queues
from millpond.server.views.visibility import EVERYBODY
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.pool.nodes import DeviceStatus, NodeInfo, SpareInfo
from millpond.specs.api.pool.queues import QueueInfo
from millpond.specs.api.services import ScalingInfo

T = TypeVar("T")

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_MILLI: Final = 1_000
POOL_WITHIN_S: Final = 2.0
"""While something is wrong, figures of the pool are left out that take longer: a scrape has ten seconds for all."""


@dataclass(frozen=True, slots=True)
class MetricsState:
    """How things stand.

    Attributes:
        at: seconds since 1970.
        jobs: those that have not ended.
        nodes: all machines.
        scaling: what the rules of services ask for, by job.
        degraded: whether nothing new is taken on or started, or by a wrong time of day, or the store fails.
        certificate_ends: until when the certificate is valid, in seconds since 1970; None: there is none.
        token_ends: until when the first of the tokens that programs use is valid; None: none ends.
    """

    at: float
    degraded: bool
    certificate_ends: float | None
    jobs: Sequence[JobInfo]
    queues: Sequence[QueueInfo]
    token_ends: float | None
    nodes: Sequence[NodeInfo]
    spares: Sequence[SpareInfo]
    scaling: Mapping[str, ScalingInfo]


@dataclass(frozen=True, slots=True)
class MetricsSources:
    """Whom to ask how things stand; ``scaling`` gives what the rules of services ask for, by job."""

    machines: Machines
    queues: Queues
    job_cache: JobCache
    health: ServerHealth
    tokens: TokenRegistry
    certificate_ends: Callable[[], float | None]
    scaling: Callable[[], Mapping[str, ScalingInfo]]


class MetricsPage:
    """The page of one server, made when it is asked for.

    Args:
        registry: what was counted.
    """

    def __init__(self, registry: CollectorRegistry, sources: MetricsSources) -> None:
        self._registry = registry
        self._sources = sources
        self._known_nodes = KnownNodes()
        self._preparing: asyncio.Task[None] | None = None

    def prepare(self) -> asyncio.Task[None]:
        """Begin to describe all machines, so that the first scrape need not. In the event loop of requests alone."""
        self._preparing = asyncio.get_running_loop().create_task(self._prepared())
        return self._preparing

    async def _prepared(self) -> None:
        try:
            await self.page()
        except MillpondError as error:
            log.warning("machines are described when they are first asked for: %s", error)

    async def page(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        ask = self._sources
        trouble = await ask.health.troubled()
        try:
            nodes, queues, devices = await asyncio.wait_for(self._pool(), POOL_WITHIN_S if trouble else None)
        except (TimeoutError, UnavailableError):
            if not trouble:
                raise
            nodes, queues, devices = [], [], None
        standing = MetricsState(
            time.time(),
            bool(trouble),
            ask.certificate_ends(),
            ask.job_cache.newest_first(),
            queues,
            ask.tokens.next_end(),
            nodes,
            ask.machines.spares(),
            dict(ask.scaling()),
        )

        def text() -> bytes:
            known = self._known_nodes.lines_of(nodes, ask.machines.telemetry.latest_samples())
            pool = [*node_metrics(known)]
            pool += conspicuous_devices(known) if devices is None else device_metrics(devices)
            pool += slice_metrics(devices or ())
            pool.append(closed_devices(known))
            pool.append(idle_devices(nodes, ask.machines.idle_cards.since, standing.at))
            return generate_latest(_Together(self._registry, standing)) + "".join(pool).encode()

        return await asyncio.to_thread(text)

    async def _pool(self) -> tuple[list[NodeInfo], list[QueueInfo], list[DeviceStatus] | None]:
        """Machines, queues and, where there are few, devices."""
        machines = self._sources.machines
        nodes, queues = await asyncio.gather(machines.all(EVERYBODY), self._sources.queues.all())
        has_few = sum(len(node.devices) for node in nodes) <= MOST_DEVICES
        return nodes, queues, await machines.devices(EVERYBODY, 0) if has_few else None


class _Together(CollectorRegistry):
    """What was counted, and after it how things stand."""

    def __init__(self, counted: CollectorRegistry, standing: MetricsState) -> None:
        super().__init__()
        self._counted = counted
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        named = _labels_of(self._standing.queues)
        yield from self._counted.collect()
        yield from _server(self._standing)
        yield from _jobs(self._standing, named)
        yield from _queues(self._standing)
        yield from power_states(self._standing.nodes)
        yield from spare_forecasts(self._standing.spares)
        yield from replicas(self._standing.jobs, self._standing.scaling, named)


def _server(standing: MetricsState) -> Iterator[Metric]:
    yield gauge("millpond_server", "Always 1; says which version runs", ("version",), [((VERSION,), 1.0)])
    text = "Whether the store fails, nothing new is taken on or started, or time is wrong; /readyz has the reason"
    yield gauge("millpond_server_degraded", text, (), [((), float(standing.degraded))])
    if standing.certificate_ends is not None:
        text = "Until when the server's certificate is valid, in seconds since 1970"
        yield gauge("millpond_certificate_end_timestamp_seconds", text, (), [((), standing.certificate_ends)])
    if standing.token_ends is not None:
        text = "Until when the first of the made tokens that were used of late is valid, in seconds since 1970"
        yield gauge("millpond_token_end_timestamp_seconds", text, (), [((), standing.token_ends)])


def _labels_of(queues: Sequence[QueueInfo]) -> Callable[[str], str]:
    """The label of each queue: its name, of those nearest to the root."""
    shown = frozenset(queue.name for queue in nearest_to_root(queues, lambda queue: queue))
    return lambda queue: queue if queue in shown or len(queues) <= MOST_QUEUES else ALL_OTHERS


def _jobs(standing: MetricsState, named: Callable[[str], str]) -> Iterator[Metric]:
    own = [info for info in standing.jobs if info.array is None]
    counts = Counter((named(info.queue), info.kind, info.state) for info in own)
    yield gauge("millpond_jobs", "Jobs that have not ended", ("queue", "kind", "state"), counts.items())
    waiting: dict[str, float] = {}
    for info in filter(_could_start, own):
        waiting[info.queue] = max(waiting.get(info.queue, 0.0), standing.at - info.queued_at)
    longest = frozenset(nlargest(MOST_QUEUES, waiting, key=waiting.__getitem__))
    told = [((queue,), seconds) for queue, seconds in waiting.items() if queue in longest or named(queue) == queue]
    text = "How long ago the first of the jobs that wait could have started"
    yield gauge("millpond_oldest_waiting_job_seconds", text, ("queue",), told)


def _could_start(info: JobInfo) -> bool:
    """Whether a job waits for nothing but a place."""
    is_eligible = info.eligible_at is not None and not info.scaled_to_zero and not info.suspension
    return info.state == JobState.QUEUED and is_eligible and info.array is None


def _queues(standing: MetricsState) -> Iterator[Metric]:
    queues = standing.queues
    figures: tuple[tuple[str, str, Callable[[QueueInfo], int | None]], ...] = (
        ("used", "Cards that its jobs hold", lambda queue: queue.gpu_milli),
        ("guaranteed", "Cards that it gets whenever it asks", lambda queue: queue.promised_gpu_milli),
        ("limit", "Cards that it may hold at most", lambda queue: queue.limit_gpu_milli),
        ("borrowed", "Cards that it holds beyond guarantees", lambda queue: queue.borrowed_gpu_milli),
        ("lent", "Cards that others hold of its guarantee", lambda queue: queue.lent_gpu_milli),
        ("asked", "Cards that its waiting jobs ask for", lambda queue: queue.waiting_gpu_milli),
    )
    shown = nearest_to_root(queues, lambda queue: queue)
    for name, text, figure in figures:
        found = [(queue.name, figure(queue)) for queue in shown]
        values = [((queue,), milli / _MILLI) for queue, milli in found if milli is not None]
        yield gauge(f"millpond_queue_{name}_gpus", text, ("queue",), values)
    waits = _waits_below_guarantee(standing)
    text = "How long the first of the jobs of it and below it waits that its guarantee has room for"
    told = [((queue.name,), waits[queue.name]) for queue in shown if queue.name in waits]
    yield gauge("millpond_queue_below_guarantee_seconds", text, ("queue",), told)
    yield gauge("millpond_queues", "Queues, those without figures of their own too", (), [((), float(len(queues)))])


def _waits_below_guarantee(standing: MetricsState) -> dict[str, float]:
    """By queue, the longest wait of a job that a guarantee has room for: of its queue, or of one above it.

    What a guarantee promises to queues below it is no room for the others there.
    """
    queues = standing.queues
    unmet = {each.name: max(each.promised_gpu_milli - (each.within_gpu_milli or 0), 0) for each in queues}
    rooms, parents = Counter(unmet), {each.name: each.parent for each in queues}
    for name, parent in parents.items():
        rooms[parent] -= unmet[name]
    waits: dict[str, float] = {}
    for info in filter(_could_start, standing.jobs if any(unmet.values()) else ()):
        queue = info.queue
        while queue:
            if 0 < info.gpu_milli <= rooms[queue]:
                waits[queue] = max(waits.get(queue, 0.0), standing.at - info.queued_at)
            queue = parents.get(queue, "")
    return waits


class _InTree(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def parent(self) -> str: ...


def nearest_to_root(queues: Sequence[T], place: Callable[[T], _InTree]) -> list[T]:
    """``MOST_QUEUES`` of them, those on the upper floors first.

    Args:
        queues: each behind its parent.
        place: gives the name of a queue and that of its parent.
    """
    depths: dict[str, int] = {}
    for queue in map(place, queues):
        depths[queue.name] = depths.get(queue.parent, -1) + 1
    return sorted(queues, key=lambda queue: depths[place(queue).name])[:MOST_QUEUES]
