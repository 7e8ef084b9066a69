"""What cannot be is refused where it is built, with cause and remedy; errors carry both wherever they go."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from millpond.model import errors
from millpond.model.decisions import Grant, Placement
from millpond.model.errors import InvalidInputError, MillpondError
from millpond.model.hardware.nodes import Pool, SharingPolicy
from millpond.model.resources import SHARE_OF_CARD, SliceRequest, TaskRequest
from millpond.model.states import JobState, TaskState
from millpond.model.workloads import LONGEST_JOB_ID, Job, Role
from millpond.scheduling.settings import Settings

ONE = (Role.rigid(TaskRequest(devices=1), 1),)

REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("more than a whole card", lambda: SliceRequest(compute_milli=1001)),
    ("a negative share", lambda: SliceRequest(compute_milli=-1)),
    ("a limit below the guarantee", lambda: SliceRequest(500, limit_milli=400)),
    ("a limit above a whole card", lambda: SliceRequest(500, limit_milli=1500)),
    ("a slice of nothing", lambda: SliceRequest(0, 0)),
    ("a slice without compute by share of memory", lambda: SliceRequest(0, SHARE_OF_CARD)),
    ("a negative device memory", lambda: SliceRequest(500, -2)),
    ("a fraction of several cards", lambda: TaskRequest(devices=2, slice=SliceRequest(500))),
    ("a negative number of cards", lambda: TaskRequest(devices=-1)),
    ("a negative CPU", lambda: TaskRequest(cpu_milli=-1)),
    ("a negative memory", lambda: TaskRequest(memory_mib=-1)),
    ("a negative extra resource", lambda: TaskRequest(extras=(("rdma", -1),))),
    ("a role without tasks", lambda: Role.rigid(TaskRequest(), 0)),
    ("a minimum above the count", lambda: Role(TaskRequest(), desired=1, minimum=2, maximum=3)),
    ("a count above the maximum", lambda: Role(TaskRequest(), desired=4, minimum=1, maximum=3)),
    ("an elastic role that may vanish", lambda: Role(TaskRequest(), desired=1, minimum=0, maximum=3)),
    ("a job without an id", lambda: Job("", ONE)),
    ("a job id without end", lambda: Job("x" * (LONGEST_JOB_ID + 1), ONE)),
    ("a job without roles", lambda: Job("j", ())),
    ("negative retries", lambda: Job("j", ONE, retries=-1)),
    ("an unknown ordering", lambda: Settings(ordering="lottery")),
    ("an unknown placement", lambda: Settings(placement="anywhere")),
]


@pytest.mark.parametrize(("what", "build"), REFUSED, ids=[what.replace(" ", "-") for what, _ in REFUSED])
def test_what_cannot_be_is_refused_with_cause_and_remedy(what: str, build: Callable[[], object]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        build()
    assert caught.value.cause
    assert caught.value.remedy
    assert str(caught.value) == f"{caught.value.cause}; {caught.value.remedy}"


KINDS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, MillpondError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_keep_cause_and_remedy_apart_on_their_way_between_processes(kind: type[MillpondError]) -> None:
    error = pickle.loads(pickle.dumps(kind("it is so", "do this")))
    assert (type(error), error.cause, error.remedy) == (kind, "it is so", "do this")
    assert kind.exit_code != 0


def test_an_error_without_advice_is_its_cause() -> None:
    assert str(MillpondError("it is so")) == "it is so"


def test_a_job_counts_the_tasks_and_cards_of_all_its_roles() -> None:
    quarter = TaskRequest(devices=1, slice=SliceRequest(250, limit_milli=1000))
    job = Job("j", (Role.rigid(TaskRequest(devices=4), 2), Role(quarter, 3, 1, 5, "server")))
    assert (job.task_count, job.gpu_milli, job.elastic) == (5, 8_750, True)
    assert not Job("j", ONE).elastic


@pytest.mark.parametrize(
    ("sharing", "capacity"),
    [(SharingPolicy.EXCLUSIVE, 1000), (SharingPolicy.SLICED, 1000), (SharingPolicy.OVERCOMMITTED, 3000)],
)
def test_only_an_overcommitted_pool_lets_limits_exceed_a_card(sharing: SharingPolicy, capacity: int) -> None:
    assert Pool("p", sharing, 3000).limit_capacity_milli == capacity


def test_exactly_three_states_are_final() -> None:
    assert {state.value for state in TaskState if state.ended} == {"succeeded", "failed", "cancelled"}
    assert {state.value for state in JobState if state.ended} == {"succeeded", "failed", "cancelled"}


def test_model_values_cannot_be_changed() -> None:
    placement = Placement(0, "worker", "n", (Grant("d", 1000, 1000, 0),))
    with pytest.raises(AttributeError):
        placement.node = "other"  # type: ignore[misc]
