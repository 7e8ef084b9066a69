"""Jobs on their way off their cards, or back, by the agents of their nodes: one step of one job at a time.

What is wanted is written on the pods, and goes on whether or not a server lives; the next one that is told the decision
finds the answers. Decisions about a job that is on its way wait until it has arrived; only its end does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_refusals import ClusterRefusedError
from millpond.engines.kubernetes.loop_work import LoopWork
from millpond.engines.kubernetes.pods.live_pods import LivePod, LivePods
from millpond.engines.kubernetes.pods.pod_states import PodPhase
from millpond.engines.kubernetes.pods.slice_order import SliceOrder
from millpond.engines.kubernetes.pods.suspension_order import SuspensionAnswer, SuspensionOrder
from millpond.engines.outbox import Outbox
from millpond.engines.task_ends import Refusal
from millpond.model.decisions import Decision, Resume, Suspend, SuspendMode
from millpond.node.sharing.desired_state import DesiredState
from millpond.node.sharing.residency import move_deadline_s

NEVER_HALTED: Final = "tasks in pods are suspended by the agent of their node alone, and no node of the cluster has one"
NOT_OF_AGENT: Final = "it has no cards of Millpond's agent, which alone suspends pods"
CAPS_NOTHING: Final = "cards in pods are not kept at power caps"
MOVES_NOWHERE: Final = "a pod keeps the cards that it was given when it started"
AGENT_PATIENCE_S: Final = 60.0
"""Beyond what the move may take: an agent is replaced in that time."""
LOOK_EVERY_S: Final = 0.5
_DESIRED: Final = {SuspendMode.FREEZE: DesiredState.FROZEN, SuspendMode.SWAP: DesiredState.SWAPPED}


class PodSuspensions:
    """All of them. Lives on the engine's loop.

    Args:
        go_on: called with the decisions that had to wait, in their order.
    """

    def __init__(
        self, api: ClusterApi, live: LivePods, outbox: Outbox, go_on: Callable[[Sequence[Decision]], None]
    ) -> None:
        self._api, self._live, self._outbox, self._go_on = api, live, outbox, go_on
        self._work = LoopWork(outbox)
        self._waiting: dict[str, list[Decision]] = {}
        self._answers: dict[str, Mapping[str, SuspensionAnswer]] = {}
        self._news = asyncio.Event()

    def answered(self, node: str, answers: Mapping[str, SuspensionAnswer]) -> None:
        """The agent of a node has said what became of what is wanted of its pods, by their uids."""
        if answers != self._answers.get(node, {}):
            self._answers[node] = answers
            self._news.set()

    def defer(self, decision: Decision) -> bool:
        """Have a decision wait if its job is on its way; whether it does."""
        if decision.job not in self._waiting:
            return False
        self._waiting[decision.job].append(decision)
        return True

    def is_swapped(self, live: LivePod) -> bool:
        """Whether a task's device memory is meant to be on the host."""
        return _state_of(live) is DesiredState.SWAPPED

    def suspend(self, decision: Suspend) -> None:
        """Take a job off its cards: all its tasks, or none."""
        self._begin(decision, _DESIRED[decision.mode])

    def resume(self, decision: Resume) -> None:
        """Let a job go on: all its tasks."""
        placed = () if decision.placement is None else tuple(each.device for each in decision.placement.grants)
        tasks = self._live.of_run(decision.job, decision.attempt)
        if placed and any(live.mark.devices != placed for live in tasks):
            self._outbox.refuse(decision, Refusal(MOVES_NOWHERE, False))
        else:
            self._begin(decision, DesiredState.RUNNING)

    def _begin(self, decision: Decision, desired: DesiredState) -> None:
        self._waiting[decision.job] = []
        self._work.begin(self._carry_out(decision, desired))

    async def _carry_out(self, decision: Decision, desired: DesiredState) -> None:
        tasks = self._live.of_run(decision.job, decision.attempt)
        before = [_state_of(live) for live in tasks]
        failed = await self._all_reach(decision, tasks, [desired] * len(tasks))
        # What is suspended stays so if a part of it cannot come back: then the core decides its end.
        if failed is not None and desired is not DesiredState.RUNNING:
            await self._all_reach(decision, tasks, before)
        if failed is None:
            self._outbox.confirm(decision)
        else:
            self._outbox.refuse(decision, failed)
        self._go_on(self._waiting.pop(decision.job))

    async def _all_reach(
        self, decision: Decision, tasks: Sequence[LivePod], desired: Sequence[DesiredState]
    ) -> Refusal | None:
        """Why not all tasks are where they are wanted. Those that have ended are reported separately."""
        refusals = await asyncio.gather(
            *(
                self._reach(live, SuspensionOrder(decision.id, state))
                for live, state in zip(tasks, desired, strict=True)
            )
        )
        return next(filter(None, refusals), None)

    async def _reach(self, live: LivePod, order: SuspensionOrder) -> Refusal | None:
        grants = None if live.pod is None else SliceOrder.of(live.pod.metadata.annotations)
        if live.pod is None or grants is None:
            return Refusal(NOT_OF_AGENT, False)
        uid, live.wanted = live.pod.metadata.uid, order
        try:
            await self._api.annotate_pod(live.mark.pod, uid, order.annotation())
        except ClusterRefusedError as error:
            return error.refusal if self._is_there(live) else None
        patience_s = move_deadline_s(sum(grant.memory_mib for grant in grants.grants)) + AGENT_PATIENCE_S
        give_up_at = asyncio.get_running_loop().time() + patience_s
        while self._is_there(live):
            answer = self._answers.get(live.node, {}).get(uid)
            if answer is not None and answer.order == order:
                return Refusal(answer.refusal, answer.is_lost) if answer.refusal else None
            if asyncio.get_running_loop().time() >= give_up_at:
                return Refusal(f"the agent of node {live.node} has not answered for {patience_s:.0f} s", False)
            await self._next_news()
        return None

    def _is_there(self, live: LivePod) -> bool:
        return self._live.by_name.get(live.mark.pod) is live and live.phase is not PodPhase.OVER

    async def _next_news(self) -> None:
        """Until an agent says something; tasks that end are looked for in between."""
        news = self._news
        try:
            await asyncio.wait_for(news.wait(), LOOK_EVERY_S)
        except TimeoutError:
            return
        if self._news is news:
            self._news = asyncio.Event()


def _state_of(live: LivePod) -> DesiredState:
    order = live.wanted
    if order is None and live.pod is not None:
        order = SuspensionOrder.of(live.pod.metadata.annotations)
    return DesiredState.RUNNING if order is None else order.desired
