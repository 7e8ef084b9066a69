"""The scheduler's thread: what is durable when, who is answered when, and what a killed server leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from server_world import Clock, KilledError, Server, World, WorldEngine, node, submission_of
from sqlalchemy.exc import OperationalError

from ledgers import overdrawn
from millpond.model.confinement import Confinement, LimitKind
from millpond.model.contents import Content
from millpond.model.decisions import Start, Stop
from millpond.model.errors import (
    ConflictError,
    InconsistentStateError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from millpond.model.events import (
    DesiredCountChanged,
    DurationPredicted,
    Event,
    NodeContents,
    PoolChanged,
    ResumeRequested,
    SuspendRequested,
)
from millpond.model.hardware.nodes import Pool
from millpond.model.policy_trials import PolicyOverrides
from millpond.model.states import Outcome
from millpond.model.windows import Window
from millpond.node.task.records import TaskId
from millpond.server.operations.verification import verify
from millpond.server.runtime import turn_processor
from millpond.server.runtime.inbox import ChangeJob, Submission
from millpond.server.runtime.loop_dependencies import LoopDependencies
from millpond.server.store.connection.durable_writes import CommitInDoubtError
from millpond.server.store.store import Store
from millpond.server.views.events import story
from millpond.specs.api.jobs.jobs import JobInfo
from seeds import few_then_many


def test_what_an_engine_says_of_a_new_node_before_the_first_turn_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, held = World(), (Content("image:torch", 10**9),)
    said = NodeContents(0.0, world.nodes[0].name, held, 10**8)
    monkeypatch.setattr(WorldEngine, "adopt", lambda engine, _expected, _unanswered: engine.outbox.append(said))
    core = Server(tmp_path, world, Clock(1.0)).core
    known = core.scheduler.contents_of(said.node)
    assert known is not None
    assert known.sizes == {"image:torch": 10**9}


def test_a_submitted_job_starts_runs_and_ends(server: Server) -> None:
    answer = server.submit("a", gpus=2, tasks=2).answer
    server.turn()
    assert answer.result(0).state == "queued"
    assert server.loop.job_cache.get("a").state == "starting"
    server.turn()
    assert server.loop.job_cache.get("a").state == "running"
    for task in server.world.running:
        server.engine.finish(task)
    server.turn()
    server.turn()
    assert server.loop.job_cache.get("a") is None
    ended = server.store.jobs.ended_job("a")
    assert (ended.state, ended.exit_code, ended.attempt) == ("succeeded", 0, 1)
    assert ended.started_at is not None
    assert server.core.scheduler.jobs == {}


def test_the_exit_code_of_a_gang_is_that_of_the_task_whose_fault_it_was(server: Server) -> None:
    server.submit("a", tasks=2)
    server.turn(2)
    server.engine.finish(TaskId("a", 1, 1), Outcome.USER_ERROR, 7)
    server.turn(3)
    assert server.store.jobs.ended_job("a").exit_code == 7


def test_a_job_the_cluster_can_never_run_is_refused_and_leaves_nothing(server: Server) -> None:
    answer = server.submit("big", gpus=9).answer
    server.turn()
    with pytest.raises(InvalidInputError, match="9 GPUs"):
        answer.result(0)
    assert not server.store.jobs.is_job("big")


def test_of_two_submissions_of_one_id_in_one_turn_the_first_is_taken(server: Server) -> None:
    first, second = server.submit("a").answer, server.submit("a").answer
    server.turn()
    assert first.result(0).id == "a"
    with pytest.raises(ConflictError):
        second.result(0)


def test_an_id_is_used_once_even_after_its_job_has_ended(server: Server) -> None:
    server.submit("a")
    server.run_to_the_end()
    server.turn()
    again = server.submit("a").answer
    server.turn()
    with pytest.raises(ConflictError):
        again.result(0)


def test_repeating_a_key_gives_the_same_job_before_and_after_its_end(server: Server) -> None:
    first, same_batch = server.submit("a", key="k").answer, server.submit("b", key="k").answer
    server.turn()
    assert first.result(0).id == same_batch.result(0).id == "a"
    later = server.submit("c", key="k").answer
    server.turn()
    assert later.result(0).id == "a"
    server.run_to_the_end()
    server.turn()
    after = server.submit("d", key="k").answer
    server.turn()
    assert (after.result(0).id, after.result(0).state) == ("a", "succeeded")
    assert sum(server.world.starts.values()) == 1


def test_a_key_used_for_another_submission_is_a_conflict(server: Server) -> None:
    server.submit("a", key="k")
    other = server.submit("b", key="k", gpus=1).answer
    server.turn()
    with pytest.raises(ConflictError, match="new key"):
        other.result(0)


def test_stopping_ends_a_running_job_and_withdraws_a_waiting_one(server: Server) -> None:
    server.submit("runs", gpus=4)
    server.submit("waits", gpus=4)
    server.turn(2)
    answers = [server.loop.stop_job(name, "ada") for name in ("runs", "waits", "waits")]
    server.turn(4)
    assert all(answer.result(0) for answer in answers)
    assert server.store.jobs.ended_job("runs").state == "cancelled"
    assert server.store.jobs.ended_job("runs").exit_code == 143
    assert server.store.jobs.ended_job("waits").attempt == 0


def test_stopping_what_is_not_there_or_has_ended_says_so(server: Server) -> None:
    server.submit("a")
    server.run_to_the_end()
    server.turn()
    ended, unknown = server.loop.stop_job("a", "ada"), server.loop.stop_job("b", "ada")
    server.turn()
    with pytest.raises(ConflictError, match="succeeded"):
        ended.result(0)
    with pytest.raises(NotFoundError):
        unknown.result(0)


def test_the_engine_gets_decisions_only_once_they_are_stored(server: Server) -> None:
    seen: list[bool] = []

    def trip(where: str) -> None:
        if where == "before apply":
            seen.append(len(server.store.histories.of_job("a")[1]) == 1)

    server.engine.trip = trip
    server.submit("a")
    server.turn()
    assert seen == [True]


def test_while_the_store_cannot_be_written_nothing_is_accepted_and_nothing_is_lost(server: Server) -> None:
    server.submit("a")
    server.turn(2)
    full = True

    def trip(where: str) -> None:
        if full and where.startswith("before"):
            raise OperationalError("INSERT", {}, Exception("disk full"))

    server.store.trip = trip
    server.engine.finish(TaskId("a", 1, 0))
    refused = server.submit("b").answer
    server.turn()
    with pytest.raises(UnavailableError, match="disk full"):
        refused.result(0)
    assert "disk full" in server.loop.trouble
    server.turn(3)
    full = False
    server.turn(2)
    assert server.loop.trouble == ""
    assert server.store.jobs.ended_job("a").state == "succeeded"
    assert not server.store.jobs.is_job("b")


def test_a_server_whose_database_is_read_only_is_in_trouble_until_it_can_be_written_again(server: Server) -> None:
    is_read_only = True

    def set_up(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA query_only={int(is_read_only)}")

    sa.event.listen(server.store.database, "checkout", set_up)
    refused = server.submit("a").answer
    server.turn()
    with pytest.raises(UnavailableError, match="readonly database"):
        refused.result(0)
    server.turn(3)
    assert "readonly database" in server.loop.trouble
    is_read_only = False
    server.turn()
    assert server.loop.trouble == ""


@pytest.mark.parametrize("reading", ["existing", "repeated", "ended_job"])
def test_a_store_that_cannot_be_read_for_a_moment_refuses_requests_and_ends_no_scheduler(
    server: Server, reading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.submit("a")
    server.turn(2)

    def fail(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("the connection is closed"))

    with monkeypatch.context() as patch:
        patch.setattr(server.store.jobs, reading, fail)
        if reading == "ended_job":
            answer = server.loop.stop_job("never-was", "ada")
        else:
            answer = server.loop.submit(submission_of("b", "k"))
        server.engine.finish(TaskId("a", 1, 0))
        server.turn(2)
        with pytest.raises(UnavailableError, match="connection is closed"):
            answer.result(0)
    server.turn(3)
    assert server.store.jobs.ended_job("a").state == "succeeded"
    again = server.submit("b", key="k").answer
    server.turn(2)
    assert again.result(0).id == "b"


def test_what_can_be_no_id_is_not_looked_for_as_postgresql_refuses_to(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.store.jobs, "ended_job", {}.__getitem__)
    answer = server.loop.stop_job("\0", "ada")
    server.turn()
    with pytest.raises(NotFoundError):
        answer.result(0)


def test_decisions_that_could_not_be_stored_reach_the_engine_later_and_once(server: Server) -> None:
    failing = ["before record"]

    def trip(where: str) -> None:
        if where in failing:
            raise OperationalError("INSERT", {}, Exception("disk full"))

    server.store.trip = trip
    server.submit("a")
    server.turn(3)
    assert server.engine.applied == []
    failing.clear()
    server.turn(2)
    assert [type(decision) for decision in server.engine.applied] == [Start]


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_submission_whose_commit_got_no_answer_is_taken_if_it_is_durable_and_else_nothing_of_it_stays(
    server: Server, is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.submit("old")
    server.turn(2)
    server.engine.finish(TaskId("old", 1, 0))
    fail_commits(server, f"{'after' if is_durable else 'before'} append", monkeypatch)
    answer = server.submit("a", key="k").answer
    server.turn()
    with pytest.raises(UnavailableError, match=r"connection is lost.*may have been accepted"):
        answer.result(0)
    meanwhile = server.loop.submit(submission_of("b"))
    server.turn()
    with pytest.raises(UnavailableError, match="not finished"):
        meanwhile.result(0)
    end_doubt(server, is_durable, monkeypatch)
    server.turn(2)
    assert (server.loop.trouble, server.store.jobs.is_job("a")) == ("", is_durable)
    repeated = server.submit("c", key="k").answer
    server.run_to_the_end()
    assert repeated.result(0).id == ("a" if is_durable else "c")
    assert set(server.world.starts.values()) == {1}
    assert {name for name in ("old", "a", "b", "c") if server.store.jobs.ended_job(name)} == {
        "old",
        repeated.result(0).id,
    }
    assert verify(server.store).differences == ()


@pytest.mark.parametrize("is_durable", [True, False])
def test_decisions_whose_commit_got_no_answer_reach_the_engine_once(
    server: Server, is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_commits(server, f"{'after' if is_durable else 'before'} record", monkeypatch)
    server.submit("a")
    server.turn(2)
    assert server.engine.applied == []
    end_doubt(server, is_durable, monkeypatch)
    server.turn(2)
    assert [type(decision) for decision in server.engine.applied] == [Start]
    server.run_to_the_end()
    assert server.store.jobs.ended_job("a").state == "succeeded"


def fail_commits(server: Server, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write at this place gets no answer to its commit, and the database does not say what became of it."""

    def trip(place: str) -> None:
        if place == where:
            server.store.writes.in_doubt = 1
            raise CommitInDoubtError("COMMIT", None, Exception("the connection is lost"))

    def is_durable() -> bool:
        raise OperationalError("COMMIT", None, Exception("the database has not finished"))

    server.store.trip = trip
    monkeypatch.setattr(server.store.writes, "is_durable", is_durable)


def end_doubt(server: Server, is_durable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database answers again."""

    def answer() -> bool:
        server.store.writes.in_doubt = None
        return is_durable

    server.store.trip = lambda _: None
    monkeypatch.setattr(server.store.writes, "is_durable", answer)


def test_a_clock_that_is_set_back_does_not_turn_the_log_back(server: Server) -> None:
    server.submit("a")
    server.turn()
    server.clock.now -= 500.0
    server.run_to_the_end()
    instants = [entry.event.at for entry in server.store.events_after(0)]
    assert instants == sorted(instants)


def test_an_end_that_is_reported_while_the_clock_is_a_year_ahead_does_not_take_the_log_there(server: Server) -> None:
    server.submit("a")
    server.turn(2)
    server.engine.outbox.append(server.world.end(TaskId("a", 1, 0), at=server.clock.now + 365 * 86_400.0))
    server.turn(2)
    assert server.store.jobs.ended_job("a").state == "succeeded"
    assert max(entry.event.at for entry in server.store.events_after(0)) <= server.clock.now


def test_a_lost_node_gives_its_jobs_back_to_the_queue(tmp_path: Path) -> None:
    world, clock = World((node("n1"), node("n2"))), Clock()
    first = Server(tmp_path, world, clock)
    first.submit("a", gpus=4)
    first.submit("b", gpus=4)
    first.turn(2)
    world.nodes = (node("n1"),)
    second = Server(tmp_path, world, clock)
    second.turn(2)
    second.run_to_the_end()
    assert {second.store.jobs.ended_job(name).state for name in ("a", "b")} == {"succeeded"}
    assert sum(world.starts.values()) == 3


def test_what_a_run_lacked_of_a_sandbox_is_told_by_the_next_server_too(tmp_path: Path) -> None:
    world, clock = World(), Clock()
    world.confinement = Confinement(False, LimitKind.PROCESS)
    first = Server(tmp_path, world, clock)
    first.submit("a", gpus=1)
    first.turn(2)
    shown = Server(tmp_path, world, clock).loop.job_cache.get("a")
    assert shown is not None
    assert (shown.state, shown.unsandboxed, shown.limited_by) == ("running", True, "process")


def test_an_end_that_is_stored_is_told_and_learnt_once_and_shown_as_it_was_although_the_server_is_killed(
    tmp_path: Path,
) -> None:
    world, clock, told, learnt = World(), Clock(), list[str](), list[str]()
    world.confinement = Confinement(False, LimitKind.PROCESS)
    notices = SimpleNamespace(
        address=lambda turn: told.extend(info.id for info in turn.settled) or [], wake=lambda: None
    )
    on_ended = (lambda jobs: learnt.extend(info.id for info in jobs),)
    dependencies = LoopDependencies(clock=clock, notices=notices, on_ended=on_ended)
    first = Server(tmp_path, world, clock, dependencies=dependencies)
    first.submit("a", gpus=1)
    first.submit("deleted", gpus=1)
    first.turn(2)
    first.loop.change_job(ChangeJob("a", lambda _, now: SuspendRequested(now, "a")))
    first.turn()
    for task in world.running:
        first.engine.finish(task, Outcome.USER_ERROR, 3)
    first.turn(2)
    shown = first.store.jobs.ended_job("a")
    assert shown is not None
    assert (shown.unsandboxed, shown.suspended_at) == (True, 1_003.0)
    first.store.deletion.delete("deleted")
    second = Server(tmp_path, world, clock, dependencies=dependencies)
    second.turn(2)
    assert (sorted(told), sorted(learnt)) == (["a", "deleted"], ["a", "deleted"])
    assert second.store.jobs.ended_job("a") == shown
    assert second.core.scheduler.jobs == {}


def test_what_falls_due_by_the_clock_is_acted_on_however_late_the_loop_wakes(server: Server) -> None:
    first_hour = Pool(lending=(Window(0, 60),))
    server.loop.notify([PoolChanged(server.clock.now, first_hour)])
    server.submit("a", gpus=1)
    server.turn(2)
    assert [type(decision) for decision in server.engine.applied] == [Start]
    server.clock.now = 3_600.5
    server.scheduler.turn(0.0)
    assert [type(decision) for decision in server.engine.applied] == [Start, Stop]


def test_a_job_tells_its_story(server: Server) -> None:
    server.submit("a", gpus=1)
    server.run_to_the_end()
    server.turn()
    lines = [event.text for event in story(*server.store.histories.of_job("a"))]
    assert lines == [
        "submitted by ada to queue default",
        "start 1 task on n1 (attempt 1, fits)",
        "1 task running",
        "task 0 ended (success, exit code 0)",
    ]


def test_a_history_says_what_was_fetched_ahead_and_where(server: Server) -> None:
    server.submit("before", gpus=4)
    server.turn()
    server.loop.notify([DurationPredicted(server.clock.now, "before", 600.0, 600.0)])
    server.loop.notify([NodeContents(server.clock.now, "n1", (), 10)])
    server.submit("a", gpus=4, image="debian:12")
    server.turn(3)
    lines = [event.text for event in story(*server.store.histories.of_job("a"))]
    assert "fetch image:docker.io/library/debian:12 to n1 ahead of its start (prefetched)" in lines
    assert "what it needs is on n1" in lines


def test_a_restart_goes_on_from_a_snapshot_and_the_log_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_processor, "SNAPSHOT_EVERY", 7)
    world, clock = World(), Clock()
    first = Server(tmp_path, world, clock)
    for number in range(6):
        first.submit(f"j{number}", gpus=2)
        first.turn()
    assert first.store.snapshots()[-1].seq > 0
    second = Server(tmp_path, world, clock)
    assert set(second.core.scheduler.jobs) == set(first.core.scheduler.jobs)
    second.run_to_the_end()
    assert all(count == 1 for count in world.starts.values())
    assert len(world.starts) == 6


def rewrite_decisions(state_dir: Path, node: str) -> None:
    """Another version of the scheduler would have chosen this node instead of n1."""
    with sa.create_engine(f"sqlite:///{state_dir / 'millpond.db'}").begin() as connection:
        connection.execute(sa.text(f"UPDATE decisions SET data = replace(data, '\"n1', '\"{node}')"))


def test_what_is_stored_as_decided_stands_whatever_this_version_would_decide(tmp_path: Path) -> None:
    world, clock = World((node("n1"), node("n2"))), Clock()
    first = Server(tmp_path, world, clock)
    first.submit("a", gpus=1)
    first.turn(2)
    assert first.core.scheduler.jobs["a"].tasks[0].placement.node == "n1"
    rewrite_decisions(tmp_path, "n2")
    assert verify(first.store).differences[0].endswith("is now")
    second = Server(tmp_path, world, clock)
    placement = second.core.scheduler.jobs["a"].tasks[0].placement
    assert (placement.node, placement.grants[0].device) == ("n2", "n2-0")
    assert overdrawn(second.core.scheduler._state.cluster) == ""
    second.run_to_the_end()
    assert set(world.starts.values()) == {1}
    assert second.store.jobs.ended_job("a").state == "succeeded"


def test_a_database_on_which_no_server_has_started_has_nothing_to_verify(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/new.db")
    with pytest.raises(NotFoundError, match="no server has started on it"):
        verify(store)
    store.close()


def test_a_log_that_names_what_never_was_cannot_be_followed(tmp_path: Path) -> None:
    first = Server(tmp_path, World(), Clock())
    first.submit("a", gpus=1)
    first.turn()
    rewrite_decisions(tmp_path, "n9")
    with pytest.raises(InconsistentStateError, match="cannot be followed behind entry"):
        Server(tmp_path, World(), Clock())


def test_a_log_that_the_database_cannot_read_is_a_fault_of_the_database(tmp_path: Path) -> None:
    Server(tmp_path, World(), Clock())
    with sa.create_engine(f"sqlite:///{tmp_path / 'millpond.db'}").begin() as connection:
        connection.execute(sa.text("DROP TABLE decisions"))
    with pytest.raises(OperationalError, match="decisions"):
        Server(tmp_path, World(), Clock())


def test_a_state_directory_keeps_its_policies_until_others_are_asked_for(tmp_path: Path) -> None:
    world, clock = World(), Clock()
    Server(tmp_path, world, clock, policies=PolicyOverrides("fifo"))
    kept = Server(tmp_path, world, clock)
    assert kept.core.scheduler.settings.ordering == "fifo"
    kept.submit("runs", gpus=4)
    kept.submit("late", gpus=4)
    kept.turn(2)
    kept.submit("urgent", gpus=4, time_limit="60s")
    kept.turn(2)
    changed = Server(tmp_path, world, clock, policies=PolicyOverrides("sjf", "best-fit", reserve=False))
    settings = changed.core.scheduler.settings
    assert (settings.ordering, settings.placement, settings.reserve) == ("sjf", "best-fit", False)
    assert world.running == [TaskId("runs", 1, 0)]
    again = Server(tmp_path, world, clock)  # replays the change with all that lies before and behind it
    assert again.core.scheduler.settings == settings
    again.engine.finish(TaskId("runs", 1, 0))
    again.turn(2)
    assert world.running == [TaskId("urgent", 1, 0)]
    again.run_to_the_end()
    assert set(world.starts.values()) == {1}


def test_asking_for_the_policies_that_are_there_changes_nothing(tmp_path: Path) -> None:
    first = Server(tmp_path, World(), Clock(), policies=PolicyOverrides("fifo", preempt=True))
    before = first.core.seq
    second = Server(tmp_path, World(), Clock(), policies=PolicyOverrides("fifo", preempt=True))
    told = [type(entry.event).__name__ for entry in second.store.events_after(before)]
    assert "PolicyChanged" not in told


def test_a_job_is_suspended_resumed_and_made_smaller_on_request(server: Server) -> None:
    server.submit("a", gpus=1, tasks={"min": 1, "max": 3})
    server.turn(2)
    loop = server.loop

    def ask(event: Event) -> JobInfo:
        answer = loop.change_job(ChangeJob("a", lambda _record, now: replace(event, at=now)))
        server.turn(2)
        return answer.result(0)

    assert ask(SuspendRequested(0.0, "a")).state == "suspended"
    with pytest.raises(ConflictError, match="only a running job"):
        ask(SuspendRequested(0.0, "a"))
    ask(ResumeRequested(0.0, "a"))
    assert loop.job_cache.get("a").state == "running"
    ask(DesiredCountChanged(0.0, "a", "worker", 1))
    assert server.world.running == [TaskId("a", 1, 0)]
    with pytest.raises(InvalidInputError, match="between 1 and 3"):
        ask(DesiredCountChanged(0.0, "a", "worker", 4))
    with pytest.raises(NotFoundError, match="no role 'ps'"):
        ask(DesiredCountChanged(0.0, "a", "ps", 1))
    told = [entry.text for entry in story(*server.store.histories.of_job("a"))]
    assert "somebody asked that it be halted, with its device memory left on its cards" in told
    assert "role worker should have 1 task" in told


def test_the_time_in_which_a_job_was_suspended_is_not_time_that_it_ran(tmp_path: Path) -> None:
    world, clock = World(), Clock(1_000.0)
    server = Server(tmp_path, world, clock)

    def at(instant: float, event: Event | None = None) -> JobInfo:
        clock.now = instant
        if event is not None:
            server.loop.change_job(ChangeJob("a", lambda _record, now: replace(event, at=now)))
        server.turn(2)
        return server.loop.job_cache.get("a")

    server.submit("a", gpus=1)
    began = at(1_000.0)
    at(1_010.0, SuspendRequested(0.0, "a"))
    assert at(1_100.0).ran_s(1_100.0) == 10.0
    again = at(1_100.0, ResumeRequested(0.0, "a"))
    assert (again.started_at, again.ran_s(1_103.0)) == (began.started_at, 12.0)
    server.store.close()
    server = Server(tmp_path, world, clock)
    assert at(1_105.0).ran_s(1_105.0) == 14.0
    at(1_106.0, SuspendRequested(0.0, "a"))
    server.engine.finish(TaskId("a", 1, 0))
    at(1_200.0)
    ended = server.store.jobs.ended_job("a")
    assert (ended.started_at, ended.ran_s(1_300.0)) == (began.started_at, 16.0)
    server.store.close()


def served_through_kills(
    start: Callable[[], Server], submit: Callable[[Server, int], Submission], jobs: int, none_ends_before: int = 1
) -> tuple[Server, list[str]]:
    """The last of the servers that are started, each after the one before was killed, until all jobs have ended; and
    the jobs that were accepted. No task ends before so many were submitted."""
    submitted: list[Submission] = []
    server: Server | None = None
    for _ in range(300):
        try:
            if server is None:
                server = start()
            if len(submitted) < jobs:
                submitted.append(submit(server, len(submitted)))
            server.turn()
            for task in server.world.running[: int(len(submitted) >= none_ends_before)]:
                server.engine.finish(task)
        except KilledError:
            if server is not None:
                server.store.close()
            server = None
            continue
        if len(submitted) == jobs and not server.core.scheduler.jobs:
            break
    assert server is not None
    assert not server.core.scheduler.jobs
    answers = [submission.answer for submission in submitted]
    return server, [answer.result().id for answer in answers if answer.done() and answer.exception() is None]


@pytest.mark.parametrize("examples", few_then_many([5], [60]))
def test_wherever_the_server_is_killed_nothing_is_lost_and_nothing_runs_twice(
    tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(kills=st.lists(st.integers(1, 25), min_size=1, max_size=6))
    def walk(kills: list[int]) -> None:
        state_dir, world, clock = tmp_path_factory.mktemp("state"), World((node(cards=32),)), Clock()
        countdown = [*kills]

        def trip(_where: str) -> None:
            if countdown:
                countdown[0] -= 1
                if countdown[0] == 0:
                    countdown.pop(0)
                    raise KilledError

        def submit(server: Server, number: int) -> Submission:
            return server.submit(f"j{number}", gpus=1 + number % 3, tasks=1 + number % 2)

        server, accepted = served_through_kills(lambda: Server(state_dir, world, clock, trip), submit, jobs=8)
        assert all(server.store.jobs.ended_job(name).state == "succeeded" for name in accepted)
        assert all(count == 1 for count in world.starts.values())
        assert all(task.attempt == 1 for task in world.starts)
        server.store.close()

    walk()


POLICIES = (
    PolicyOverrides("default", "default", preempt=True),
    PolicyOverrides("fifo", "best-fit", preempt=False, reserve=True),
    PolicyOverrides("srtf", "random", preempt=True),
    PolicyOverrides("fair", "dot-product", preempt=True, reserve=False),
)
"""Of version after version: what one decides, the next would not."""


@pytest.mark.parametrize("examples", few_then_many([2], [30]))
def test_the_next_version_goes_on_where_the_killed_one_stood(
    tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(kills=st.lists(st.integers(3, 40), min_size=2, max_size=6))
    def walk(kills: list[int]) -> None:
        state_dir, world, clock = tmp_path_factory.mktemp("state"), World((node("n1"), node("n2"))), Clock()
        left, version, countdown = [*kills], 0, 0

        def trip(_where: str) -> None:
            nonlocal countdown
            countdown -= 1
            if countdown == 0:
                raise KilledError

        def start() -> Server:
            nonlocal version, countdown
            countdown = left.pop() if left else 0
            version += 1
            server = Server(state_dir, world, clock, trip, POLICIES[version % len(POLICIES)])
            assert overdrawn(server.core.scheduler._state.cluster) == ""
            return server

        def submit(server: Server, number: int) -> Submission:
            priority = ("low", "normal", "high")[number % 3]
            fields = {"gpus": 1 + number % 4, "tasks": 1 + number % 2, "priority": priority}
            return server.submit(f"j{number}", time_limit=f"{number + 20}s", **fields)

        server, accepted = served_through_kills(start, submit, jobs=14, none_ends_before=8)
        assert all(server.store.jobs.ended_job(name) is not None for name in accepted)
        assert all(count == 1 for count in world.starts.values()), "nothing runs twice"
        assert verify(server.store).differences == ()
        server.store.close()

    walk()


def test_a_clock_that_jumps_back_or_far_ahead_stops_nothing(server: Server) -> None:
    server.submit("a", time_limit="10000s")
    server.turn(2)
    server.clock.now -= 500_000
    server.submit("b")
    server.turn(3)
    assert {task.job for task in server.world.running} == {"a", "b"}
    instants = [entry.event.at for entry in server.store.events_after(0)]
    assert instants == sorted(instants)
    server.clock.now += 1_000_000
    server.turn(4)  # the time limit is long over by the clock
    assert {task.job for task in server.world.running} == {"b"}
    assert "time-limit" in str([entry.text for entry in story(*server.store.histories.of_job("a"))])
    server.run_to_the_end()
    assert server.store.jobs.ended_job("b").state == "succeeded"
