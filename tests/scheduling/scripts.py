"""Random worlds for property tests: clusters, queues, policies and jobs, all small and full of contention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from worlds import CARD_MIB, asks, machine, queue

from millpond.model.contents import Content
from millpond.model.hardware.nodes import Node, Pool, SharingPolicy
from millpond.model.hardware.topology import Level
from millpond.model.resources import Amount, TaskRequest
from millpond.model.sharing import ShareClass
from millpond.model.tenancy.tenants import Queue
from millpond.model.windows import Window
from millpond.model.workloads import (
    UNBOUNDED_PREEMPTIONS,
    Checkpoint,
    CheckpointMode,
    FailureRule,
    GangRule,
    Job,
    Kind,
    Priority,
    RetryDelay,
    Role,
    Suspendable,
)
from millpond.scheduling.settings import PreemptionCost, Settings

POOLS = (
    Pool(
        suspends=True,
        memory_factor_milli=1500,
        longest_suspended_s=1_000.0,
        measured_growth=True,
        consolidates=True,
        balances=True,
    ),
    Pool(
        "shared",
        SharingPolicy.OVERCOMMITTED,
        2000,
        cpu_factor_milli=1500,
        lending=(Window(0, 60), Window(90, 1380)),
        packs=True,
    ),
)


def tree(limit: float, guarantee: float = 4) -> tuple[Queue, ...]:
    """Queues of which some lend, some borrow, and two share the limit of a team."""
    return (
        queue("team", guarantee=guarantee, limit=limit),
        queue("red", parent="team", guarantee=2),
        queue("blue", parent="team", limit=6, borrows=True, ordering="edf,service=sjf"),
        queue("guest", guarantee=3, borrows=False),
    )


def of_models(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """The same, where two levels of the tree bound cards of one model, and one borrows none of the other."""
    team, red, blue, guest = queues
    assert team.limit is not None
    assert blue.limit is not None
    return (
        replace(team, limit=replace(team.limit, models=(("A100", 3_000), ("V100", 4_000)))),
        red,
        replace(blue, limit=replace(blue.limit, models=(("A100", 2_000),))),
        replace(guest, limit=Amount(2**50, 2**50, 2**50, (("V100", 0),))),
    )


def guaranteed_models(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """The same, where cards of one model are guaranteed by name at two levels of the tree, and all others without."""
    team, red, blue, guest = queues
    named = replace(team.guarantee, models=(("A100", 3_000),)), Amount(2_000, models=(("A100", 1_000),))
    return replace(team, guarantee=named[0]), replace(red, guarantee=named[1]), blue, guest


def of_card_memory(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """The same, where card memory is bounded and guaranteed at two levels of the tree."""
    team, red, blue, guest = queues
    assert team.limit is not None
    assert blue.limit is not None
    return (
        replace(
            team,
            limit=replace(team.limit, card_mib=100_000),
            guarantee=replace(team.guarantee, card_mib=40_000),
        ),
        replace(red, guarantee=replace(red.guarantee, card_mib=20_000)),
        replace(blue, limit=replace(blue.limit, card_mib=50_000)),
        replace(guest, guarantee=replace(guest.guarantee, card_mib=30_000)),
    )


TREES = (
    tree(12), tree(4), tree(3, guarantee=0), of_models(tree(12)), guaranteed_models(tree(12)),
    guaranteed_models(of_models(tree(12))), of_card_memory(tree(12)), of_card_memory(guaranteed_models(tree(12))),
)  # fmt: skip
LEAVES = ("default", "red", "blue", "guest")
MODELS = ("A100", "V100")

HOURS = ((), (), (), (), (Window(0, 20),), (Window(10, 40), Window(300, 360)), (Window(60, 59),))
"""Windows of jobs; the clock of these worlds starts at midnight, and mostly goes in minutes."""

RULES = (FailureRule(("user-error", "out-of-memory")), FailureRule((), ("out-of-memory", "node-lost")))

WHOLE = [
    asks(0, cpus=4),
    asks(1),
    asks(1, cpus=20, memory_mib=60_000),
    asks(2),
    asks(4),
    asks(8),
    asks(1, models=["V100"]),
    asks(2, extras=[("rdma", 1)]),
]
SLICES = [
    asks(0.25),
    asks(0.5),
    asks(0.5, limit=1),
    asks(0.3, limit=0.6, card_mib=5_000),
    asks(0, card_mib=4_000, limit=0.3),
    asks(0.25, card_mib=6_000, extras=[("rdma", 1)]),
    asks(0, card_mib=3_000, limit=0.2, extras=[("licence", 1)]),
]


class Setting:
    """Everything that is there before the first job comes. Not a dataclass, so that failures print it in one line."""

    def __init__(self, nodes: tuple[Node, ...], queues: tuple[Queue, ...], settings: Settings) -> None:
        self.nodes = nodes
        self.settings = settings
        self.pools = POOLS
        self.queues = queues

    def __repr__(self) -> str:
        machines = ", ".join(
            f"{node.name} {node.pool}/{node.zone_name}/{node.rack_name} {len(node.devices)} x "
            f"{[(device.model, device.memory_mib) for device in node.devices][:1]} swap {node.swap_mib} {node.extras}"
            for node in self.nodes
        )
        chosen = {name: getattr(self.settings, name) for name in ("ordering", "placement", "preempt", "reserve")}
        free = self.settings.preemption_cost.is_free
        return f"<{machines}; team {self.queues[0].limit}; {chosen}; preempting is free: {free}>"


@st.composite
def nodes(draw: st.DrawFn, name: str, pool: str = "default") -> Node:
    """A machine of any size; some do not know the memory of their cards, some have host memory to swap to."""
    return machine(
        name,
        draw(st.sampled_from((4, 2, 1, 8, 16, 0))),
        model=draw(st.sampled_from(MODELS)),
        card_mib=draw(st.sampled_from((CARD_MIB, 0))),
        remaps=draw(st.booleans()),
        cap_range_w=(100.0, 260.0),
        pool=pool,
        rack_name=draw(st.sampled_from(("r1", "r2"))),
        zone_name=draw(st.sampled_from(("z1", "z1", "z2"))),
        swap_mib=draw(st.sampled_from((0, 64_000))),
        extras=draw(st.sampled_from(((), (("rdma", 2),), (("licence", 1), ("rdma", 4))))),
    )


ORDERINGS = ("default", "default", "default,service=fifo", "edf", "fair", "fifo", "srtf", "tiresias")
FREE = PreemptionCost(0.0, 0.0)


@st.composite
def policies(draw: st.DrawFn, orderings: tuple[str, ...] = ORDERINGS) -> Settings:
    """Settings of a scheduler."""
    return Settings(
        ordering=draw(st.sampled_from(orderings)),
        placement=draw(st.sampled_from(("default", "default", "fgd", "best-fit", "dot-product", "random", "gandiva"))),
        preempt=draw(st.booleans()),
        reserve=draw(st.booleans()),
        preemption_cost=draw(st.sampled_from((PreemptionCost(), FREE))),
        tiresias_thresholds_gpu_s=(100.0,),
    )


@st.composite
def worlds(draw: st.DrawFn, orderings: tuple[str, ...] = ORDERINGS) -> Setting:
    """One to four machines in the default pool and one or two in the over-committed one, with queues and policies."""
    own = [draw(nodes(f"n{number}")) for number in range(draw(st.integers(1, 4)))]
    shared = [draw(nodes(f"s{number}", "shared")) for number in range(draw(st.integers(1, 2)))]
    return Setting((*own, *shared), draw(st.sampled_from(TREES)), draw(policies(orderings)))


@st.composite
def roles(draw: st.DrawFn, name: str, requests: list[TaskRequest], *, elastic: bool) -> Role:
    """One role: rigid, or with room to grow and to shrink."""
    request = draw(st.sampled_from(requests))
    desired = draw(st.sampled_from((2, 3, 4) if elastic else (1, 1, 2, 3)))
    if not elastic:
        return Role.rigid(request, desired, name)
    return Role(request, desired, draw(st.integers(1, desired)), desired + draw(st.integers(0, 2)), name)


CONTENTS = ("image:a", "data:b@1")


@st.composite
def jobs(draw: st.DrawFn, id_: str, **fixed: Any) -> Job:
    """A job of any kind that asks for a place in either pool: one role or several, rigid, elastic, or of both kinds."""
    pool = draw(st.sampled_from(("default", "default", "shared")))
    requests = WHOLE + SLICES
    names = draw(st.sampled_from((("worker",), ("worker",), ("worker", "server"), ("worker", "server", "chief"))))
    own = [draw(roles(name, requests, elastic=draw(st.booleans()))) for name in names]
    if len(own) > 1 and draw(st.booleans()):
        own[-1] = replace(own[-1], daemon=True, failures=draw(st.sampled_from((None, *RULES))))
    together = draw(st.sampled_from((Level.CLUSTER, Level.ZONE, Level.RACK, Level.NODE)))
    job = Job(
        id_,
        tuple(own),
        user=draw(st.sampled_from(("ann", "bob"))),
        queue=draw(st.sampled_from(LEAVES)),
        pool=pool,
        kind=draw(st.sampled_from((Kind.TRAIN, Kind.SERVICE))),
        priority=draw(st.sampled_from((Priority.NORMAL, Priority.NORMAL, Priority.LOW, Priority.HIGH))),
        together=together,
        together_required=together < Level.CLUSTER and draw(st.booleans()),
        gang_rule=draw(st.sampled_from(GangRule)),
        retries=draw(st.integers(0, 1)),
        time_limit_s=draw(st.sampled_from((None, None, 500.0))),
        preemptible=draw(st.sampled_from((True, True, False))),
        minimum_run_s=draw(st.sampled_from((0.0, 0.0, 50.0))),
        preemption_budget=draw(st.sampled_from((1_000_000, 1))),
        deadline_s=draw(st.sampled_from((None, 1_000.0))),
        flexible_s=draw(st.sampled_from((0.0, 0.0, 0.0, 500.0, 9_000.0))),
        suspendable=draw(st.sampled_from(Suspendable)),
        share_class=draw(st.sampled_from(ShareClass)),
        windows=draw(st.sampled_from(HOURS)),
        checkpoint=draw(st.sampled_from((Checkpoint(), Checkpoint(CheckpointMode.SIGNAL)))),
        failures=draw(st.sampled_from((FailureRule(), FailureRule(), *RULES))),
        retry_delay=draw(st.sampled_from((RetryDelay(), RetryDelay(60.0)))),
        keep_s=draw(st.sampled_from((0.0, 100.0))),
    )
    if job.deadline_s is not None:
        job = replace(job, name="n", max_slowdown=0.5)
    if job.elastic and not job.preemptible and draw(st.booleans()):
        job = replace(job, rest_preemptible=True)
    if draw(st.integers(0, 5)) == 0:
        job = replace(
            job, preemptible=True, rest_preemptible=False, minimum_run_s=0.0, preemption_budget=UNBOUNDED_PREEMPTIONS
        )
        job = replace(job, priority=Priority.BACKGROUND)
    job = replace(job, contents=tuple(Content(name, 900 * job.retries) for name in CONTENTS[: 1 + len(own) % 2]))
    return replace(job, **fixed)
