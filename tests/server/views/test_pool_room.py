"""What is free by model of card, and which jobs hold cards that do not compute."""

from __future__ import annotations

from dataclasses import replace

from job_infos import job_info
from millpond.server.monitoring.idle_cards import IDLE_AFTER_S
from millpond.server.views.hardware.pool_room import PoolRooms, idle_holders
from millpond.specs.api.jobs.jobs import DeviceGrant, JobInfo, TaskInfo
from millpond.specs.api.pool.nodes import DeviceInfo, NodeInfo, SliceInfo

NOW = 10_000.0


def card(index: int, free_milli: int = 1000, model: str = "A100", health: str = "ok") -> DeviceInfo:
    return DeviceInfo(
        uuid=f"u{index}", index=index, vendor="fake", model=model, memory_mib=10, free_memory_mib=10,
        free_compute_milli=free_milli, health=health, holders=[] if free_milli == 1000 else ["a"],
    )  # fmt: skip


def node(name: str, *cards: DeviceInfo) -> NodeInfo:
    return NodeInfo(
        name=name, pool="default", cpu_milli=1, free_cpu_milli=1, memory_mib=1, free_memory_mib=1, devices=list(cards)
    )


def test_whole_cards_parts_and_the_largest_block_are_told_apart() -> None:
    nodes = [
        node("n1", card(0), card(1, 250), card(2, 0)),
        node("n2", card(0), card(1)),
        node("n3", card(0, model="T4")),
    ]
    large, small = PoolRooms().of(nodes)
    assert (large.model, large.cards, large.held_milli, large.usable_milli) == ("A100", 5, 1750, 3250)
    assert (large.whole, large.largest_block, large.block_node) == (3, 2, "n2")
    assert (small.model, small.cards, small.whole) == ("T4", 1, 1)


def test_what_frozen_jobs_keep_of_cards_that_could_be_handed_out_is_told() -> None:
    def kept(index: int, state: str, free_milli: int = 1000) -> DeviceInfo:
        part = SliceInfo(job="b", task=0, state=state, compute_milli=500, limit_milli=500, memory_mib=5)
        return replace(card(index, free_milli), slices=[part])

    nodes = [node("n1", kept(0, "frozen"), kept(1, "frozen", 250), kept(2, "running", 500), kept(3, "swapped"))]
    (room,) = PoolRooms().of([*nodes, replace(node("n2", kept(0, "frozen")), schedulable=False)])
    assert (room.held_milli, room.usable_milli, room.frozen_milli) == (1250, 2750, 750)


def test_what_cannot_be_handed_out_is_not_free() -> None:
    nodes = [
        node(
            "n1", card(0, health="faulty"), card(1), card(2, health="busy-elsewhere"), card(3, health="busy-elsewhere")
        ),
        replace(node("n2", card(0), card(1, 0)), schedulable=False),
    ]
    (room,) = PoolRooms().of(nodes)
    assert (room.usable_milli, room.whole, room.largest_block) == (1000, 1, 1)
    assert (room.broken, room.elsewhere, room.closed, room.held_milli) == (1, 2, 2, 1000)


def test_a_machine_that_has_changed_is_counted_anew_and_one_that_is_gone_is_not_counted() -> None:
    rooms, one, other = PoolRooms(), node("n1", card(0), card(1)), node("n2", card(0))
    assert [room.whole for room in rooms.of([one, other])] == [3]
    assert [room.whole for room in rooms.of([node("n1", card(0), card(1, 0)), other])] == [2]
    assert rooms.of([other]) == PoolRooms().of([other])


def job(started_at: float = NOW - 3_000, state: str = "running", devices: tuple[str, ...] = ("u0",)) -> JobInfo:
    grants = [
        DeviceGrant(uuid=each, index=0, model="A100", compute_milli=1000, limit_milli=1000, memory_mib=1)
        for each in devices
    ]
    tasks = [TaskInfo(task=0, role="worker", state=state, devices=grants)]
    return job_info(id="a", state=state, started_at=started_at, gpus="1", gpu_milli=1000 * len(devices), tasks=tasks)


LONG_AGO = NOW - IDLE_AFTER_S - 1


def test_a_job_is_idle_when_none_of_its_cards_computed_for_long() -> None:
    (idle,) = idle_holders([job()], {"u0": LONG_AGO}, NOW)
    assert (idle.job, idle.since) == ("a", LONG_AGO)
    assert idle_holders([job(devices=("u0", "u1"))], {"u0": LONG_AGO}, NOW) == [], "one computes, or does not say"
    assert idle_holders([job(devices=("u0", "u1"))], {"u0": LONG_AGO, "u1": NOW - 60}, NOW) == []


def test_what_is_idle_is_named_with_the_cards_that_it_holds_most_first() -> None:
    shrunk = replace(job(), id="elastic", gpu_milli=8000)
    found = idle_holders([shrunk, job(devices=("u1", "u2"))], dict.fromkeys(("u0", "u1", "u2"), LONG_AGO), NOW)
    assert [(idle.job, idle.gpu_milli) for idle in found] == [("a", 2000), ("elastic", 1000)]


def test_only_what_runs_for_long_and_holds_cards_can_be_idle() -> None:
    quiet = {"u0": NOW - 2_000}
    assert idle_holders([job(started_at=NOW - 300)], quiet, NOW) == []
    assert idle_holders([job(state="suspended")], quiet, NOW) == []
    assert idle_holders([job(devices=())], quiet, NOW) == []
    (idle,) = idle_holders([job(started_at=NOW - 700)], quiet, NOW)
    assert idle.since == NOW - 700, "what its card did before was not its own"
