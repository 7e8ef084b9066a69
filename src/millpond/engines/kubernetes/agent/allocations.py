"""Which pod's order the kubelet's calls are answered with.

The kubelet does not say for which pod it asks. The server binds one pod with an order at a time to a node, so the one
that waits and asks for as much is meant. What the kubelet shows afterwards tells whether that was right: where a pod
without an order came in between, it has taken what another was to get, which then waits again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from millpond.engines.kubernetes.cluster.cluster_nodes import SHARERS
from millpond.engines.kubernetes.pods.slice_order import SliceOrder
from millpond.model.decisions import Grant
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.resources import CARD_MILLI
from millpond.node.sharing.desired_state import DesiredState
from millpond.node.task.records import TaskId

PodKey: TypeAlias = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod of this node with an order."""

    uid: str
    key: PodKey
    order: SliceOrder

    @property
    def task(self) -> TaskId:
        """By what this node tells it from others: what a pod says of its task could be another's."""
        return TaskId(self.uid, 0, 0)


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a pod was given.

    Attributes:
        ids: the kubelet's names for it.
        number: of the allocation, from 1, of all of this agent.
        confirmed: the kubelet shows that this pod has them.
        state: whether it runs; a frozen pod holds memory of its cards alone, a swapped one nothing of them.
    """

    pod: BoundPod
    ids: frozenset[str]
    number: int
    confirmed: bool = False
    state: DesiredState = DesiredState.RUNNING

    @property
    def held(self) -> tuple[Grant, ...]:
        """What it holds of its cards now."""
        match self.state:
            case DesiredState.RUNNING:
                return self.pod.order.grants
            case DesiredState.FROZEN:
                return tuple(replace(grant, compute_milli=0) for grant in self.pod.order.grants)
            case DesiredState.SWAPPED:
                return ()


class Allocations:
    """All pods of a node that have orders, and what they were given."""

    def __init__(self, made: Iterable[Allocation] = ()) -> None:
        self.made = {each.pod.uid: each for each in made}
        self._waiting: dict[str, BoundPod] = {}
        self._numbered = max((each.number for each in self.made.values()), default=0)

    def bound(self, pod: BoundPod) -> None:
        """A pod is bound to this node."""
        if pod.uid not in self.made:
            self._waiting.setdefault(pod.uid, pod)

    def over(self, uid: str) -> Allocation | None:
        """A pod has ended, or is gone; what it had is free."""
        self._waiting.pop(uid, None)
        return self.made.pop(uid, None)

    def next_of(self, milli: int) -> BoundPod | None:
        """The pod that has waited longest of those that ask for so much; None where none does."""
        return next((pod for pod in self._waiting.values() if pod.order.milli == milli), None)

    def waiting_of(self, uids: Collection[str]) -> BoundPod | None:
        """The one of these pods that waits; None where none does."""
        return next((self._waiting[uid] for uid in uids if uid in self._waiting), None)

    def lacking(self, pod: BoundPod, devices: Mapping[str, Device]) -> str:
        """Why its order cannot be carried out now, in words; empty when it can."""
        for grant in pod.order.grants:
            device = devices.get(grant.device)
            if device is None:
                return f"this node has no card {grant.device}"
            others = [each for other in self.made.values() for each in other.held]
            beside = [each for each in others if each.device == grant.device]
            compute = sum(each.compute_milli for each in beside) + grant.compute_milli
            memory = sum(each.memory_mib for each in beside) + grant.memory_mib
            if compute > CARD_MILLI or 0 < device.memory_mib < memory:
                return f"card {grant.device} has no room for it beside {len(beside)} others"
        return ""

    def give(self, pod: BoundPod, ids: Collection[str], *, confirmed: bool = False) -> Allocation:
        """A pod gets what it waits for.

        Args:
            confirmed: the kubelet said which pod it is.
        """
        del self._waiting[pod.uid]
        self._numbered += 1
        made = self.made[pod.uid] = Allocation(pod, frozenset(ids), self._numbered, confirmed)
        return made

    def now(self, uid: str, state: DesiredState) -> None:
        """A pod has left its cards, is back, or is about to come back."""
        if uid in self.made:
            self.made[uid] = replace(self.made[uid], state=state)

    @property
    def resting_milli(self) -> int:
        """What the kubelet counts for pods that hold nothing of it."""
        return sum(len(each.ids) for each in self.made.values() if each.state is not DesiredState.RUNNING)

    def take_back(self, allocation: Allocation) -> None:
        """A pod did not get it, and waits before all others."""
        del self.made[allocation.pod.uid]
        self._waiting = {allocation.pod.uid: allocation.pod, **self._waiting}

    def compare(self, shown: Mapping[PodKey, Collection[str]]) -> Sequence[tuple[Allocation, PodKey]]:
        """What other pods have than those that were meant, and which.

        Args:
            shown: the kubelet's names for what each pod has that has not ended; those of others it may give again.
        """
        wrong = []
        for uid, made in list(self.made.items()):
            if made.confirmed:
                continue
            holder = next((key for key, ids in shown.items() if made.ids <= set(ids)), None)
            if holder == made.pod.key:
                self.made[uid] = replace(made, confirmed=True)
            elif holder is not None:
                wrong.append((made, holder))
        return wrong

    @property
    def all_confirmed(self) -> bool:
        """Whether the kubelet has shown that all was right."""
        return all(each.confirmed for each in self.made.values())


def device_names(devices: Sequence[Device], resting_milli: int) -> dict[str, bool]:
    """The kubelet's devices for these cards, by name, and whether each is well. There are many, so names are short.

    Beyond a card's thousandths there are some for slices by memory alone, which take one each; and as many as another
    card's, so that there are enough for others when pods leave their cards, which the kubelet goes on counting.

    Args:
        resting_milli: what such pods have of them already.
    """
    spare = CARD_MILLI * (1 + resting_milli // CARD_MILLI)
    return {
        f"{device.index}{'' if device.instance is None else f'.{device.instance}'}-{number}": (
            device.health is not DeviceHealth.FAULTY
        )
        for device in devices
        for number in range(CARD_MILLI + SHARERS + spare)
    }
