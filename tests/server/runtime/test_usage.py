"""The books of usage: what is held counts to the second, once, whatever happens to jobs and server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_world import Clock, Server, World

from millpond.model.states import Outcome
from millpond.node.task.records import TaskId
from millpond.server.runtime.usage import HeldAmount, UsageChange, UsageInterval


def gpu_seconds(server: Server, by: str = "job", since: float = 0.0, until: float = 1e9) -> dict[str, float]:
    return {total.name: total.gpu_seconds for total in server.store.books.sums(by, since, until)}


def run_for(server: Server, job: str, seconds: float, **spec: object) -> None:
    """A job holds what it asked for so long, from the turn that starts it to the one that hears of its end."""
    server.submit(job, **spec)
    server.turn(2)
    server.clock.now += seconds - 1
    for task in server.world.running:
        server.engine.finish(task)
    server.turn(2)


def test_a_job_is_charged_its_cards_times_the_time_it_held_them(server: Server) -> None:
    run_for(server, "a", 50.0, gpus=2, tasks=2)
    server.clock.now += 1_000
    assert gpu_seconds(server) == {"a": 200.0}


def test_a_share_of_a_card_counts_as_a_share(server: Server) -> None:
    run_for(server, "a", 100.0, gpus=0.25)
    assert gpu_seconds(server) == {"a": 25.0}


def test_waiting_costs_nothing(server: Server) -> None:
    server.submit("a", gpus=4)
    server.submit("b", gpus=4)
    server.turn()
    server.clock.now += 10
    assert gpu_seconds(server, until=server.clock.now) == {"a": 40.0}


def test_what_is_still_held_counts_up_to_the_end_of_the_span(server: Server) -> None:
    begin = server.clock.now
    server.submit("a", gpus=1)
    server.turn(2)
    assert gpu_seconds(server, since=begin + 10, until=begin + 30) == {"a": 20.0}
    assert gpu_seconds(server, until=begin) == {}


def test_a_span_takes_its_part_of_a_run_that_is_over(server: Server) -> None:
    begin = server.clock.now + 1
    run_for(server, "a", 60.0, gpus=1)
    assert gpu_seconds(server, since=begin + 50, until=begin + 500) == {"a": 10.0}
    assert gpu_seconds(server, since=begin + 60) == {}


def test_every_run_of_a_job_is_charged(server: Server) -> None:
    server.submit("a", gpus=1, retries=1)
    server.turn(2)
    server.clock.now += 4
    server.engine.finish(TaskId("a", 1, 0), Outcome.USER_ERROR, 1)
    server.turn(2)
    server.clock.now += 6
    server.engine.finish(TaskId("a", 2, 0))
    server.turn(2)
    assert gpu_seconds(server) == {"a": 5.0 + 7.0}


def test_sums_go_by_user_queue_kind_and_model(server: Server) -> None:
    run_for(server, "a", 10.0, gpus=1)
    run_for(server, "b", 10.0, gpus=1)
    for by, name in (("user", "ada"), ("queue", "default"), ("kind", "train"), ("model", "V100")):
        (total,) = server.store.books.sums(by, 0.0, 1e9)
        assert (total.name, total.model, total.gpu_seconds, total.jobs) == (name, "V100", 20.0, 2)


def test_work_without_cards_is_in_the_books_too(server: Server) -> None:
    run_for(server, "a", 10.0, cpus=4, memory="2GiB")
    (total,) = server.store.books.sums("job", 0.0, 1e9)
    assert (total.model, total.gpu_seconds, total.cpu_seconds, total.memory_gib_seconds) == ("", 0.0, 40.0, 20.0)


def test_what_begins_and_ends_in_one_transaction_is_charged_for_just_that_long(server: Server) -> None:
    began = UsageInterval("a", "ada", "default", "train", 100.0, HeldAmount("V100", 2_000, 0, 0))
    server.store.record([], [], [UsageChange("a", 100.0, (began,), is_first=True), UsageChange("a", 160.0, ())])
    assert gpu_seconds(server) == {"a": 120.0}
    assert server.store.books.open_intervals() == []


def test_a_restarted_server_goes_on_with_the_same_interval(server: Server, tmp_path: Path) -> None:
    server.submit("a", gpus=1)
    server.turn()
    server.store.close()
    server.clock.now += 30
    again = Server(tmp_path, server.world, server.clock)
    again.clock.now += 30
    again.engine.finish(TaskId("a", 1, 0))
    again.turn(2)
    assert gpu_seconds(again) == {"a": 60.0}
    assert again.store.books.open_intervals() == []
    again.store.close()


@pytest.mark.long
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_books_never_charge_more_than_the_cards_there_are(tmp_path_factory, data: st.DataObject) -> None:
    server = Server(tmp_path_factory.mktemp("books"), World(), Clock())
    begin = server.clock.now
    for number in range(8):
        server.submit(f"j{number}", gpus=data.draw(st.sampled_from([0.5, 1, 2])), tasks=data.draw(st.integers(1, 2)))
        server.turn()
        server.clock.now += data.draw(st.integers(0, 20))
        if server.world.running and data.draw(st.booleans()):
            server.engine.finish(data.draw(st.sampled_from(sorted(server.world.running, key=str))))
        server.turn()
    span = server.clock.now - begin
    assert sum(gpu_seconds(server, until=server.clock.now).values()) <= 4 * span + 1e-6
    server.store.close()
