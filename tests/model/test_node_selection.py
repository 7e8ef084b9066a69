"""Requirements on the labels of nodes mean what they mean in Kubernetes."""

from __future__ import annotations

import pytest

from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, selection_text, selects

LABELS = (("count", "8"), ("zone", "a"))


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", NodeOperator.IN, ("a", "b"), True),
        ("zone", NodeOperator.IN, ("c",), False),
        ("rack", NodeOperator.IN, ("a",), False),
        ("zone", NodeOperator.NOT_IN, ("a",), False),
        ("rack", NodeOperator.NOT_IN, ("a",), True),
        ("zone", NodeOperator.EXISTS, (), True),
        ("rack", NodeOperator.EXISTS, (), False),
        ("rack", NodeOperator.DOES_NOT_EXIST, (), True),
        ("zone", NodeOperator.DOES_NOT_EXIST, (), False),
        ("count", NodeOperator.GREATER, ("7",), True),
        ("count", NodeOperator.GREATER, ("8",), False),
        ("count", NodeOperator.LESS, ("9",), True),
        ("zone", NodeOperator.LESS, ("9",), False),
        ("rack", NodeOperator.GREATER, ("0",), False),
        ("count", NodeOperator.GREATER, ("-1",), True),
        ("count", NodeOperator.GREATER, ("9" * 5_000,), False),
        ("count", NodeOperator.LESS, ("9" * 5_000,), False),
        ("count", NodeOperator.LESS, ("9", "9"), False),
        ("count", NodeOperator.LESS, (), False),
        ("rack", NodeOperator.ABSENT_OR_IN, ("a",), True),
        ("zone", NodeOperator.ABSENT_OR_IN, ("a",), True),
        ("zone", NodeOperator.ABSENT_OR_IN, (), False),
    ],
)
def test_a_requirement_is_met(key: str, operator: NodeOperator, values: tuple[str, ...], holds: bool) -> None:
    assert selects(((NodeRequirement(key, operator, values),),), LABELS) is holds


def test_of_alternatives_one_has_to_hold_and_of_their_requirements_all() -> None:
    in_a = NodeRequirement("zone", NodeOperator.IN, ("a",))
    in_b = NodeRequirement("zone", NodeOperator.IN, ("b",))
    has_rack = NodeRequirement("rack", NodeOperator.EXISTS)
    assert selects((), LABELS)
    assert selects(((in_b,), (in_a,)), LABELS)
    assert not selects(((in_a, has_rack), (in_b,)), LABELS)
    assert selection_text(((in_a, has_rack), (in_b,))) == "zone=a and rack or zone=b"
