"""What a node may hold that costs time to fetch: images, data sets, models; and which of it is worth least.

Room is made by what is worth least: the rate at which it is used times the seconds that another fetch would take, by
byte. That is GreedyDual-Size-Frequency (Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency
Caching Policy", 1998), with uses that fade, as in LRFU (Lee et al., 2001), for its clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from millpond.model.errors import InvalidInputError

MOST_CONTENTS: Final = 2_000
"""So many of what a node reports are counted, the first ones."""


USE_HALF_LIFE_S: Final = 86_400.0
"""A use counts half as much after a day: jobs come again by the day, and a thousand trials in one night are forgotten
in ten."""


def uses_after(uses: float, since_s: float) -> float:
    """What counts of earlier uses so many seconds after the last of them."""
    return uses * math.exp2(-max(since_s / USE_HALF_LIFE_S, 0.0))


def worth(uses: float, last_use_at: float, fetch_s_per_byte: float) -> float:
    """How much it is worth to keep something; what is worth more than another stays so until one of them is used.

    Args:
        uses: what its uses counted at the last of them; above 0.
        last_use_at: when that was, in seconds.
        fetch_s_per_byte: seconds that another fetch would take, by byte; above 0.
    """
    return math.log2(uses * fetch_s_per_byte) + last_use_at / USE_HALF_LIFE_S


@dataclass(frozen=True, slots=True)
class Content:
    """Something that a node holds, or that a job needs on its nodes.

    Attributes:
        name: what it is, the same wherever it is: ``image:REFERENCE@sha256:...``, ``data:NAME@3``.
        bytes: its size; 0 where it is not known: then as large as the largest that any node holds under the name.
    """

    name: str
    bytes: int = 0

    def __post_init__(self) -> None:
        if not self.name or self.bytes < 0:
            raise InvalidInputError(
                f"content {self.name!r} of {self.bytes} bytes", "give it a name, and a size of 0 (unknown) or more"
            )
