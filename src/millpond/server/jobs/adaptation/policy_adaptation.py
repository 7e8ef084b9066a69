"""Chooses among policies once a night, where the configuration has a section ``adapt``: the server's last days are
replayed in a child process under each candidate. One that is better takes over, on trial; if the days that follow go
worse than they would have under the policy of before, that one comes back.

The choice and all that is needed to take it back is one event (``PolicyChanged``), so a restart goes on with the trial.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import time as clock_time
from typing import Final

from millpond.model.errors import InvalidInputError, MillpondError, UnavailableError
from millpond.model.events import PolicyChanged
from millpond.model.policy_trials import ClusterPolicies, PolicyOverrides, PolicyTrial
from millpond.model.units import DAY_S
from millpond.node.host.clocks import WallClock
from millpond.node.host.periodic_worker import Periodic, PeriodicWorker
from millpond.scheduling.settings import Settings
from millpond.server.jobs.adaptation import policy_replay
from millpond.server.jobs.adaptation.night_record import Night, NightRecord
from millpond.server.jobs.what_if.child import ask_child
from millpond.server.runtime.loop import Loop
from millpond.server.views.reports.history_export import HistoryExport
from millpond.server.views.reports.recorded_jobs import NEVER_RAN, Recorded, RecordedJob
from millpond.server.wording import local_time
from millpond.simulation.adaptation import (
    LEAST_JOBS,
    TriedPolicy,
    WindowFigures,
    choose_policy,
    is_worse,
    window_figures,
    windows_of,
)
from millpond.simulation.policy_replays import Windows
from millpond.specs.api.server import AdaptationInfo
from millpond.specs.calendar_spans import nearest_hour
from millpond.specs.config.adapting import AdaptFile

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 60.0
ANSWERED_WITHIN_S: Final = 1_800.0
MOST_JOBS: Final = 20_000
ON_TRIAL_S: Final = 7 * 86_400.0
"""So long a policy that took over is compared with the one of before, and no other takes over."""
RESTS_S: Final = 14 * 86_400.0
"""So long a policy that was given up does not come again."""
LEAST_DAYS: Final = 3
"""From so much history on policies are chosen: each of the three windows has all hours of a day."""
MOST_MISSING: Final = 0.2
"""If a greater part of the jobs that took cards cannot be replayed, nothing is judged by the others."""
_UNFINISHED: Final = "not finished: the server ended meanwhile, or its log says why; the next night tries again"
_UNDER_WAY: Final = "the replays are under way"

AskChild = Callable[[str, str, float, str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class _Night:
    """What a choice rests on: the instant, the scheduler as JSON and its settings, and the rule."""

    now: float
    snapshot: str
    settings: Settings
    rule: AdaptFile

    @property
    def present(self) -> ClusterPolicies:
        """The policies that hold."""
        return self.settings.policies


class PolicyAdapter(Periodic):
    """Looks once a night whether other policies would have been better.

    Args:
        rule: as configured now; None: the policies stay.
        pinned: what the server was started with, which is never changed.
        record: of the last night.
        ask: asks the child process.
    """

    def __init__(
        self,
        loop: Loop,
        history: HistoryExport,
        rule: Callable[[], AdaptFile | None],
        pinned: PolicyOverrides,
        record: NightRecord,
        clock: WallClock = time.time,
        ask: AskChild = ask_child,
    ) -> None:
        self._loop, self._history = loop, history
        self._rule, self._pinned = rule, pinned
        self._clock, self._ask = clock, ask
        self._record, self._is_looking = record, False
        self._worker = PeriodicWorker("policy-adaptation", self.look, LOOK_EVERY_S, "the policies stay as they are")

    def look(self) -> None:
        """Choose, where the hour has come since the last look."""
        rule = self._rule()
        if rule is None:
            self._record.forget()
            return
        now = self._clock()
        due_at, before = nearest_hour(clock_time(rule.hour), now, -1), self._record.latest
        if before is None:
            self._record.note(Night(due_at))
        if before is None or due_at <= before.due_at:
            return
        self._record.note(Night(due_at, now, _UNFINISHED))
        self._is_looking = True
        try:
            text = asyncio.run(self._choose(now, rule))
        except MillpondError as error:
            text = f"the policies stay as they are: {error.cause}{error.remedy and '; '}{error.remedy}"
        finally:
            self._is_looking = False
        self._record.note(Night(due_at, now, text))
        log.info("policies, %s", self.latest)

    @property
    def latest(self) -> str:
        """What the last night came to, in words; empty where there was none."""
        night = self._record.latest
        if night is None or night.looked_at is None:
            return ""
        return f"{local_time(night.looked_at)}: {self._text_of(night)}"

    def info(self, settings: Settings) -> AdaptationInfo:
        """What was chosen, why and on trial until when.

        Args:
            settings: that hold.
        """
        rule, night, trial = self._rule(), self._record.latest, settings.trial
        return AdaptationInfo(
            chooses=rule is not None,
            policies=str(settings.policies),
            next_at=None if rule is None else nearest_hour(clock_time(rule.hour), self._clock(), 1),
            looked_at=None if night is None else night.looked_at,
            result="" if night is None else self._text_of(night),
            changed_at=None if trial is None else trial.since,
            other="" if trial is None else str(trial.other),
            rolled_back=trial is not None and trial.rolled_back,
            trial_until=None if trial is None or trial.rolled_back else trial.since + ON_TRIAL_S,
        )

    def _text_of(self, night: Night) -> str:
        return _UNDER_WAY if self._is_looking else night.text

    async def _choose(self, now: float, rule: AdaptFile) -> str:
        fork = self._loop.look_up(lambda core: core.scheduler.fork(), is_long=True)
        night = _Night(now, json.dumps(fork.snapshot()), fork.settings, rule)
        trial = night.settings.trial
        if trial is not None and not trial.rolled_back and now - trial.since < ON_TRIAL_S:
            return await self._judge(night, trial)
        return await self._promote(night)

    async def _promote(self, night: _Night) -> str:
        candidates = self._candidates(night)
        if not candidates:
            return (
                "the policies stay as they are: every candidate holds, is pinned at the start, or was given up lately"
            )
        recorded = await self._recorded(night.now - night.rule.days * DAY_S, night)
        begin = _begin_of_history(recorded.jobs, night)
        windows = windows_of(begin, night.now)
        tried = await self._replays(night, recorded, [night.present, *candidates], windows)
        verdict = choose_policy(tried[0], tried[1:], night.rule.margin)
        if verdict.choice is None:
            return f"the policies stay as they are: {verdict.why}"
        replayed, measured = tried[0].windows, [measured_figures(recorded.jobs, window) for window in windows]
        optimism = _mean_slowdown(measured) / _mean_slowdown(replayed)
        why = f"{verdict.why}; by replays of three windows since {local_time(begin)}"
        self._tell(verdict.choice, PolicyTrial(night.now, night.present, optimism), why)
        return why

    async def _judge(self, night: _Night, trial: PolicyTrial) -> str:
        """Whether the days since the change were better than they would have been without it."""
        keeps = f"{night.present} stays, on trial since {local_time(trial.since)}"
        window = (trial.since, night.now)
        recorded = await self._recorded(trial.since, night)
        measured = measured_figures(recorded.jobs, window)
        if measured.jobs < LEAST_JOBS:
            return f"{keeps}: too few jobs to judge by: {measured.jobs} since then, {LEAST_JOBS} are needed"
        (tried,) = await self._replays(night, recorded, [trial.other], [window])
        if not tried.windows:
            return f"{keeps}: the replay of {trial.other} took too long"
        numbers = (
            f"mean slowdown measured {measured.slowdown:.2f}, of {trial.other} replayed on the same {measured.jobs} "
            f"jobs {tried.windows[0].slowdown:.2f} (before the change measured was {trial.optimism:.2f} times replayed)"
        )
        if not is_worse(measured, tried.windows[0], trial.optimism, night.rule.margin):
            return f"{keeps}: {numbers}"
        back = self._pinned.over(trial.other)
        why = f"back to {back}, as {night.present} did worse since {local_time(trial.since)}: {numbers}"
        self._tell(back, PolicyTrial(night.now, night.present, trial.optimism, rolled_back=True), why)
        return why

    def _candidates(self, night: _Night) -> list[ClusterPolicies]:
        """The policies that could take over, each once."""
        trial, resting = night.settings.trial, set[ClusterPolicies]()
        if trial is not None and trial.rolled_back and night.now - trial.since < RESTS_S:
            resting.add(trial.other)
        found = dict.fromkeys(candidate.over(night.present) for candidate in night.rule.choices)
        return [
            choice
            for choice in found
            if choice != night.present and choice not in resting and self._pinned.over(choice) == choice
        ]

    async def _recorded(self, begin: float, night: _Night) -> Recorded:
        """The jobs that were submitted since an instant, and what was under way then and is now.

        Raises:
            UnavailableError: too many are missing to judge by the others.
        """
        try:
            found = await self._history.recorded_with_present(begin, night.now, night.rule.days * DAY_S, MOST_JOBS)
        except InvalidInputError as error:
            raise UnavailableError(error.cause, "set fewer adapt.days") from error
        left_out = {reason: number for reason, number in found.left_out.items() if reason != NEVER_RAN}
        missing = sum(left_out.values())
        if missing > MOST_MISSING * (len(found.jobs) + missing):
            reasons = "; ".join(f"{number} {reason}" for reason, number in left_out.items())
            raise UnavailableError(
                f"{missing} of {len(found.jobs) + missing} jobs cannot be replayed ({reasons})",
                "wait until more have ended",
            )
        return found

    async def _replays(
        self, night: _Night, recorded: Recorded, choices: Sequence[ClusterPolicies], windows: Windows
    ) -> list[TriedPolicy]:
        text = policy_replay.question_text(night.snapshot, recorded, choices, windows)
        asked = asyncio.ensure_future(
            self._ask(policy_replay.__name__, text, ANSWERED_WITHIN_S, "let adapt.days be fewer, or candidates")
        )
        while not asked.done():
            if self._worker.closing:
                asked.cancel()
            await asyncio.wait((asked,), timeout=1.0)
        if asked.cancelled():
            raise UnavailableError("the server ends", "it is tried again in the next night")
        return policy_replay.read_answer(asked.result(), choices)

    def _tell(self, choice: ClusterPolicies, trial: PolicyTrial, why: str) -> None:
        """Change the policies.

        Raises:
            MillpondError: the scheduler refuses them.
        """
        ordering, placement, preempt, reserve = choice.ordering, choice.placement, choice.preempt, choice.reserve
        self._loop.wait_for(
            self._loop.change_setting(
                lambda at: PolicyChanged(at, ordering, placement, preempt, reserve, trial, f"policies: {why}")
            )
        )


def measured_figures(jobs: Sequence[RecordedJob], window: tuple[float, float]) -> WindowFigures:
    """What became of jobs on this server."""
    return window_figures(((job.submitted_at, job.ended_at, job.length_s) for job in jobs), window)


def _mean_slowdown(windows: Sequence[WindowFigures]) -> float:
    return sum(window.slowdown * window.jobs for window in windows) / sum(window.jobs for window in windows)


def _begin_of_history(jobs: Sequence[RecordedJob], night: _Night) -> float:
    """From when on days are replayed: the configured number, or as many as there are.

    Raises:
        UnavailableError: they are too few.
    """
    wanted = night.now - night.rule.days * DAY_S
    if jobs and jobs[0].submitted_at <= wanted + DAY_S:
        return wanted
    if jobs and jobs[0].submitted_at <= night.now - LEAST_DAYS * DAY_S:
        return jobs[0].submitted_at
    since = f"begins {local_time(jobs[0].submitted_at)}" if jobs else "is empty"
    raise UnavailableError(f"the history is too short: it {since}, {LEAST_DAYS} days are needed", "wait")
