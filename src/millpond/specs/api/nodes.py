"""The bodies of the REST API about machines and what they hold; units and instants as in ``specs.api.base``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from millpond.specs.api.base import LATEST, LONGEST_REASON, ONE_LINE, Body


class SliceInfo(Body):
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


class DeviceInfo(Body):
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
    holders: list[str] = Field(default=[])
    instance: int | None = None
    experimental: bool = False
    slices: list[SliceInfo] = Field(default=[])


class CordonInfo(Body):
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


class NodeInfo(Body):
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
    devices: list[DeviceInfo] = Field(default=[])
    rack: str = ""
    zone: str = ""
    schedulable: bool = True
    unschedulable_reason: str = ""
    fake: bool = False
    closure: CordonInfo | None = None
    draining: bool = False
    planned: list[CordonInfo] = Field(default=[])
    jobs: list[str] = Field(default=[])
    unsandboxed: str = ""
    unlimited: str = ""


class CloseRequest(Body):
    """A machine should take no new work: from now on, or from ``begin`` on.

    Attributes:
        reason: for people.
        until: when it opens by itself, in seconds since 1970; None: when it is opened.
        drain: preemptible work there is asked to leave when the span begins.
        begin: plans it for then: work that is known to run into it does not start there, and it always drains.
    """

    reason: Annotated[str, Field(max_length=LONGEST_REASON, pattern=ONE_LINE)] = ""
    until: Annotated[float, Field(ge=0, le=LATEST, strict=True)] | None = None
    drain: bool = False
    begin: Annotated[float, Field(ge=0, le=LATEST, strict=True)] | None = None


class OpenRequest(Body):
    """A machine should take new work again.

    Attributes:
        planned: what is planned for it is given up too.
    """

    planned: bool = False


class NodeList(Body):
    """All machines of the cluster."""

    nodes: list[NodeInfo]
