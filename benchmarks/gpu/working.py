"""What every child can do, whoever computes for it: work of a kind, for a time, at a rate, as fast as it goes."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from benchmarks.gpu.driver_calls import RefusedError
from benchmarks.gpu.orphans import end_with

_TRIES = 5
_SEED = 1
_LAST_LAUNCHES = 500


class Kind(StrEnum):
    """Units of work."""

    TINY = "tiny"
    """One kernel that does next to nothing."""
    SMALL = "small"
    """A handful of short kernels, launched one by one."""
    GRAPH = "graph"
    """The same as one graph."""
    LARGE = "large"
    """A kernel that fills the card for about a millisecond; with PyTorch a large matrix product."""
    STEP = "step"
    """A step of training."""
    LONG = "long"
    """A graph of about thirty milliseconds, which nothing interrupts."""
    REQUEST = "request"
    """What a service does for one request."""


class Work(ABC):
    """Orders that children take; every public method is one."""

    def __init__(self) -> None:
        self._units: dict[str, Callable[[], None]] = {}

    @abstractmethod
    def start(self) -> dict[str, Any]:
        """Open the card."""

    @abstractmethod
    def make(self, kind: Kind) -> Callable[[], None]:
        """How one unit of a kind is begun."""

    @abstractmethod
    def wait(self) -> None:
        """Until all that was begun is done."""

    @abstractmethod
    def mark(self) -> Callable[[], None]:
        """A wait for what has been begun so far, and for nothing after it."""

    @abstractmethod
    def allocate_until_refused(self, most_mib: int, way: str = "plain", keep: bool = False) -> dict[str, Any]:
        """Memory until no MiB more is given or ``most_mib`` is reached: what was given, and the refusal's name."""

    def unit_ns(self, kind: str, together: int = 20) -> float:
        """How long a unit takes, alone, one after the other.

        Args:
            together: so many are begun before they are waited for; 1 for how long an answer takes.
        """
        begin = self._unit(kind)
        begin()
        self.wait()
        times = []
        for _ in range(_TRIES):
            since = time.perf_counter_ns()
            for _ in range(together):
                begin()
            self.wait()
            times.append((time.perf_counter_ns() - since) / together)
        return min(times)

    def work(self, kind: str, seconds: float, ahead: int = 4, start_s: float = 0.0) -> dict[str, float]:
        """Units back to back for a time: how many were done, in how many seconds.

        Args:
            ahead: so many are begun at once, and as many again before these are done, so that the card never waits.
            start_s: when to begin, on the monotonic clock; at once if that is over.
        """
        begin = self._unit(kind)
        time.sleep(max(0.0, start_s - time.monotonic()))
        since, done, earlier = time.monotonic(), 0, self.mark()
        while time.monotonic() - since < seconds:
            for _ in range(ahead):
                begin()
            done += ahead
            latest = self.mark()
            earlier()
            earlier = latest
        self.wait()
        return {"units": done, "seconds": time.monotonic() - since}

    def repeat(self, kind: str, count: int) -> float:
        """Seconds for so many units."""
        begin, since = self._unit(kind), time.perf_counter()
        for _ in range(count):
            begin()
        self.wait()
        return time.perf_counter() - since

    def pulse(self, seconds: float) -> list[tuple[int, int]]:
        """Tiny kernels one by one: when each began (monotonic nanoseconds), and how long it took to be done."""
        begin, end = self._unit(Kind.TINY), time.monotonic() + seconds
        seen = []
        while time.monotonic() < end:
            since = time.monotonic_ns()
            begin()
            self.wait()
            seen.append((since, time.monotonic_ns() - since))
        return seen

    def serve(self, rate: float, seconds: float, start_s: float = 0.0) -> dict[str, list[float]]:
        """Answer requests that come at random moments (Poisson) and do not wait for each other to be answered.

        Args:
            rate: requests a second.
            start_s: see ``work``.

        Returns:
            milliseconds to each answer, from the arrival (``late``) and from when it was begun (``took``).
        """
        draw, begin = random.Random(_SEED), self._unit(Kind.REQUEST)
        time.sleep(max(0.0, start_s - time.monotonic()))
        start, due = time.monotonic(), 0.0
        late: list[float] = []
        took: list[float] = []
        while (due := due + draw.expovariate(rate)) < seconds:
            time.sleep(max(0.0, start + due - time.monotonic()))
            begun = time.monotonic()
            begin()
            self.wait()
            now = time.monotonic()
            late.append((now - start - due) * 1000)
            took.append((now - begun) * 1000)
        return {"late": late, "took": took}

    def leave(self) -> None:
        """End as programs do, while what was launched is still being done."""
        begin = self._unit(Kind.TINY)
        for _ in range(_LAST_LAUNCHES):
            begin()
        raise SystemExit(0)

    def _unit(self, kind: str) -> Callable[[], None]:
        if kind not in self._units:
            self._units[kind] = self.make(Kind(kind))
            self._units[kind]()  # whatever is done once
            self.wait()
        return self._units[kind]


def main(work: Work) -> int:
    """Do what is read until there is nothing more."""
    end_with(int(sys.argv[1]), signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    for line in sys.stdin:
        told = json.loads(line)
        try:
            answer: dict[str, Any] = {"value": getattr(work, told["order"])(**told["arguments"])}
        except RefusedError as error:
            answer = {"error": error.name, "text": str(error)}
        except Exception as error:  # whatever it is, the measurement has to hear of it
            answer = {"error": type(error).__name__, "text": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # a driver that hangs in its clean-up is not waited for
