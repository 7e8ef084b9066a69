"""The bodies of the REST API about machines, their devices and what they hold; units and instants as in
``specs.api.base``. Figures are null where they are unknown."""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond.model.states import TaskState


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
class DeviceFacts:
    """What one device is.

    Attributes:
        instance: number of the part that the hardware cut out of the card ``index`` (MIG).
        health: a ``model.hardware.devices.DeviceHealth``; only an ``ok`` device is handed out.
        experimental: the adapter of its vendor was written from documentation alone.
    """

    uuid: str
    index: int
    vendor: str
    model: str
    memory_mib: int
    health: str = "ok"
    health_detail: str = ""
    fake: bool = False
    instance: int | None = None
    experimental: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo(DeviceFacts):
    """One device, what is free of it, and who holds it.

    Attributes:
        holders: ids of the jobs with a slice of it.
        slices: what each of their tasks holds.
        closure: what keeps its card closed, its node aside.
        probation_until: its card came back from a fault, and closes by itself if it fails once more before then.
    """

    free_memory_mib: int
    free_compute_milli: int
    holders: list[str] = field(default_factory=list)
    slices: list[SliceInfo] = field(default_factory=list)
    closure: CordonInfo | None = None
    probation_until: float | None = None

    @property
    def kept_milli(self) -> int:
        """Of the free compute, what frozen tasks keep from others, as they hold its memory."""
        frozen = sum(each.compute_milli for each in self.slices if each.state == TaskState.FROZEN)
        return min(frozen, self.free_compute_milli)


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonInfo:
    """A span in which a machine, or one of its cards, takes no new work.

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
        cluster: the one that it is in, where the server drives several.
        schedulable: new work may start there, as far as people and its engine are concerned.
        silent: nothing is heard of it, or of its cluster.
        fake: any of its devices is pretended.
        closure: what keeps it closed now.
        draining: preemptible work there was asked to leave; ``jobs`` are what that still waits for.
        power: ``on``, ``draining``, ``off``, ``booting`` or ``failed``, where its pool saves energy.
        power_detail: why, or what went wrong when it was switched last.
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
    cluster: str = ""
    schedulable: bool = True
    unschedulable_reason: str = ""
    silent: bool = False
    fake: bool = False
    closure: CordonInfo | None = None
    draining: bool = False
    power: str = "on"
    power_detail: str = ""
    planned: list[CordonInfo] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    unsandboxed: str = ""
    unlimited: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareInfo:
    """How many empty nodes of a pool that saves energy stay on.

    Attributes:
        spare: so many now; the number of its rule, or more by a forecast.
        cover: the part of the rises of demand within ``within_s``, the boot time, that a forecast is to cover.
        coverage: the part that it would have covered in the last ``tested_days``; None: there is no forecast.
        skill: what part of the pinball loss of the rule's number it saves: 1 is perfect.
        no_forecast: why there is none.
    """

    pool: str
    spare: int
    cover: float | None = None
    within_s: float = 0.0
    coverage: float | None = None
    skill: float | None = None
    tested_days: int = 0
    no_forecast: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """All machines of the cluster.

    Attributes:
        spares: by pool that saves energy, how many empty ones stay on.
    """

    nodes: list[NodeInfo]
    spares: list[SpareInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceStatus(SliceInfo):
    """What one task holds of a device, and what it makes of it.

    Attributes:
        job, user: empty user and a general word instead of the id where they are not for the reader.
        state: that of the task; ``swapped`` also while its node has moved it aside for a moment.
        share_class: who goes first on the device: ``online``, ``normal``, ``backfill``.
        hold: what keeps the task to its part, a ``model.sharing.SliceHold``.
        use_milli: part of the last seconds in which its work was on the device.
        memory_used_mib, swapped_mib: what it has on the device, and of it on the host.
        denials: requests for memory beyond its part that were refused.
    """

    attempt: int
    role: str
    user: str
    share_class: str
    hold: str | None = None
    use_milli: int | None = None
    memory_used_mib: int | None = None
    swapped_mib: int | None = None
    denials: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePoint:
    """One look at a device.

    Attributes:
        at: seconds since 1970.
        use_milli: part of the last moment in which it was computing.
        sm_milli, tensor_milli: part of the last ten seconds in which its multiprocessors, and its tensor cores, worked,
            as a mean over all of them; NVIDIA's from Hopper on.
    """

    at: float
    use_milli: int | None = None
    memory_used_mib: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: int | None = None
    clock_mhz: int | None = None
    sm_milli: int | None = None
    tensor_milli: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One process on a device.

    Attributes:
        name, account: of its program, and of the account of the machine that it runs under; empty where it is over, or
            not for the reader.
        job, task: whose it is; empty where it is no task's.
        foreign: it runs on this machine, and Millpond did not start it.
        use_milli: part of the last moment in which its work was on the device; None where the driver does not tell.
        memory_mib: device memory that it holds.
    """

    pid: int
    name: str = ""
    account: str = ""
    job: str = ""
    task: int | None = None
    foreign: bool = False
    use_milli: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus(DeviceFacts):
    """A device, its latest figures, and who holds what of it.

    Attributes:
        power: of its node, as in ``NodeInfo``.
        latest: None where nothing was sampled lately.
        processes: who is on it, where one machine is asked about: as its driver lists them, else all of the tasks that
            hold it.
        history: earlier looks, oldest first, as far back as was asked for and is remembered.
    """

    node: str
    pool: str
    power: str = "on"
    latest: SamplePoint | None = None
    slices: list[SliceStatus] = field(default_factory=list)
    processes: list[ProcessStatus] = field(default_factory=list)
    history: list[SamplePoint] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceList:
    """All devices, node by node."""

    devices: list[DeviceStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentInfo:
    """Something that a machine holds, so that work which needs it has nothing to fetch.

    Attributes:
        name: what it is: ``image:REFERENCE``, ``data:NAME@3``.
        bytes: 0 where that is not known.
    """

    name: str
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDetail:
    """One machine with the figures of its devices.

    Attributes:
        devices: in the order of ``node.devices``.
        links: how each device is joined with each, in the same order, as ``nvlink-double``; empty where it is unknown.
        contents: what it holds of images and data, by which placement goes, the largest first; none for who does not
            see the jobs of all others.
        fetch_rate: bytes per second at which it fetches what it lacks; 0 where that is not known.
    """

    node: NodeInfo
    devices: list[DeviceStatus] = field(default_factory=list)
    links: list[list[str]] = field(default_factory=list)
    contents: list[ContentInfo] = field(default_factory=list)
    fetch_rate: int = 0
