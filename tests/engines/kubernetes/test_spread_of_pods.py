"""Topology spread constraints with DoNotSchedule: kept by the choice of nodes, never broken by an early decision."""

from __future__ import annotations

from collections import Counter
from typing import Any

from foreign_pods import AdoptingBench, condition, foreign_pod
from hypothesis import given
from hypothesis import strategies as st
from pod_bench import eventually, start
from standin_cluster import NAMESPACE, StandinCluster
from test_neighbours_of_pods import HOST, WEB, ZONE, allowed, bench, bound, ready, running

from millpond.engines.kubernetes.adoption.affinities.spread_counts import SpreadCounts
from millpond.engines.kubernetes.adoption.affinities.spread_terms import SpreadTerm
from millpond.model.events import Refused

__all__ = ["bench"]
LEAVING = {"deletionTimestamp": "2026-11-24T10:00:00Z"}


def even(key: str = ZONE, **more: Any) -> list[dict[str, Any]]:
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return [{**constraint, "labelSelector": {"matchLabels": WEB}, **more}]


def spread(cluster: StandinCluster, name: str, *constraints: dict[str, Any], **more: Any) -> None:
    foreign_pod(cluster, name, labels=WEB, topologySpreadConstraints=list(constraints), **more)


def test_replicas_are_placed_one_after_another_and_none_where_it_would_be_one_too_many(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    for number in range(1, 5):
        spread(cluster, f"web-{number}", *even())
    # n1 and n2 are zone-0, n3 is zone-1.
    steps = [({"n1", "n2", "n3"}, "n1"), ({"n3"}, "n3"), ({"n1", "n2", "n3"}, "n3"), ({"n1", "n2"}, "n2")]
    for number, (may, node) in enumerate(steps, 1):
        ((pod, gang),) = eventually(lambda: ready(bench)).items()
        eventually(lambda gang=gang, may=may: allowed(bench, gang) == may)
        bound(cluster, bench, number, pod, node)


def test_pods_of_other_schedulers_count_and_those_that_leave_do_not(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    spread(cluster, "web", *even(HOST))
    gang = bench.gang()
    assert allowed(bench, gang) == {"n1", "n2", "n3"}
    running(cluster, "theirs", "n1", WEB)
    running(cluster, "other", "n2", {"app": "other"})
    eventually(lambda: allowed(bench, gang) == {"n2", "n3"})
    plain = cluster.get("pods", "theirs")
    assert plain is not None
    cluster.put("pods", "theirs", {**plain, "metadata": {**plain["metadata"], **LEAVING}}, NAMESPACE)
    eventually(lambda: allowed(bench, gang) == {"n1", "n2", "n3"})


def test_a_decision_that_came_too_early_is_refused_and_binds_nothing(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    spread(cluster, "web", *even())
    bench.stand_for(eventually(lambda: ready(bench).get("web")).key, "early-abcde")
    running(cluster, "theirs", "n1", WEB)
    eventually(lambda: allowed(bench, ready(bench)["web"]) == {"n3"})
    bench.engine.apply([start(1, "early-abcde", ("n2",))])
    refused = bench.next(Refused)
    assert "must be spread (app=web of team, by topology.kubernetes.io/zone, maxSkew 1)" in refused.reason
    assert refused.device_fault, "it is tried again"
    assert not any(request.endswith("/binding") for request in cluster.requests)


def test_nodes_that_the_pod_may_not_have_do_not_count_unless_it_says_so(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    running(cluster, "theirs", "n1", WEB)
    within = {HOST: "n1"}
    spread(cluster, "honor", *even(HOST), nodeSelector=within)
    foreign_pod(
        cluster,
        "ignore",
        labels={**WEB, "and": "more"},
        topologySpreadConstraints=even(HOST, nodeAffinityPolicy="Ignore"),
        nodeSelector=within,
    )
    gangs = eventually(lambda: found if len(found := ready(bench)) == 2 else None)
    eventually(lambda: allowed(bench, gangs["honor"]) == {"n1"})
    assert allowed(bench, gangs["ignore"]) == set()


def test_fewer_places_than_are_wanted_count_as_an_empty_one(cluster: StandinCluster, bench: AdoptingBench) -> None:
    for number, node in enumerate(("n1", "n3")):
        running(cluster, f"theirs-{number}", node, WEB)
    spread(cluster, "web", *even(minDomains=3))
    gang = bench.gang()
    eventually(lambda: allowed(bench, gang) == set())


def test_a_revision_counts_by_itself_where_its_label_is_named(cluster: StandinCluster, bench: AdoptingBench) -> None:
    running(cluster, "old", "n1", {**WEB, "pod-template-hash": "old"})
    labels = {**WEB, "pod-template-hash": "new"}
    constraints = even(HOST, matchLabelKeys=["pod-template-hash"])
    foreign_pod(cluster, "new", labels=labels, topologySpreadConstraints=constraints)
    assert allowed(bench, bench.gang()) == {"n1", "n2", "n3"}


def test_what_cannot_be_kept_is_told(cluster: StandinCluster, bench: AdoptingBench) -> None:
    notes = {"millpond.io/gang": "pair", "millpond.io/gang-size": "2"}
    for name in ("pair-1", "pair-2"):
        spread(cluster, name, *even(), annotations=notes)
    foreign_pod(cluster, "taints", labels={"app": "t"}, topologySpreadConstraints=even(nodeTaintsPolicy="Honor"))
    foreign_pod(
        cluster, "soft", labels={"app": "s"}, topologySpreadConstraints=even(whenUnsatisfiable="ScheduleAnyway")
    )
    assert "start together" in eventually(lambda: condition(cluster, "pair-1"))
    assert "nodeTaintsPolicy" in eventually(lambda: condition(cluster, "taints"))
    assert set(ready(bench)) == {"soft"}


NODES = {"a": "x", "b": "x", "c": "y", "d": "z"}
CHANGES = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(sorted(NODES))),
    st.tuples(st.just("gone"), st.sampled_from(sorted(NODES))),
    st.tuples(st.just("node"), st.sampled_from(sorted(NODES))),
)


@given(st.lists(CHANGES, max_size=40), st.integers(1, 2), st.integers(1, 4), st.booleans())
def test_the_full_places_are_those_that_a_count_of_everything_finds(
    changes: list[tuple[str, str]], most: int, least_places: int, counts_itself: bool
) -> None:
    counts = SpreadCounts(SpreadTerm("key", ("key",), "team", (), (), most, least_places, counts_itself))
    pods: Counter[str] = Counter()
    labels: dict[str, dict[str, str]] = {name: {} for name in NODES}
    told: set[str] = set()
    for kind, node in changes:
        if kind == "node":
            after = {} if labels[node] else {"key": NODES[node]}
            news = counts.relabel(node, labels[node], after)
            labels[node] = after
        elif kind == "pod" or pods[node]:
            change = 1 if kind == "pod" else -1
            pods[node] += change
            news = counts.add(node, labels[node], change)
        else:
            continue
        places = Counter({labels[name]["key"]: 0 for name in NODES if labels[name]})
        for name, count in pods.items():
            if labels[name]:
                places[labels[name]["key"]] += count
        least = 0 if len(places) < least_places else min(places.values(), default=0)
        full = {place for place, count in places.items() if count + counts_itself - least > most}
        assert set(counts.full) == full
        assert {place for place in "xyz" if counts.has({"key": place})} == full
        assert set(news) == told ^ full
        told = full
