"""The section ``adapt``: whether the server chooses among policies by itself, by replays of its own past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field, model_validator

from millpond.model.errors import InvalidInputError
from millpond.model.policies import orderings_of, placements_of
from millpond.model.policy_trials import UNCHANGED, PolicyOverrides
from millpond.specs.errors import BadValueError
from millpond.specs.validation import Strict

REPLANNING: Final = ("srtf", "srsf", "tiresias")
"""Published orderings under which nothing can be reserved; nobody is to find them in force in the morning."""


class CandidateFile(Strict):
    """Policies that may take over; what is left out stays as it is.

    Attributes:
        ordering: who is next, for all kinds or KIND=NAME,…
        placement: where it goes, for all kinds or KIND=NAME,…
        preempt: the ordering may end running work for work that goes first.
        reserve: keep room for the first job that does not fit.
    """

    ordering: str | None = None
    placement: str | None = None
    preempt: bool | None = None
    reserve: bool | None = None

    @model_validator(mode="after")
    def _known(self) -> CandidateFile:
        if self.candidate() == UNCHANGED:
            raise BadValueError("a candidate that changes nothing", "name an ordering or a placement")
        try:
            base, _ = orderings_of(self.ordering or "")
            placements_of(self.placement or "")
        except InvalidInputError as error:
            raise BadValueError(error.cause, error.remedy) from error
        if base in REPLANNING:
            raise BadValueError(
                f"ordering {base!r} places all work anew", "choose one under which cards can be reserved"
            )
        return self

    def candidate(self) -> PolicyOverrides:
        """The checked form."""
        return PolicyOverrides(self.ordering or "", self.placement or "", self.preempt, self.reserve)


USUAL: Final = (
    *(PolicyOverrides(ordering=name) for name in ("default", "sjf", "ssf", "fair")),
    PolicyOverrides(placement="best-fit"),
)


class AdaptFile(Strict):
    """Each night the server replays its last days under other policies, and goes over to one that is better.

    What `pond up` was started with (`--ordering`, `--placement`, `--preempt`, `--reserve`), and what queues have of
    their own, is never changed.

    Attributes:
        hour: when, in local time.
        days: how much of the past is replayed, from three days on as much as there is; a candidate has to be better on
            each third of it.
        margin: better by this part of the mean slowdown.
        candidates: policies that may take over; left out: the orderings `default`, `sjf`, `ssf` and `fair`, and the
            placement `best-fit`.
    """

    hour: Annotated[int, Field(ge=0, le=23)] = 3
    days: Annotated[int, Field(ge=3, le=90)] = 7
    margin: Annotated[float, Field(ge=0.01, le=0.5)] = 0.05
    candidates: Annotated[list[CandidateFile], Field(min_length=1, max_length=16)] | None = None

    @property
    def choices(self) -> Sequence[PolicyOverrides]:
        """The policies that may take over."""
        return USUAL if self.candidates is None else [each.candidate() for each in self.candidates]
