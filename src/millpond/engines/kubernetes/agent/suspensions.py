"""What the server wants of the pods of a node that are to leave their cards, or to come back.

One step of one pod at a time; what is wanted meanwhile comes after it, and what was overtaken is left out. Everything
wanted is answered, and answered anew by each agent, as an answer lies on the pod of the agent that gave it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from millpond.engines.kubernetes.agent.allocations import Allocations
from millpond.engines.kubernetes.agent.pod_residency import PodResidency
from millpond.engines.kubernetes.pods.suspension_order import SuspensionAnswer, SuspensionOrder
from millpond.node.sharing.desired_state import DesiredState

AGAIN_S: Final = 10.0
"""Answers that the cluster has refused are given again after so long."""
_NO_CARDS: Final = "it has no card of the agent of its node"


class Suspensions:
    """All pods of one node that were ever suspended. Lives on the agent's loop.

    Args:
        say: write down all answers; False where the cluster refuses that.
    """

    def __init__(
        self, allocations: Allocations, say: Callable[[Mapping[str, SuspensionAnswer]], Coroutine[Any, Any, bool]]
    ) -> None:
        self._allocations, self._say = allocations, say
        self._orders: dict[str, SuspensionOrder] = {}
        self._answers: dict[str, SuspensionAnswer] = {}
        self._moving: set[str] = set()
        self._wanted = asyncio.Event()
        self._answered = asyncio.Event()

    def want(self, uid: str, order: SuspensionOrder) -> None:
        """A pod is to be where an order says."""
        if self._orders.get(uid) != order:
            self._orders[uid] = order
            self._wanted.set()

    def over(self, uid: str) -> None:
        """A pod has ended, or is gone."""
        self._orders.pop(uid, None)
        if self._answers.pop(uid, None) is not None:
            self._answered.set()

    async def run(self, residency: PodResidency) -> None:
        """Carry out what is wanted, for ever; begins when it is known where all pods are."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_answering())
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                for uid, order in self._orders.items():
                    answer = self._answers.get(uid)
                    if uid not in self._moving and (answer is None or answer.order != order):
                        self._moving.add(uid)
                        group.create_task(self._move(uid, order, residency))

    async def _move(self, uid: str, order: SuspensionOrder, residency: PodResidency) -> None:
        answer = await self._reached(uid, order, residency)
        self._moving.discard(uid)
        if uid in self._orders:
            self._answers[uid] = answer
            self._answered.set()
            self._wanted.set()  # there may be another by now

    async def _reached(self, uid: str, order: SuspensionOrder, residency: PodResidency) -> SuspensionAnswer:
        made = self._allocations.made.get(uid)
        if made is None:
            return SuspensionAnswer(order, _NO_CARDS)
        before = made.state
        if order.desired is DesiredState.RUNNING:
            self._allocations.now(uid, DesiredState.RUNNING)  # nobody else is to be given its room meanwhile
        result = await asyncio.to_thread(residency.reach, made, order.desired)
        self._allocations.now(uid, order.desired if result.ok else before)
        return SuspensionAnswer(order, result.reason, result.is_lost)

    async def _keep_answering(self) -> None:
        while True:
            await self._answered.wait()
            self._answered.clear()
            while not await self._say(dict(self._answers)):
                await asyncio.sleep(AGAIN_S)
