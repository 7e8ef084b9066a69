"""The benchmark of locality: peers as they are described, and our scheduler beside them on the same requests."""

from __future__ import annotations

from benchmarks.traces.locality import LOAD_S, NODES, Request, Served, by_preference, least_loaded, placed


def burst(*models: str, every_s: float = 0.0, length_s: float = 10.0) -> list[Request]:
    return [(every_s * number, length_s, model) for number, model in enumerate(models)]


def test_a_request_alone_takes_its_load_and_its_length_under_every_rule() -> None:
    requests = burst("a")
    expected = Served(0.0, LOAD_S + 10.0)
    assert least_loaded(requests) == by_preference(requests) == expected
    found = placed(requests, "default", "exact")
    assert (found.hits, round(found.latency_s, 3)) == (0.0, expected.latency_s)


def test_by_preference_a_model_is_loaded_once_where_requests_come_one_by_one() -> None:
    requests = burst(*"abab", every_s=100.0)
    assert by_preference(requests) == placed(requests, "fifo", "exact") == Served(50.0, LOAD_S / 2 + 10.0)
    assert least_loaded(requests).hits == 50.0  # all are idle: the first node has both


def test_a_full_cluster_serves_in_the_order_of_arrival() -> None:
    requests = burst(*["a"] * (NODES + 1))
    found = by_preference(requests)
    assert found.hits == 100.0 / (NODES + 1)
    assert found.latency_s == ((NODES + 1) * (LOAD_S + 10.0) + 10.0) / (NODES + 1)


def test_who_may_wait_for_a_busy_node_has_more_hits_and_is_served_no_later() -> None:
    requests = burst("a", "a", "a", every_s=15.0)
    may_wait, must_not = placed(requests, "default", "exact"), placed(requests, "fifo", "exact")
    assert may_wait.hits > must_not.hits
    assert may_wait.latency_s <= must_not.latency_s
