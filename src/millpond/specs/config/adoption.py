"""The part ``adopt`` of the section ``kubernetes``: which pods of others are scheduled, and where they line up."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from millpond.model.tenancy.tenants import DEFAULT_QUEUE
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.fields import Name, PriorityName
from millpond.specs.validation import Shortened, or_short

_LABEL = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
ObjectName = Annotated[str, Field(max_length=253, pattern=_LABEL)]
ALL_NAMESPACES: Final = "*"
NamespaceName = Annotated[str, Field(max_length=63, pattern=rf"{_LABEL}|^[*]$")]


class AdoptedNamespace(Shortened):
    """How the pods of a namespace line up; a queue, or a list of queues, is ``queues``.

    Attributes:
        queues: that they may have, by their label ``millpond.io/queue``; those without it go to the first.
        user: whose jobs they are; left out: the namespace's and the service account's.
    """

    model_config = or_short({"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1})

    queues: Annotated[list[Name], Field(min_length=1, max_length=100)]
    user: Name | None = None

    @classmethod
    def from_short(cls, value: Any) -> Any:
        return {"queues": value if isinstance(value, list) else [value]}


class AdoptFile(Shortened):
    """Which pods of others, with ``schedulerName: millpond``, are scheduled; ``true``: all, in the queue ``default``.

    Attributes:
        namespaces: by name, how their pods line up; ``"*"`` stands for all others.
        priorities: by the name of a PriorityClass, the class of a job; of others the number decides: above 0 is
            ``high``, below ``low``, and from a thousand million on ``critical``.
        gated: pods of other schedulers too, where they carry the label ``millpond.io/queue`` and the scheduling gate
            ``millpond.io/gate``: they are released for one node, to which their scheduler binds them.
    """

    model_config = or_short({"const": True})

    namespaces: Annotated[dict[NamespaceName, AdoptedNamespace], Field(min_length=1, max_length=1_000)]
    priorities: Annotated[dict[ObjectName, PriorityName], Field(max_length=100)] = Field(default={})
    gated: bool = False

    @classmethod
    def from_short(cls, value: Any) -> Any:
        if value is not True:
            raise BadValueError(
                f"{as_written(value)} is not true", "write true, or {namespaces: {team-a: QUEUE}}; or leave it out"
            )
        return {"namespaces": {ALL_NAMESPACES: DEFAULT_QUEUE}}

    def of(self, namespace: str) -> AdoptedNamespace | None:
        """What holds for a namespace; None: its pods are not adopted."""
        return self.namespaces.get(namespace) or self.namespaces.get(ALL_NAMESPACES)
