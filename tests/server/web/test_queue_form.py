"""The form of a queue: every field of the configuration has its input, and what was not touched is not changed."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.server.web.queues.queue_form import FIELDS, changed_fields, said_alike, shown, typed
from millpond.specs.config.queues import GuaranteeFile, LimitFile, QueueFile

FULL: dict[str, Any] = {
    "parent": "research",
    "guarantee": {"gpus": 8, "models": {"A100": 6, "H20.3e": 2}, "memory": "64GiB"},
    "limit": 12,
    "weight": 1.5,
    "borrows": False,
    "cells": {"node": 1, "rack of 4 nodes": 2},
    "pinned": ["a1", "a2"],
    "priorities": ["low", "normal"],
    "max_running_jobs": 4,
    "max_dev_hours": 8,
    "min_run": "30m",
    "data": ["/data"],
    "images": ["quay.io/ours"],
}


def test_every_field_of_a_queue_has_an_input() -> None:
    parts = {"guarantee": GuaranteeFile, "limit": LimitFile}
    wanted = {name for name in QueueFile.model_fields if name not in (*parts, "name")}
    wanted |= {f"{top}.{part}" for top, model in parts.items() for part in model.model_fields}
    assert {field.name for field in FIELDS} == wanted


@pytest.mark.parametrize("document", [{}, FULL, {"guarantee": 6}, {"borrows": True, "limit": {"models": {"A": 1.5}}}])
def test_a_form_that_was_not_touched_changes_nothing(document: dict[str, Any]) -> None:
    assert changed_fields(document, typed(shown(document))) == {}
    assert changed_fields(document, typed({name: f"{text}\r\n" for name, text in shown(document).items()})) == {}


@pytest.mark.parametrize(
    ("name", "text", "changed"),
    [
        ("weight", "2", {"weight": 2}),
        ("weight", "heavy", {"weight": "heavy"}),
        ("limit.cpus", "500m", {"limit": {"gpus": 12, "cpus": "500m"}}),
        ("limit.card_memory", "64GiB", {"limit": {"gpus": 12, "card_memory": "64GiB"}}),
        ("limit.gpus", "", {"limit": None}),
        ("limit.gpus", "3", {"limit": 3}),
        ("guarantee.models", "A100: 4, H1: 0.5", {"guarantee": FULL["guarantee"] | {"models": {"A100": 4, "H1": 0.5}}}),
        ("guarantee.models", "rubbish", {"guarantee": FULL["guarantee"] | {"models": {"rubbish": None}}}),
        ("borrows", "yes", {"borrows": True}),
        ("borrows", "", {"borrows": None}),
        ("pinned", "a2\n\n a3 ", {"pinned": ["a2", "a3"]}),
        ("cells", "", {"cells": None}),
    ],
)  # fmt: skip
def test_what_was_typed_is_an_edit_of_that_field_alone(name: str, text: str, changed: dict[str, Any]) -> None:
    assert changed_fields(FULL, {**typed(shown(FULL)), name: text}) == changed


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("guarantee", 6, "{gpus: 6}"),
        ("guarantee", {"gpus": 8, "memory": "64GiB"}, "{gpus: 8, memory: 64GiB}"),
        ("limit", None, "-"),
        ("limit", "rubbish", "{gpus: rubbish}"),
        ("weight", 2, "2"),
    ],
)
def test_amounts_before_and_after_a_change_are_said_in_one_form(name: str, value: Any, words: str) -> None:
    assert said_alike(name, value) == words
