"""The section ``pools`` of the configuration: sets of nodes, each with one policy of sharing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from millpond.model.amounts import seconds_text
from millpond.model.nodes import DEFAULT_POOL, Pool, SharingPolicy
from millpond.specs.config.power import PowerFile
from millpond.specs.config.registries import Registries
from millpond.specs.config.slicing import SlicesFile
from millpond.specs.errors import BadValueError
from millpond.specs.job.fields import Duration, Name
from millpond.specs.job.windows import Windows, model_of
from millpond.specs.validation import Strict


def _turn(value: float) -> float:
    if 0 < value < 1:
        raise BadValueError(f"turns of {seconds_text(value)}", "a turn takes 1s or more; 0 for none")
    return value


class PoolFile(Strict):
    """A set of nodes with one sharing policy.

    Attributes:
        name: jobs name it as ``pool``.
        sharing: ``exclusive``: whole cards only; ``sliced``: parts of cards, never more than there is;
            ``overcommitted``: compute beyond 100 %.
        limit_factor: the compute limits of the parts of one card may add up to so many times the card.
        cpu_overcommit: the CPUs asked for on one node may add up to so many times its CPUs.
        slices: how tasks are held to their parts of devices.
        power: what its devices are kept to; left out: their power is never touched.
        suspends: work may be asked to leave its cards without ending, and equals share full cards in turns.
        turn: how long a turn lasts, a second or more; 0: there are none.
        memory_overcommit: device memory of work on a card and of work swapped off it may add up to so many times the
            card's; left out: to what the host memory set aside takes.
        longest_suspended: work that left for others and finds no room for so long is ended and waits for another run.
        lending_hours: when queues may borrow beyond their guarantees; left out: always.
        images: registries and repositories that its jobs' images may come from, beside the catalogue; left out: any
            that their queues may have.
    """

    name: Name = DEFAULT_POOL
    sharing: Literal["exclusive", "sliced", "overcommitted"] = "sliced"
    limit_factor: Annotated[float, Field(ge=1, le=100)] = 1.0
    suspends: bool = False
    cpu_overcommit: Annotated[float, Field(ge=1, le=100)] = 1.0
    slices: SlicesFile = SlicesFile()
    power: PowerFile | None = None
    turn: Annotated[Duration, Field(le=86_400), AfterValidator(_turn)] = 60.0
    memory_overcommit: Annotated[float, Field(ge=1, le=100)] | None = None
    longest_suspended: Annotated[Duration, Field(gt=0)] = 3_600.0
    lending_hours: Windows | None = None
    images: Registries | None = None

    def pool(self) -> Pool:
        """The model's form."""
        return Pool(
            self.name,
            SharingPolicy(self.sharing),
            round(self.limit_factor * 1000),
            self.suspends,
            round(self.cpu_overcommit * 1000),
            self.turn,
            round((self.memory_overcommit or 0) * 1000),
            self.longest_suspended,
            model_of(self.lending_hours),
        )
