"""Simulated nodes fetch what work needs, keep what finds room, and report it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millpond.model.contents import Content
from millpond.model.errors import InvalidInputError
from millpond.model.events import NodeContents
from millpond.model.resources import TaskRequest
from millpond.model.workloads import Job, Role
from millpond.scheduling.scheduler import Scheduler
from millpond.simulation.clusters import uniform_cluster
from millpond.simulation.kernel import Simulation, World
from millpond.simulation.trace import TraceJob, Workload
from millpond.simulation.world.node_caches import CacheSize, NodeCaches

A, B, C = (Content(f"model:{name}", 1_000) for name in "abc")


def held(caches: NodeCaches) -> list[str]:
    return [content.name for content in caches.report("n", 0.0).contents]


def test_a_node_fetches_one_thing_after_another_and_nothing_twice() -> None:
    caches = NodeCaches(CacheSize(2_000, 100), ["n"])
    assert caches.begin((A, B), ["n"], 5.0) == (25.0, ["n"])
    assert caches.begin((A,), ["n"], 6.0) == (15.0, [])
    assert caches.begin((A,), ["n"], 30.0) == (30.0, [])
    assert (caches.starts, caches.hits, caches.fetched_bytes) == (3, 2, 2_000)


def test_of_what_was_used_as_often_the_oldest_makes_room_and_what_is_in_use_does_not() -> None:
    caches = NodeCaches(CacheSize(2_000, 100), ["n"])
    for content in (A, B):
        caches.begin((content,), ["n"], 0.0)
    assert caches.begin((C,), ["n"], 30.0) == (40.0, ["n"])
    assert held(caches) == [A.name, B.name]  # both are in use: it is fetched, and gone
    caches.end((A,), ["n"])
    caches.end((B,), ["n"])
    caches.begin((A,), ["n"], 50.0)
    caches.begin((C,), ["n"], 50.0)
    assert held(caches) == [A.name, C.name]


def test_what_is_used_often_stays_before_what_was_used_last_until_its_uses_have_faded() -> None:
    caches = NodeCaches(CacheSize(2_000, 100), ["n"])

    def use(content: Content, at: float) -> None:
        caches.begin((content,), ["n"], at)
        caches.end((content,), ["n"])

    for content in (A, A, A, B):
        use(content, 0.0)
    use(C, 1_000.0)
    assert held(caches) == [A.name, C.name]
    use(B, 2 * 86_400.0)
    assert held(caches) == [A.name, B.name]
    use(C, 2 * 86_400.0)
    assert held(caches) == [B.name, C.name]


def test_a_gang_begins_once_its_slowest_node_has_everything() -> None:
    caches = NodeCaches(CacheSize(2_000, 100), ["m", "n"])
    caches.begin((A,), ["n"], 0.0)
    assert caches.begin((A,), ["m", "n"], 20.0) == (30.0, ["m"])


@pytest.mark.parametrize(("size", "rate"), [(-1, 1), (0, 0)])
def test_a_cache_needs_a_rate_and_no_negative_size(size: int, rate: int) -> None:
    with pytest.raises(InvalidInputError, match="a rate above 0"):
        CacheSize(size, rate)


def played(cache: CacheSize | None, *, needs: bool = True, names: str = "abacbaccba") -> Simulation:
    """Jobs of ten seconds, one every four, on two nodes of one card."""
    request = (Role.rigid(TaskRequest(devices=1), 1),)
    jobs = [
        Job(f"j{number}", request, contents=(Content(f"model:{name}", 300),) if needs else ())
        for number, name in enumerate(names)
    ]
    entries = tuple(TraceJob(job, 4.0 * number, 10.0) for number, job in enumerate(jobs))
    world = World(uniform_cluster("2x1"), Workload(entries, "made"), "exact", cache=cache)
    simulation = Simulation(world, Scheduler(), record=True)
    simulation.run()
    return simulation


def ends(simulation: Simulation) -> list[float]:
    return [work.ended_at for work in simulation.works]


def test_what_is_fetched_ahead_makes_room_as_what_is_used_does_and_evicts_nothing_in_use() -> None:
    caches = NodeCaches(CacheSize(2_000, 100), ["n"])
    for content in (A, B):
        caches.begin((content,), ["n"], 0.0)
    assert not caches.prefetch((C,), "n", 30.0)
    assert (held(caches), caches.fetched_bytes) == ([A.name, B.name], 2_000)
    caches.end((A,), ["n"])
    assert caches.prefetch((C,), "n", 30.0)
    assert held(caches) == [B.name, C.name]
    assert caches.begin((C,), ["n"], 35.0) == (40.0, [])


def test_the_first_that_waits_starts_without_a_fetch_where_its_node_had_time_for_it() -> None:
    simulation = played(CacheSize(600, 100), names="aab")
    (fetched,) = [event for event in simulation.log if type(event) is NodeContents and len(event.contents) == 2]
    assert (fetched.node, fetched.at) == ("node-0", 8.0)
    assert ends(simulation) == [13.0, 17.0, 23.0]


def test_work_is_over_later_by_what_its_node_fetches_and_nodes_report_each_change() -> None:
    simulation = played(CacheSize(600, 100), names="aba")
    assert ends(simulation) == [13.0, 17.0, 23.0]  # the third goes where its model lies
    reports = [event for event in simulation.log if type(event) is NodeContents]
    assert [[content.name[-1] for content in report.contents] for report in reports] == [[], [], ["a"], ["b"]]


def test_a_cache_of_no_size_decides_as_none_and_makes_each_start_a_fetch() -> None:
    none, without_needs = played(CacheSize(0, 100)), played(CacheSize(600, 100), needs=False)
    assert none.caches is not None
    assert (none.caches.starts, none.caches.hits) == (10, 0)
    assert ends(without_needs) == ends(played(None))
    slower = replace(none.world, cache=None)
    jobs = tuple(replace(entry, duration_s=13.0) for entry in slower.workload.jobs)
    same = Simulation(replace(slower, workload=replace(slower.workload, jobs=jobs)), Scheduler())
    same.run()
    assert ends(same) == ends(none)


def test_a_cache_saves_fetches() -> None:
    cached, none = played(CacheSize(600, 100)), played(CacheSize(0, 100))
    assert cached.caches is not None
    assert none.caches is not None
    assert cached.caches.fetched_bytes < none.caches.fetched_bytes
    assert sum(ends(cached)) < sum(ends(none))
