"""Services that start replicas before the load comes, played on the requests of the GenAI trace, three times each.

A replica serves one request at a time and is ready ten minutes after it was asked for. The copies of a request come up
to ten minutes after it, drawn by a seed. Replicas follow the open requests of the last ``down_after`` as the
autoscaler's do; *ahead* adds what `serving/replica_forecasts.py` would have asked for at that time.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.forecasting.load_series import genai_requests, instant
from millpond.forecasting.forecasters import FORECASTERS, NAIVE
from millpond.forecasting.outlook import LEAST_DAYS, TESTED_DAYS, roll
from millpond.forecasting.series import LoadSeries
from millpond.model.units import DAY_S

COPIES, SEED = 3, 0
READY_S, LOOK_S, STEP_S = 600.0, 5.0, 600.0
LONG_WAIT_S: Final = 30.0
BEGIN = instant("2024-11-16")

Request = tuple[float, float]


@dataclass(frozen=True, slots=True)
class WaitScore:
    """What a rule came to in a window.

    Attributes:
        late: requests that waited for more than half a minute, in percent.
        replica_hours: of all that were asked for, also while they started.
    """

    late: float
    replica_hours: float


def requests_of(folder: Path) -> list[Request]:
    """Each request three times, by when it comes, in seconds from 16 November on."""
    draw = random.Random(SEED)
    found = [(at - BEGIN, length_s) for at, length_s in genai_requests(folder) if at >= BEGIN]
    copies = [(at + draw.uniform(0.0, STEP_S), length_s) for at, length_s in found for _ in range(COPIES - 1)]
    return sorted(found + copies)


def demand_of(requests: Sequence[Request]) -> LoadSeries:
    """The most replicas that were needed in each ten minutes, had all been served at once."""
    changes = sorted([(at, 1) for at, _ in requests] + [(at + length_s, -1) for at, length_s in requests])
    most = np.zeros(int(requests[-1][0] // STEP_S) + 1)
    level, before = 0, 0
    for at, change in changes:
        step = min(int(at // STEP_S), len(most) - 1)
        most[before + 1 : step + 1] = np.maximum(most[before + 1 : step + 1], level)
        level, before = level + change, step
        most[step] = max(most[step], level)
    return LoadSeries(0.0, STEP_S, most)


def ahead_of(demand: LoadSeries, part: float) -> np.ndarray:
    """How many replicas the forecast asks for in each step; 0 where none would have been served."""
    steps, count = demand.steps_in(READY_S + 2 * STEP_S), len(demand.values)
    begin, tested = LEAST_DAYS * demand.steps_in(DAY_S), TESTED_DAYS * demand.steps_in(DAY_S)
    found = roll(demand, steps, part, (FORECASTERS, steps))
    naive = NAIVE.forecasts(demand, steps, 0)
    losses = [np.cumsum(np.nan_to_num(np.abs(demand.values - said[:count]))) for said in (found.said, naive)]
    asked = np.zeros(count)
    for step in range(begin, count):
        ours, theirs = (loss[step - 1] - loss[max(0, step - 1 - tested)] for loss in losses)
        if ours <= theirs and not np.isnan(found.upper[step - 1 + steps]):
            asked[step] = math.ceil(found.upper[step - 1 + steps] - 1e-9)
    return asked


class PlayedService:
    """A service with its line of requests."""

    def __init__(self, down_after_s: float) -> None:
        self.ready, self.starting = 1, list[float]()
        self._down_after_s = down_after_s
        self._busy_until: list[float] = []
        self._line: deque[Request] = deque()
        self._targets: deque[tuple[float, int]] = deque()

    def serve(self, now: float, came: Sequence[Request]) -> list[float]:
        """Give requests to free replicas; returns how long those waited that begin now."""
        self._line.extend(came)
        while self._busy_until and self._busy_until[0] <= now:
            heapq.heappop(self._busy_until)
        while self.starting and self.starting[0] <= now:
            self.starting.pop(0)
            self.ready += 1
        waits = []
        while self._line and len(self._busy_until) < self.ready:
            at, length_s = self._line.popleft()
            heapq.heappush(self._busy_until, now + length_s)
            waits.append(now - at)
        return waits

    def scale(self, now: float, ahead: int) -> None:
        """Have as many replicas as were wanted of late, or are forecast to be."""
        wanted = max(1, len(self._busy_until) + len(self._line))
        while self._targets and self._targets[-1][1] <= wanted:
            self._targets.pop()
        self._targets.append((now, wanted))
        while self._targets[0][0] < now - self._down_after_s:
            self._targets.popleft()
        surplus = self.ready + len(self.starting) - max(self._targets[0][1], ahead)
        if surplus < 0:
            self.starting += [now + READY_S] * -surplus
            return
        kept = max(0, len(self.starting) - surplus)
        surplus -= len(self.starting) - kept
        del self.starting[kept:]
        self.ready -= max(0, min(surplus, self.ready - len(self._busy_until)))


def play_service(
    requests: Sequence[Request], ahead: np.ndarray, down_after_s: float, window: tuple[float, float]
) -> WaitScore:
    """Play all requests from the first on; those of the window are judged."""
    service, next_one = PlayedService(down_after_s), 0
    waits: list[float] = []
    held = 0
    for look in range(int(window[1] / LOOK_S)):
        now = look * LOOK_S
        first = next_one
        while next_one < len(requests) and requests[next_one][0] <= now:
            next_one += 1
        begun = service.serve(now, requests[first:next_one])
        service.scale(now, int(ahead[int(now // STEP_S)]))
        if now >= window[0]:
            waits += begun
            held += service.ready + len(service.starting)
    return WaitScore(100.0 * sum(wait > LONG_WAIT_S for wait in waits) / len(waits), held * LOOK_S / 3_600.0)
