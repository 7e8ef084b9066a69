"""What is loaded is left out when garbage is looked for, and circles of what comes later are still found."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from millpond.server.startup.garbage_collection import YOUNG_OBJECTS, keep_what_is_loaded


class Linked:
    """May refer to itself."""

    def __init__(self) -> None:
        self.other: Linked | None = None


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_a_second_call_leaves_out_what_was_made_since_the_first_and_later_circles_are_found() -> None:
    keep_what_is_loaded()
    described = [Linked() for _ in range(100)]
    assert any(each is described for each in gc.get_objects())
    keep_what_is_loaded()
    assert not any(each is described for each in gc.get_objects())
    assert gc.isenabled()
    assert gc.get_threshold()[0] == YOUNG_OBJECTS
    watched = weakref.ref(described.pop())
    assert watched() is None, "without a circle it goes with its last reference"
    circle = Linked()
    circle.other = circle
    watched = weakref.ref(circle)
    del circle
    gc.collect()
    assert watched() is None
