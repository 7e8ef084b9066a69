"""How tasks run as processes: as whom, and what they are kept to; and ``dev``, the rules for dev jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from millpond.specs.errors import BadValueError
from millpond.specs.job.fields import Duration
from millpond.specs.validation import Strict

FIRST_NUMBER, LAST_NUMBER = 200_000, 265_535
"""Numbers that useradd(8) does not give by default."""
_LEAST_NUMBER, _MOST_NUMBER = 1_000, 2**32 - 3

CardsInSight = Literal["auto", "own", "all"]


def _range(value: Any) -> Any:
    found = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", value) if isinstance(value, str) else None
    if found is None:
        raise BadValueError(f"{value!r} is no range of numbers", "write FIRST-LAST, such as 200000-265535")
    first, last = int(found[1]), int(found[2])
    if not _LEAST_NUMBER <= first <= last <= _MOST_NUMBER:
        raise BadValueError(f"{value!r} is no range of user numbers", f"use {_LEAST_NUMBER} to {_MOST_NUMBER}")
    return f"{first}-{last}"


class RunAsFile(Strict):
    """Whom tasks run as where the server is root; elsewhere they run as the server's account.

    Attributes:
        users: ``range``: each user as a number of their own; ``unix``: as the machine's account of the same
            name; ``server``: as the server.
        range: user numbers of no other account, for ``users: range``.
    """

    users: Literal["range", "unix", "server"] = "range"
    range: Annotated[str, BeforeValidator(_range)] = f"{FIRST_NUMBER}-{LAST_NUMBER}"

    @property
    def numbers(self) -> Sequence[int]:
        """Those that users may have."""
        first, _, last = self.range.partition("-")
        return range(int(first), int(last) + 1)


class TasksFile(Strict):
    """What tasks are kept to besides what they ask for.

    Attributes:
        cpu: ``weight``: their share where others want the CPUs too; ``bound``: never more than that.
        processes: the most that one may have, threads included.
        network: which network they get whose job names none: the machine's (``host``), or one that only the tasks of
            their job on the machine share (``private``); ``auto``: the latter from the second person on.
        cards: which of the machine's cards a task can open, from the next start of the server on: ``own``: its own, and
            work is not moved from card to card while it runs; ``all``; ``auto``: its own where the driver moves none.
    """

    cpu: Literal["weight", "bound"] = "weight"
    processes: Annotated[int, Field(ge=16, le=4_000_000)] = 4096
    network: Literal["auto", "private", "host"] = "auto"
    cards: CardsInSight = "auto"


class DevFile(Strict):
    """Rules for jobs of kind ``dev``.

    Attributes:
        idle_after: unused for this long, one is suspended or stopped; left out: never.
        warn_before: so long before, its user is warned.
        on_idle: ``suspend``: it gives its cards back, by swapping where the node can, else by an end with notice and
            grace; ``freeze``: it is halted and keeps its device memory on its cards; ``stop``: it is ended.
        open_pages: ``touched``: what people do in open pages is use, as far as it can be seen from what pages do by
            themselves; ``ignore``: whatever pages do, only opening them is.
        longest: how far a time limit can be extended; left out: as far as one likes.
    """

    idle_after: Annotated[Duration, Field(ge=60)] | None = None
    warn_before: Annotated[Duration, Field(ge=0)] = 600.0
    on_idle: Literal["suspend", "freeze", "stop"] = "suspend"
    open_pages: Literal["touched", "ignore"] = "touched"
    longest: Annotated[Duration, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> DevFile:
        if self.idle_after is not None and self.warn_before > self.idle_after:
            raise BadValueError("a warning earlier than the idle time itself", "lower warn_before")
        return self
