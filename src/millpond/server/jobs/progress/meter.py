"""How fast a run makes steps, by what its tasks report; and what is wrong with such reports.

A program may report anything. Its steps are held against the server's clock, so that no dates in its reports make it
faster than it was seen to be. What cannot be true voids what was measured before, and is named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from millpond.server.storage.files.outputs import Reported

WINDOW_S: Final = 120.0
"""The span over which steps are counted; where reports come more rarely, that between the last two."""
LEAST_SPAN_S: Final = 20.0
SEEN_LATE_S: Final = 10.0
"""So much later than it was written a report may be read."""
STRAY_STEPS: Final = 10
"""Several processes of a task report, not quite at once: steps so far behind the highest do not run back."""
CLOCK_SLACK_S: Final = 60.0
LARGEST_STEP: Final = 2.0**53
"""Beyond that a float does not count single steps."""
MOST_STEPS_PER_S: Final = 1e9
STALLED_AFTER_S: Final = 600.0
STALLED_AFTER_SPANS: Final = 5
"""A run that reports nothing for so long, and for so many times what lay between its last reports, makes no steps."""
MOST_COUNTERS: Final = 16


class _Mark(NamedTuple):
    """The highest step at a look: by when it was reported, and when that was seen."""

    step: float
    at: float
    seen: float


class _Counter:
    """The steps of reports that bear the same names: a program may count batches and epochs in turn."""

    def __init__(self) -> None:
        self.count = 0
        self.highest: Reported | None = None
        self.marks: list[_Mark] = []

    def take(self, report: Reported, step: float) -> str:
        """The next report; returns what is wrong with it."""
        self.count += 1
        highest = 0.0 if self.highest is None or self.highest.step is None else self.highest.step
        if self.highest is not None and step < highest - STRAY_STEPS:
            self.highest, self.marks = report, []
            return f"its steps run back, from {highest:.6g} to {step:.6g}"
        if self.highest is None or step > highest:
            self.highest = report
        return ""

    def mark(self, now: float) -> None:
        """All reports of a look are taken."""
        report, marks = self.highest, self.marks
        if report is None or report.step is None or (marks and marks[-1].step == report.step):
            return
        if marks and now < marks[-1].seen:
            marks.clear()  # the clock was set back
        marks.append(_Mark(report.step, report.at, now))
        while len(marks) > 2 and marks[1].seen < now - WINDOW_S:
            marks.pop(0)

    @property
    def steps_per_s(self) -> float | None:
        """Over the window; None while that is too short."""
        if len(self.marks) < 2:
            return None
        first, last = self.marks[0], self.marks[-1]
        span_s = max(last.at - first.at, last.seen - first.seen - SEEN_LATE_S)
        return (last.step - first.step) / span_s if span_s >= LEAST_SPAN_S else None

    def is_stalled(self, now: float) -> bool:
        """Whether it has made no step for so long that it makes none any more."""
        if len(self.marks) < 2:
            return False
        usual_s = (self.marks[-1].seen - self.marks[0].seen) / (len(self.marks) - 1)
        return now - self.marks[-1].seen > max(STALLED_AFTER_S, STALLED_AFTER_SPANS * usual_s)


class ProgressMeter:
    """Measures one run, on the same cards.

    Attributes:
        steps_per_s: None while it is not known.
        ignored: what was wrong with its reports since it was known last, a clause; empty: nothing.
    """

    def __init__(self) -> None:
        self._counters: dict[frozenset[str], _Counter] = {}
        self._has_steps = False
        self.steps_per_s: float | None = None
        self.ignored = ""

    def look(self, reports: Iterable[Reported], now: float) -> None:
        """Take what was reported since the last look.

        Args:
            now: by the server's clock.
        """
        fault = ""
        for report in reports:
            fault = self._take(report, now) or fault
        for counter in self._counters.values():
            counter.mark(now)
        if not self._counters:
            self.ignored = fault or self.ignored
            return
        main = max(self._counters.values(), key=lambda counter: counter.count)
        rate = main.steps_per_s
        if rate is not None and rate > MOST_STEPS_PER_S:
            fault, rate = f"{rate:.3g} steps in a second cannot be", None
        if fault:
            self.ignored, self.steps_per_s = fault, None
            for counter in self._counters.values():
                counter.marks.clear()
        elif rate is not None:
            self.ignored, self.steps_per_s = "", 0.0 if main.is_stalled(now) else rate

    def _take(self, report: Reported, now: float) -> str:
        if report.step is None:
            return "" if self._has_steps else "they have no step that is a number (report(step=...))"
        self._has_steps = True
        if abs(report.step) > LARGEST_STEP:
            return f"a step of {report.step:.3g} is no count"
        if report.at > now + CLOCK_SLACK_S:
            return f"they are dated {report.at - now:.0f} s ahead of the clock"
        names = frozenset(report.values)
        counter = self._counters.get(names)
        if counter is None:
            if len(self._counters) == MOST_COUNTERS:
                return ""
            counter = self._counters[names] = _Counter()
        return counter.take(report, report.step)
