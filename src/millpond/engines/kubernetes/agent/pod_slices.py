"""What pods are given of the cards of a node, in files of the node: the gate's, and a record of each allocation.

Everything lies under one folder of the node, at the same path in the agent's pod, so that paths mean the same to both.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from millpond.engines.kubernetes.agent.allocations import Allocation
from millpond.engines.kubernetes.agent.device_plugin import ContainerGifts, HostMount
from millpond.model.errors import UnavailableError
from millpond.model.hardware.devices import Device
from millpond.model.sharing import VISIBLE_TO_RUNTIME
from millpond.node.host.files import read_json, write_json
from millpond.node.host.machine import Machine
from millpond.node.sharing.backend import UNSLICED, EnforcementRequest, SliceUsage, TaskEnv, require_room
from millpond.node.sharing.gate_enforcer import GateEnforcer
from millpond.node.task.records import TaskId

RECORD: Final = "allocation.json"
"""By which NVIDIA's container runtime knows the cards of a container."""


class PodSlices:
    """All allocations of one node.

    Args:
        folder: absolute; for everything.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "slices"
        self._gate = GateEnforcer(folder / "gate", folder / "cards")

    def why_nothing_is_held(self) -> str:
        """Why nothing keeps tasks to parts of cards here; empty when something does. Takes seconds the first time."""
        return self._gate.why_not()

    def found(self) -> list[Allocation]:
        """What an earlier agent has given."""
        found = []
        for path in sorted(self._folder.glob(f"*/{RECORD}")):
            plain = read_json(path)
            try:
                made = msgspec.convert(plain, Allocation)
            except msgspec.ValidationError:
                continue
            found.append(made)
            self._gate.adopt(made.pod.task, path.parent, [grant.device for grant in made.pod.order.grants])
        return found

    def prepare(self, made: Allocation, machine: Machine, devices: Mapping[str, Device]) -> ContainerGifts:
        """What the container of a pod starts with. Blocks, the first time for seconds.

        Raises:
            InvalidInputError: nothing could run in such a slice.
            UnavailableError: nothing would keep it to its slice.
            OSError: the node's disk is full.
        """
        order = made.pod.order
        cards = [devices[grant.device] for grant in order.grants]
        names = ",".join(card.uuid for card in cards)
        env = {**machine.environment(cards), VISIBLE_TO_RUNTIME: names}
        folder = self._folder_of(made)
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        held = self._held(made, cards)
        write_json(folder / RECORD, msgspec.to_builtins(made), durable=True)
        mounts = tuple(HostMount(str(each.path), str(each.path), not each.writable) for each in held.mounts)
        return ContainerGifts(held.applied_to(env), mounts)

    def usage(self, made: Allocation) -> SliceUsage | None:
        """What a pod makes of its slice, by its gate; None where it has none. What it may not change is put right."""
        return self._gate.usage(made.pod.task)

    def match_driver(self, made: Allocation, driver_mib: int, usage: SliceUsage) -> None:
        """See ``SliceEnforcer``."""
        self._gate.match_driver(made.pod.task, driver_mib, usage)

    def hold_launches(self, task: TaskId, held: bool) -> None:
        """See ``SliceEnforcer``."""
        self._gate.hold_launches(task, held)

    def release(self, made: Allocation) -> None:
        """A pod is over, or never got it."""
        self._gate.release(made.pod.task)
        shutil.rmtree(self._folder_of(made), ignore_errors=True)

    def _held(self, made: Allocation, cards: Sequence[Device]) -> TaskEnv:
        order = made.pod.order
        cut = [grant for grant, card in zip(order.grants, cards, strict=True) if grant.is_part_of(card)]
        if not cut:
            return UNSLICED
        for grant, card in zip(order.grants, cards, strict=True):
            require_room(grant, card)
        if reason := self.why_nothing_is_held():
            raise UnavailableError(f"nothing would keep it to its slice: {reason}", "mend the node")
        folder = self._folder_of(made)
        return self._gate.prepare(
            EnforcementRequest(
                made.pod.task,
                folder,
                cut,
                order.share_class,
                swappable=order.swappable,
                contained=True,
                floor_milli=order.floor_milli,
            )
        )

    def _folder_of(self, made: Allocation) -> Path:
        return self._folder / f"{made.pod.uid}-{made.number}"
