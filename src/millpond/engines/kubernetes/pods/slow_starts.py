"""Starts whose pods do not come to run, for want of something that only the cluster's events tell of."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import ClusterRefusedError
from millpond.engines.kubernetes.cluster.shared_objects import Shared
from millpond.engines.kubernetes.pods.live_pods import LivePod, LivePods
from millpond.engines.kubernetes.pods.pod_marks import run_name
from millpond.engines.kubernetes.pods.pod_states import is_untouched
from millpond.engines.outbox import Outbox
from millpond.engines.task_ends import Refusal
from millpond.model.amounts import seconds_text
from millpond.model.decisions import Decision, Start

SHARED_AGAIN_S: Final = 10.0
"""What the pods of a start share is made again where they do not run after so long: others may have deleted it."""
TOLD_AFTER_S: Final = 30.0
"""After so long the history of a job says what one of its pods waits for."""
WAIT_PATIENCE_S: Final = 120.0
"""A start is given up when what the cluster says keeps a pod waiting after so long; then it is asked as often again."""


@dataclass(slots=True)
class GangStart:
    """A start that is not answered.

    Attributes:
        names: of its pods.
        waiting: those whose program does not run yet.
        delays: those whose image is not there yet, or whose container is not made, and why.
        trouble: why a program of it will not run.
        refusal: why it is given up; its pods are on their way out.
        is_making: its pods are being made and bound; it is undone behind that.
        since: when one of these was first seen, by the clock of the loop.
        deferred: decisions about the job that came meanwhile.
        uids: of its pods by their names, as far as they are known to be made.
        left: those whose node is lost, which end when it comes back.
        asking: when it is looked next why they do not run.
    """

    decision: Start
    names: tuple[str, ...]
    waiting: set[str]
    uids: dict[str, str] = field(default_factory=dict)
    delays: dict[str, Refusal] = field(default_factory=dict)
    trouble: Refusal | None = None
    refusal: Refusal | None = None
    is_making: bool = True
    since: float | None = None
    deferred: list[Decision] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    asking: asyncio.TimerHandle | None = None


class SlowStarts:
    """Looks after them. Lives on the engine's loop.

    Args:
        is_open: whether a start may come to be yet.
        give_up: called with a start that does not.
    """

    def __init__(
        self,
        api: ClusterApi,
        pods: LivePods,
        outbox: Outbox,
        is_open: Callable[[GangStart], bool],
        give_up: Callable[[GangStart, Refusal], None],
    ) -> None:
        self._api, self._pods, self._outbox = api, pods, outbox
        self._is_open, self._give_up = is_open, give_up
        self._one_asks = asyncio.Lock()

    def watch(self, pending: GangStart, shared: Iterable[Shared]) -> None:
        """The pods of a start are bound; it made these beside them."""
        self._look_later(pending, SHARED_AGAIN_S, partial(self._make_again, pending, shared))

    def _look_later(self, pending: GangStart, after_s: float, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Look why its pods do not run, should that be so by then."""
        if self._is_open(pending):
            loop = asyncio.get_running_loop()
            pending.asking = loop.call_later(after_s, lambda: self._pods.spawn(look()))

    async def _make_again(self, pending: GangStart, shared: Iterable[Shared]) -> None:
        if not self._is_open(pending):
            return
        job, attempt = pending.decision.job, pending.decision.attempt
        self._api.shared.forget()
        with contextlib.suppress(ClusterRefusedError):  # such as by a quota, though it is there
            await self._api.shared.make(run_name(job, attempt), shared, begins=False)
        if not self._is_open(pending):  # given up meanwhile, it may have deleted all of that before
            await self._pods.forget_run(job, attempt)
        self._look_later(pending, TOLD_AFTER_S - SHARED_AGAIN_S, partial(self._tell_why, pending))

    async def _tell_why(self, pending: GangStart) -> None:
        live = next((self._pods.by_name[name] for name in pending.waiting if name in self._pods.by_name), None)
        if live is not None:
            said = await self._why_waiting(pending, live)
            text = f"{said}; its start is given up after {seconds_text(WAIT_PATIENCE_S)} of that" if said else ""
            if not said and live.pod is not None and is_untouched(live.pod):
                text = f"its pod {live.mark.pod} is to begin, and node {live.node} has not said that it has"
            if text and self._is_open(pending):
                self._outbox.note(pending.decision.job, text)
        self._look_later(pending, WAIT_PATIENCE_S - TOLD_AFTER_S, partial(self._ask_why, pending))

    async def _ask_why(self, pending: GangStart) -> None:
        for live in [self._pods.by_name[name] for name in pending.waiting if name in self._pods.by_name]:
            said = await self._why_waiting(pending, live)
            if said and self._is_open(pending):
                self._give_up(pending, Refusal(said, True))
        self._look_later(pending, WAIT_PATIENCE_S, partial(self._ask_why, pending))

    async def _why_waiting(self, pending: GangStart, live: LivePod) -> str:
        """What does not come keeps a pod waiting for ever, and the cluster says so in events alone."""
        async with self._one_asks:  # events are not indexed by their pods: a question is dear to the cluster
            return await self._api.wait_trouble(live.mark.pod) if self._is_open(pending) else ""
