"""Model values survive the way through JSON; what is broken or unknown is refused with a remedy."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model import codec
from millpond.model.codec import from_plain, to_plain
from millpond.model.contents import Content
from millpond.model.errors import InvalidInputError
from millpond.model.events import Ended, JobSubmitted
from millpond.model.hardware.topology import Level
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, SliceRequest, TaskRequest
from millpond.model.states import Outcome
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.windows import MINUTES_A_DAY, Window
from millpond.model.workloads import UNBOUNDED_PREEMPTIONS, Job, Priority, Role
from seeds import few_then_many

MODEL_TYPES = sorted(
    {
        value
        for module in codec._MODULES
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value)
    },
    key=lambda cls: cls.__name__,
)
COUNTS = st.integers(0, 1 << 40)
AMOUNTS = st.lists(st.tuples(st.text(max_size=8), COUNTS), max_size=3).map(lambda pairs: tuple(sorted(pairs)))


@st.composite
def slices(draw: st.DrawFn) -> SliceRequest:
    """Valid slices of a card."""
    compute = draw(st.integers(0, CARD_MILLI))
    memory = draw(st.integers(1, 100_000)) if compute == 0 else draw(st.integers(SHARE_OF_CARD, 100_000))
    return SliceRequest(compute, memory, draw(st.integers(compute, CARD_MILLI)))


@st.composite
def requests(draw: st.DrawFn) -> TaskRequest:
    """Valid requests of a task."""
    devices = draw(st.integers(0, 16))
    piece = SliceRequest() if devices > 1 else draw(slices())
    models = tuple(draw(st.lists(st.text(max_size=8), max_size=3)))
    return TaskRequest(draw(COUNTS), draw(COUNTS), devices, piece, models, draw(AMOUNTS))


@st.composite
def roles(draw: st.DrawFn) -> Role:
    """Valid roles."""
    least, desired, most = sorted(draw(st.tuples(*[st.integers(1, 9)] * 3)))
    return Role(draw(requests()), desired, least, most, draw(st.text(max_size=8)))


def windows() -> st.SearchStrategy[Window]:
    """Valid windows."""
    minutes, days = st.integers(0, MINUTES_A_DAY - 1), st.lists(st.integers(0, 6), max_size=2).map(tuple)
    return st.builds(Window, minutes, minutes, days, st.sampled_from(("UTC", "Europe/Berlin")))


def cell_counts() -> st.SearchStrategy[CellCount]:
    """Valid counts of cells."""
    levels = st.sampled_from(("card", "4 cards", "switch", "socket", "node", "rack of 16 nodes"))
    return st.builds(CellCount, levels, st.integers(1, 9))


def jobs() -> st.SearchStrategy[Job]:
    """Valid jobs: background work is not protected, and what must lie together is told how near."""
    unprotected = {"preemptible": True, "minimum_run_s": 0.0, "preemption_budget": UNBOUNDED_PREEMPTIONS}

    def made(priority: Priority, together: Level, together_required: bool, **given: Any) -> Job:
        must = together_required and together <= Level.ZONE
        protection = unprotected if priority is Priority.BACKGROUND else {}
        return Job(priority=priority, together=together, together_required=must, **given | protection)

    free = {
        f.name: fitting(hint)
        for f, hint in fields_of(Job)
        if f.name not in ("id", "roles", "retries", "rest_preemptible")
    }
    some_roles = st.lists(roles(), min_size=1, max_size=2).map(tuple)
    return st.builds(made, id=st.text(min_size=1, max_size=120), roles=some_roles, retries=st.integers(0, 9), **free)


def contents() -> st.SearchStrategy[Content]:
    """Valid contents."""
    return st.builds(Content, st.text(min_size=1, max_size=8), st.integers(0, 1 << 50))


def reservations() -> st.SearchStrategy[AdvanceReservation]:
    """Valid reservations."""
    name, some = st.text(min_size=1, max_size=8), st.integers(1, 1 << 50)
    return st.builds(
        lambda begin, length, **rest: AdvanceReservation(begin=begin, until=begin + length, **rest),
        begin=st.floats(0, 1e10), length=st.floats(1, 1e8), name=name, queue=name, cards=some, pool=name, by=name,
        models=st.lists(name, max_size=2).map(tuple), whole_nodes=st.booleans(), beyond_guarantee=st.booleans(),
    )  # fmt: skip


def fields_of(cls: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Fields of a dataclass with their resolved types."""
    hints = typing.get_type_hints(cls)
    return [(each, hints[each.name]) for each in dataclasses.fields(cls)]


def fitting(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    validated = {SliceRequest: slices, TaskRequest: requests, Role: roles, Job: jobs, Window: windows}
    validated |= {AdvanceReservation: reservations, CellCount: cell_counts, Content: contents}
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*[st.none() if part is type(None) else fitting(part) for part in parts])
    if origin is tuple and len(parts) == 2 and parts[1] is Ellipsis:
        return st.lists(fitting(parts[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*[fitting(part) for part in parts])
    if hint in validated:
        return validated[hint]()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    if dataclasses.is_dataclass(hint):
        return st.builds(hint, **{each.name: fitting(inner) for each, inner in fields_of(hint)})
    simple = {
        str: st.text(max_size=8),
        bool: st.booleans(),
        int: st.integers(-1, 1 << 50),
        float: st.floats(allow_nan=False),
    }
    return simple[hint]


@pytest.mark.parametrize("examples", few_then_many([5], [40]))
@pytest.mark.parametrize("cls", MODEL_TYPES, ids=lambda cls: cls.__name__)
def test_every_model_value_survives_the_way_through_json(cls: type, examples: int) -> None:
    @settings(max_examples=examples, derandomize=True, database=None)
    @given(fitting(cls))
    def survives(value: Any) -> None:
        stored = json.dumps(to_plain(value))
        read = from_plain(json.loads(stored))
        assert type(read) is cls
        assert read == value
        assert json.dumps(to_plain(read)) == stored

    survives()


def test_fields_at_their_default_are_not_written() -> None:
    plain = to_plain(Ended(3.0, "j", 1, Outcome.SUCCESS))
    assert plain == {"type": "Ended", "at": 3.0, "job": "j", "attempt": 1, "outcome": "success"}


def test_fields_that_an_old_log_lacks_get_their_default() -> None:
    ended = from_plain({"type": "Ended", "at": 3, "job": "j", "attempt": 1, "outcome": "success"})
    assert ended == Ended(3.0, "j", 1, Outcome.SUCCESS)
    assert type(ended.at) is float


def test_a_changed_default_within_a_nested_value_is_kept() -> None:
    event = JobSubmitted(0.0, Job("j", (Role(TaskRequest(devices=1, slice=SliceRequest(250, 4_000, 500))),)))
    assert from_plain(to_plain(event)) == event


BROKEN = [
    ("an unknown type", {"type": "Teleported", "at": 1.0}),
    ("no type at all", {"at": 1.0}),
    ("a lacking field", {"type": "NodeLost", "at": 1.0}),
    ("a field too many", {"type": "NodeLost", "at": 1.0, "node": "n", "speed": 3}),
    ("an unknown word", {"type": "Ended", "at": 1.0, "job": "j", "attempt": 1, "outcome": "fine"}),
    ("a number that is none", {"type": "NodeLost", "at": "soon", "node": "n"}),
    ("no list where one belongs", {"type": "Node", "name": "n", "cpu_milli": 1, "memory_mib": 1, "devices": 5}),
    ("an unknown type within", {"type": "JobSubmitted", "at": 1.0, "job": {"type": "Wish"}}),
    ("a value that the model forbids", {"type": "SliceRequest", "compute_milli": 2000}),
]


@pytest.mark.parametrize(("what", "plain"), BROKEN, ids=[what.replace(" ", "-") for what, _ in BROKEN])
def test_a_record_that_cannot_be_read_is_refused_with_a_remedy(what: str, plain: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        from_plain(plain)
    assert caught.value.cause
    assert caught.value.remedy


def test_what_is_not_a_model_value_is_not_written() -> None:
    with pytest.raises(TypeError, match="not a model value"):
        to_plain(object())
