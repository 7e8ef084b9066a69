"""How a pool holds tasks to their parts of devices, as the configuration says it (``pools: - slices:``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millpond.model.sharing import EscapePolicy, MigLayout, SliceHold, SliceRules
from millpond.specs.validation import Strict


class SlicesFile(Strict):
    """Rules for tasks with less than a whole device.

    Attributes:
        escapes: what becomes of a task that uses a device beyond its part.
        enforce: with ``required``, a task whose part nothing would enforce does not start.
        hold: ``mps`` has the tasks of one user on one card run at the same time, under NVIDIA's service.
    """

    escapes: Literal["report", "suspend", "kill"] = "report"
    enforce: Literal["preferred", "required"] = "preferred"
    hold: Literal["gate", "mps"] = "gate"

    def rules(self) -> SliceRules:
        """The model's form."""
        return SliceRules(EscapePolicy(self.escapes), self.enforce == "required", SliceHold(self.hold))


class MigFile(Strict):
    """What empty cards in MIG mode are divided into when the server starts.

    Attributes:
        instances: names of profiles, such as ``3g.71gb``; the same for each card.
        create: it is done; left out: the server only says what it would do.
    """

    instances: list[Annotated[str, Field(min_length=1, max_length=40)]] = Field(min_length=1, max_length=16)
    create: bool = False

    def layout(self) -> MigLayout:
        """The model's form."""
        return MigLayout(tuple(self.instances), self.create)
