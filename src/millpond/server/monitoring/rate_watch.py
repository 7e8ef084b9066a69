"""Tells the core what a kWh should cost or emit in the hours to come, for jobs that may start later (``flexible``).

Each hour, and when the configured rates have changed, as an event in the log: a replay needs no forecast, and a restart
goes on with what was told. Rates that are the same at all hours are not told, as nobody would wait for any of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from millpond.forecasting.rate_hours import predict_rate
from millpond.model.energy import EnergyRates
from millpond.model.events import EnergyRatePredicted
from millpond.model.units import HOUR_S
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 30.0


class RateWatch(Periodic):
    """Looks at the rates, on a thread of its own.

    Args:
        rates: as they are configured now.
        notify: tells the core.
    """

    def __init__(
        self,
        rates: Callable[[], EnergyRates],
        notify: Callable[[Sequence[EnergyRatePredicted]], None],
        clock: WallClock = time.time,
    ) -> None:
        self._rates = rates
        self._notify = notify
        self._clock = clock
        self._seen: tuple[EnergyRates, float] | None = None
        self._told = False, ""
        self._worker = PeriodicWorker(
            "rates", self.look, LOOK_EVERY_S, "flexible jobs wait for hours as predicted before"
        )

    def look(self) -> None:
        """Tell the hours to come, if they are others than at the last look."""
        now, rates = self._clock(), self._rates()
        seen = rates, now // HOUR_S
        if seen == self._seen:
            return
        self._seen = seen
        measure, rate = rates.flexible_rate
        found = predict_rate(rate, measure, now)
        varies = len(set(found.values)) > 1
        missing = "" if rate is None else found.missing
        if missing and missing != self._told[1]:
            log.warning("flexible jobs start as all others: %s", missing)
        if varies or (varies, missing) != self._told:
            self._notify([found])
        self._told = varies, missing
