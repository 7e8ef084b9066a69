"""What charts are drawn from, as Python methods: ``Client().charts.curves([job])``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millpond.client.sdk.transport.connection import Requests, given, segment

if TYPE_CHECKING:
    from millpond.specs.api.jobs.curves import CurvesInfo
    from millpond.specs.api.reports.fairness import FairnessInfo
    from millpond.specs.api.reports.time_series import TimeSeriesInfo

_ALL_FILES_WITHIN = 60
"""Answers, each of which reads files for a second."""


class ChartsClient(Requests):
    """Training curves, and the history of the pool."""

    def curves(
        self,
        job_ids: Sequence[str],
        metrics: Sequence[str] = (),
        *,
        points: int = 500,
        begin: float | None = None,
        end: float | None = None,
    ) -> CurvesInfo:
        """Training curves of up to 50 runs, over all attempts: reports, and scalars of TensorBoard files.

        Args:
            job_ids: of an array or a sweep, its members.
            metrics: names, 12 at the most; left out: the first ones there are.
            points: of each curve, at the most; ``count`` of a curve says how many it has.
            begin, end: steps between which they lie.
        """
        from millpond.specs.api.jobs.curves import CurvesInfo

        wanted = {"job": list(job_ids), "metric": list(metrics), "points": points, "from": begin, "to": end}
        params = {name: value for name, value in wanted.items() if value not in (None, [])}
        found = self._ask(CurvesInfo, "GET", "/curves", params=params)
        for _ in range(_ALL_FILES_WITHIN):
            if found.whole:
                break
            found = self._ask(CurvesInfo, "GET", "/curves", params=params)
        return found

    def time_series(
        self,
        subject: str = "models",
        begin: float | None = None,
        end: float | None = None,
        step_s: float = 0.0,
        names: Sequence[str] = (),
    ) -> TimeSeriesInfo:
        """How the pool was used between two instants (seconds since 1970; left out: the last day).

        Args:
            subject: ``models``, ``queues`` or ``nodes``.
            step_s: seconds of one point, at least.
            names: of which of them, 16 at the most; left out: of all, but for nodes of a pool of more than 128.
        """
        from millpond.specs.api.reports.time_series import TimeSeriesInfo

        params = given(subject=subject, to=end, step=step_s, **{"from": begin})
        if names:
            params["name"] = list(names)
        return self._ask(TimeSeriesInfo, "GET", "/time-series", params=params)

    def fairness(self, begin: float | None = None, end: float | None = None, step_s: float = 0.0) -> FairnessInfo:
        """How fair cards were divided between queues; the span is as that of ``time_series``."""
        from millpond.specs.api.reports.fairness import FairnessInfo

        params = given(to=end, step=step_s, **{"from": begin})
        return self._ask(FairnessInfo, "GET", "/time-series/fairness", params=params)

    def cards_of(self, job_id: str) -> TimeSeriesInfo:
        """What the cards of a job did over its life, as far as their driver measures it."""
        from millpond.specs.api.reports.time_series import TimeSeriesInfo

        return self._ask(TimeSeriesInfo, "GET", f"/jobs/{segment(job_id)}/cards")
