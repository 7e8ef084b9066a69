"""The parameters in ordering.md are those of the code, and all of them are there."""

from __future__ import annotations

import ast
import math

import pytest
from pages import DOCS, PACKAGE, table

from millpond.scheduling.cycle import overdue, reservations
from millpond.scheduling.ordering import backlog, base, default, forecasts, guard, survival
from millpond.scheduling.reclaiming import preemption_budget
from millpond.scheduling.tenancy import queue_rank

PAGE = DOCS / "ordering.md"
MODULES = {
    "backlog.py": backlog,
    "base.py": base,
    "forecasts.py": forecasts,
    "default.py": default,
    "survival.py": survival,
    "guard.py": guard,
    "queue_rank.py": queue_rank,
    "preemption_budget.py": preemption_budget,
    "overdue.py": overdue,
    "reservations.py": reservations,
}
LIMITS = {
    "LAST_EDGE_S", "EDGES", "BINS", "NEVER", "LEAST_WEIGHT", "LOOKS_PER_CYCLE", "MOST_COPIES_PER_NODE", "TRIES_BESIDE",
}  # fmt: skip
"""Bounds and tables that no schedule depends on."""


def number(text):
    """A number as people write it: ``0.9``, ``1/256``, ``2^0.5``."""
    if "/" in text:
        above, below = text.split("/")
        return float(above) / float(below)
    if "^" in text:
        base, power = text.split("^")
        return float(base) ** float(power)
    return float(text)


@pytest.mark.parametrize("row", table(PAGE, "Parameters"), ids=lambda row: row[0].strip("`"))
def test_a_parameter_has_the_value_in_the_table(row):
    name, value, file = (cell.strip("`") for cell in row)

    assert math.isclose(getattr(MODULES[file], name), number(value))


def test_no_parameter_is_missing():
    listed = {name.strip("`") for name, _, _ in table(PAGE, "Parameters")}
    assigned = set()
    for module in MODULES.values():
        for node in ast.parse((PACKAGE.parent / (module.__name__.replace(".", "/") + ".py")).read_text()).body:
            if isinstance(node, ast.Assign):
                names = [each for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
                assigned.update(name.id for name in names if name.id.isupper() and not name.id.startswith("_"))

    assert assigned - listed - LIMITS == set()
