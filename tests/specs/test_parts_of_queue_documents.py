"""One value within what a queue says is changed, at whatever level it stands."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.specs.config.queue_documents import with_field


@pytest.mark.parametrize(
    ("document", "field", "value", "after"),
    [
        ({}, "weight", 2, {"weight": 2}),
        ({"guarantee": 6}, "guarantee.cpus", 8, {"guarantee": {"gpus": 6, "cpus": 8}}),
        ({}, "guarantee.models.A100", 4, {"guarantee": {"models": {"A100": 4}}}),
        ({"guarantee": 6}, "guarantee.models.A100", 4, {"guarantee": {"gpus": 6, "models": {"A100": 4}}}),
        (
            {"limit": {"gpus": 9, "models": {"A100": 1, "H20.3e": 2}}},
            "limit.models.H20.3e",
            5,
            {"limit": {"gpus": 9, "models": {"A100": 1, "H20.3e": 5}}},
        ),
        ({"limit": {"gpus": 9, "models": {"A100": 1}}}, "limit.models.A100", None, {"limit": {"gpus": 9}}),
        ({"limit": {"models": {"A100": 1}}}, "limit.models.A100", None, {"limit": None}),
        ({"cells": {"node": 1}}, "cells.rack of 4 nodes", 2, {"cells": {"node": 1, "rack of 4 nodes": 2}}),
    ],
)
def test_a_value_changes_and_all_beside_it_stays(
    document: dict[str, Any], field: str, value: Any, after: dict[str, Any]
) -> None:
    assert with_field(document, field, value) == after
