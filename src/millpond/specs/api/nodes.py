"""The bodies of the REST API about machines and what they hold; units and instants as in ``specs.api.base``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInfo:
    """What one task holds of a device; a whole one is a slice of 1000 milli.

    Attributes:
        state: a ``model.states.TaskState``; a frozen task holds memory alone, a swapped one nothing.
        compute_milli, limit_milli: guaranteed compute, and the most of it while others are idle.
    """

    job: str
    task: int
    state: str
    compute_milli: int
    limit_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """One device, its capacity, what is free of it, and who holds it.

    Attributes:
        instance: number of the part that the hardware cut out of the card ``index`` (MIG).
        health: a ``model.devices.DeviceHealth``; only an ``ok`` device is handed out.
        experimental: the adapter of its vendor was written from documentation alone.
        holders: ids of the jobs with a slice of it.
        slices: what each of their tasks holds.
    """

    uuid: str
    index: int
    vendor: str
    model: str
    memory_mib: int
    free_memory_mib: int
    free_compute_milli: int
    health: str = "ok"
    health_detail: str = ""
    fake: bool = False
    holders: list[str] = field(default_factory=list)
    instance: int | None = None
    experimental: bool = False
    slices: list[SliceInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonInfo:
    """A span in which a machine takes no new work.

    Attributes:
        until: None: until it is opened.
        drain: preemptible work there is asked to leave when the span begins.
        by: who wanted it.
    """

    begin: float
    until: float | None = None
    reason: str = ""
    drain: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """One machine.

    Attributes:
        schedulable: new work may start there, as far as people and its engine are concerned.
        fake: any of its devices is pretended.
        closure: what keeps it closed now.
        draining: preemptible work there was asked to leave; ``jobs`` are what that still waits for.
        planned: when it will be closed.
        jobs: ids of the jobs that hold anything of it.
        cpu_capacity_milli: CPUs that may be handed out, which may be more than there are.
        unsandboxed: why jobs there are not kept apart from each other; empty when they are.
        unlimited: why all processes of a task together are not kept to what it asked for; empty when they are.
    """

    name: str
    pool: str
    cpu_milli: int
    free_cpu_milli: int
    cpu_capacity_milli: int = 0
    memory_mib: int
    free_memory_mib: int
    devices: list[DeviceInfo] = field(default_factory=list)
    rack: str = ""
    zone: str = ""
    schedulable: bool = True
    unschedulable_reason: str = ""
    fake: bool = False
    closure: CordonInfo | None = None
    draining: bool = False
    planned: list[CordonInfo] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    unsandboxed: str = ""
    unlimited: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """All machines of the cluster."""

    nodes: list[NodeInfo]
