"""Topology spread constraints with DoNotSchedule: kept by the choice of nodes, never broken by an early decision."""

from __future__ import annotations

from collections import Counter
from typing import Any

from foreign_pods import JOB, AdoptingBench, condition, foreign_pod
from hypothesis import given
from hypothesis import strategies as st
from pod_bench import eventually, start
from standin_cluster import NAMESPACE, StandinCluster
from test_neighbours_of_pods import HOST, WEB, ZONE, allowed, bench, bound, ready, running

from millpond.engines.kubernetes.adoption.affinities.spread_counts import SpreadCounts
from millpond.engines.kubernetes.adoption.affinities.spread_terms import SpreadTerm
from millpond.model.events import Refused
from millpond.model.task_spacing import SpacingKind

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


def test_places_of_nodes_with_taints_count_where_they_are_tolerated(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    running(cluster, "theirs", "n1", WEB)
    plain = cluster.get("nodes", "n3", "")
    assert plain is not None
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    cluster.put("nodes", "n3", {**plain, "spec": {**plain.get("spec", {}), "taints": [taint]}})
    spread(cluster, "honor", *even(nodeTaintsPolicy="Honor"))
    spread(cluster, "ignore", *even())
    wrong = [{**taint, "operator": "Equal", "effect": "NoExecute"}]
    spread(cluster, "wrong", *even(nodeTaintsPolicy="Honor"), tolerations=wrong)
    spread(cluster, "tolerant", *even(nodeTaintsPolicy="Honor"), tolerations=[{"operator": "Exists"}])
    gangs = eventually(lambda: found if len(found := ready(bench)) == 4 else None)
    expected = {"honor": {"n1", "n2"}, "ignore": set(), "wrong": {"n1", "n2"}, "tolerant": {"n3"}}
    eventually(lambda: {name: allowed(bench, gang) for name, gang in gangs.items()} == expected)


def pair(cluster: StandinCluster, *constraints: dict[str, Any], size: int = 2) -> None:
    notes = {"millpond.io/gang": "pair", "millpond.io/gang-size": str(size)}
    for number in range(size):
        spread(cluster, f"pair-{number}", *constraints, annotations=notes)


def test_a_gang_that_must_be_spread_is_told_to_the_core_with_what_counts_already(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    running(cluster, "theirs", "n1", WEB)
    pair(cluster, *even())
    gang = bench.gang()
    (rule,) = gang.terms.spacing
    assert (rule.kind, rule.label, rule.roles, rule.others) == (SpacingKind.EVEN, ZONE, ("worker",), ("worker",))
    assert (rule.counted, rule.empty, rule.most) == ((("zone-0", 1),), 1, 1)
    assert allowed(bench, gang) == {"n1", "n2", "n3"}, "in a full zone there is room when the others have caught up"
    woken: list[int] = []
    bench.engine.when_found(lambda: woken.append(1))
    running(cluster, "more", "n3", WEB)
    eventually(lambda: woken)
    assert bench.gang().terms.spacing[0].counted == (("zone-0", 1), ("zone-1", 1))


def test_a_spread_gang_is_bound_where_it_is_even_in_the_end_and_not_elsewhere(
    cluster: StandinCluster, bench: AdoptingBench
) -> None:
    pair(cluster, *even(), size=3)
    bench.stand_for(bench.gang().key)
    bench.engine.apply([start(1, JOB, ("n1", "n2", "n1"))])
    refused = bench.next(Refused)
    assert "must be spread" in refused.reason
    assert not any(request.endswith("/binding") for request in cluster.requests)
    bench.engine.apply([start(2, JOB, ("n1", "n2", "n3"))])
    for number, node in enumerate(("n1", "n2", "n3")):
        assert bench.bound(f"pair-{number}")["spec"]["nodeName"] == node


def test_two_gangs_of_one_spread_are_placed_one_after_the_other(cluster: StandinCluster, bench: AdoptingBench) -> None:
    for gang in ("one", "two"):
        notes = {"millpond.io/gang": gang, "millpond.io/gang-size": "2"}
        for number in range(2):
            spread(cluster, f"{gang}-{number}", *even(), annotations=notes)
    (first,) = eventually(lambda: ready(bench))
    (other,) = {"one", "two"} - {first}
    assert "placed one after another" in eventually(lambda: condition(cluster, f"{other}-0"))


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
    counts = SpreadCounts(SpreadTerm("key", ("key",), "team", (), (), None, most, least_places, counts_itself))
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
