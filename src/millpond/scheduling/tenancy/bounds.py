"""What bounds a queue: a limit or a guarantee, of cards, their models and their memory, of CPUs and of host memory.

Cards without a model and cards of models are one notion here. A limit bounds all cards together and, beside that, those
of the models that it names. A guarantee covers cards of each model by itself as soon as any guarantee of the tree names
one: what it gives of no model by name, it gives of those models that no guarantee names. So a queue that holds
cards beyond its guarantee, of one model, is still owed those of another; and cards of a model that were promised to one
queue are never within the guarantee of a queue that was promised any cards.

Memory of cards is bounded beside that: a slice counts for what it takes, a whole card for all that it has. A guarantee
of it alone covers slices by memory, which take no compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millpond.model.resources import Amount

NO_BOUND = 2**62
"""In place of the most of a resource that is not bounded."""

OTHER_MODELS = "(other)"
"""In place of a model: those that no guarantee names. No card has this model."""


class Beyond(NamedTuple):
    """A resource, by its field of a configuration, of which too much is asked for (in milli, memory in MiB).

    Attributes:
        model: of which model the cards are, where the bound is one on these alone, or ``OTHER_MODELS``.
    """

    field: str
    asked: int
    held: int
    most: int
    model: str = ""

    @property
    def of_model(self) -> str:
        """Of which models the cards are, as the end of a clause; empty where that does not matter."""
        return of_model(self.model) if self.model else ""


class Bound:
    """The most of each resource.

    Attributes:
        models: the most cards of single models.
        other_milli: the most cards of all other models together; None where ``gpu_milli`` bounds these.
    """

    __slots__ = ("card_mib", "cpu_milli", "gpu_milli", "memory_mib", "models", "other_milli")

    def __init__(self, amount: Amount) -> None:
        """A limit, or a guarantee in a tree where none names a model; of CPU and memory what it names."""
        self.gpu_milli = amount.gpu_milli
        self.cpu_milli = amount.cpu_milli or NO_BOUND
        self.memory_mib = amount.memory_mib or NO_BOUND
        self.card_mib = amount.card_mib or NO_BOUND
        self.models = dict(amount.models)
        self.other_milli: int | None = None

    @staticmethod
    def of_guarantee(amount: Amount, named: Sequence[str]) -> Bound:
        """A guarantee in a tree in which guarantees name these models."""
        bound = Bound(amount)
        if named:
            bound.gpu_milli = NO_BOUND
            bound.models = {**dict.fromkeys(named, 0), **bound.models}
            bound.other_milli = amount.gpu_milli - sum(bound.models.values())
        return bound


def of_model(model: str) -> str:
    """Of which model cards are, as the end of a clause."""
    return " of other models" if model == OTHER_MODELS else f" of model {model}"
