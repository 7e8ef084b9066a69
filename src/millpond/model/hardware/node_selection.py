"""Which nodes a job may have, by their labels: requirements that must all hold, in alternatives of which one must.

Source: the Kubernetes API reference, NodeSelectorTerm and Toleration, for what each operator means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Labels = tuple[tuple[str, str], ...]
"""Of a node, sorted by key."""

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
"""Kubernetes reads no number beyond 64 bits."""


class NodeOperator(StrEnum):
    """How the value of a label is held against a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    """There is no such label, or it has another value."""
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"
    ABSENT_OR_IN = "AbsentOrIn"
    """There is no such label, or it has one of the values."""


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """What the label of a node must be.

    Attributes:
        values: those that the operator speaks of; of ``GREATER`` and ``LESS`` one whole number.
    """

    key: str
    operator: NodeOperator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels meets it."""
        value = labels.get(self.key)
        match self.operator:
            case NodeOperator.IN:
                return value in self.values
            case NodeOperator.NOT_IN:
                return value not in self.values
            case NodeOperator.EXISTS:
                return value is not None
            case NodeOperator.DOES_NOT_EXIST:
                return value is None
            case NodeOperator.GREATER:
                return self._compared(value) > 0
            case NodeOperator.LESS:
                return self._compared(value) < 0
            case NodeOperator.ABSENT_OR_IN:
                return value is None or value in self.values

    def _compared(self, value: str | None) -> int:
        """Above 0 where it is the greater number, below 0 where it is the less; 0 also where either is none."""
        texts = (value or "", *self.values)
        if len(texts) != 2 or not all(map(_WHOLE_NUMBER.fullmatch, texts)):
            return 0
        return int(texts[0]) - int(texts[1])

    @property
    def text(self) -> str:
        """In words."""
        values = ", ".join(self.values)
        match self.operator:
            case NodeOperator.IN if len(self.values) == 1:
                return f"{self.key}={values}"
            case NodeOperator.EXISTS:
                return self.key
            case NodeOperator.DOES_NOT_EXIST:
                return f"no {self.key}"
            case NodeOperator.ABSENT_OR_IN:
                return f"no {self.key} but {values}"
            case _:
                return f"{self.key} {self.operator.value} {values}"


NodeSelection = tuple[tuple[NodeRequirement, ...], ...]
"""Alternatives; empty: any node."""


def selects(selection: NodeSelection, labels: Labels) -> bool:
    """Whether a node with these labels is one of those that are meant."""
    if not selection:
        return True
    found = dict(labels)
    return any(all(requirement.holds(found) for requirement in term) for term in selection)


def selection_text(selection: NodeSelection) -> str:
    """Which nodes are meant, in words."""
    return " or ".join(" and ".join(requirement.text for requirement in term) for term in selection)
