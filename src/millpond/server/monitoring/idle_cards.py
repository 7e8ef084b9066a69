"""Since when held cards have not computed: for the overview, the alerts and the metrics of cards.

The samples that are remembered of a card span a few minutes, so what is longer ago is noted look by look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from millpond.node.devices.vendor import STALE_AFTER_S
from millpond.server.monitoring.telemetry.sampling import IDLE_MILLI, Samples

IDLE_AFTER_S: Final = 600.0
"""A card, or a job, that has not computed for so long is called idle."""


class IdleCards:
    """The cards that were idle in every look since some instant.

    Attributes:
        since: seconds since 1970, by UUID; a new mapping with each look, so that any thread may read it.
    """

    def __init__(self) -> None:
        self.since: Mapping[str, float] = {}

    def look(self, held: Collection[str], samples: Samples, looked_at: float, now: float) -> None:
        """Follow the cards that tasks hold now; of those that do not say whether they compute nothing is known.

        Args:
            looked_at: when this was done last.
        """
        found: dict[str, float] = {}
        for card in held:
            recent = samples(card)
            fresh = [each for each in recent if each.at > looked_at]
            uses = [use for each in fresh if (use := each.sample.use_milli) is not None]
            if len(uses) < len(fresh) or not recent or now - recent[-1].at > STALE_AFTER_S:
                continue
            known = self.since.get(card)
            if uses and sum(uses) / len(uses) <= IDLE_MILLI:
                found[card] = fresh[0].at if known is None else known
            elif not uses and known is not None:  # large pools are sampled less often than they are looked at
                found[card] = known
        self.since = found

    def forget(self) -> None:
        """Nothing is known, as after a sleep of the machine."""
        self.since = {}
