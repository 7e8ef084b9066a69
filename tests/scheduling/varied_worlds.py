"""Dense random worlds with cards of several models, cards that are divided, and jobs that choose nodes and space tasks.

As in ``dense_worlds``, all on few cards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dense_worlds import DenseWorld
from worlds import machine

from millpond.model import events
from millpond.model.hardware.card_layouts import CardLayout, DivisibleCard, LayoutChangeState
from millpond.model.hardware.devices import Device
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.topology import Level
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.tenancy.tenants import Queue
from millpond.model.workloads import Job
from millpond.scheduling.nodes.layout_planner import in_layout

HOST, RACK = "host", "rack"
MODELS = ("A100", "T4")


def _layout(name: str, count: int, memory_mib: int) -> CardLayout:
    devices = tuple(Device("", 0, "nvidia", f"A100-MIG-{name}", memory_mib) for _ in range(count))
    return CardLayout((name,) * count, devices)


WHOLE, HALVES = _layout("7g", 1, 16_000), _layout("3g", 2, 8_000)


class VariedWorld(DenseWorld):
    """One world and its random course."""

    def __init__(self, seed: int, share_of_twins: float) -> None:
        self._divides = seed % 4 == 3
        super().__init__(seed, share_of_twins)

    def _node(self, number: int) -> Node:
        draws, plain = self.draws, super()._node(number)
        model = MODELS[number % 2] if draws.random() < 0.7 else MODELS[0]
        node = machine(
            plain.name,
            self.cards,
            model=model,
            swap_mib=plain.swap_mib,
            rack_name=plain.rack_name,
            labels=((HOST, plain.name), (RACK, plain.rack_name)),
        )
        if self._divides and model == "A100":
            divisible = tuple(DivisibleCard(card.uuid, (WHOLE, HALVES), 300.0) for card in node.devices)
            node = replace(node, divisible=divisible)
            for card in divisible:
                node = in_layout(node, (card.card,), draws.choice((WHOLE, HALVES)))
        return node

    def _queue(self, queue: Queue) -> Queue:
        draws, milli = self.draws, queue.guarantee.gpu_milli
        if queue.cells or not milli or self._divides or draws.random() < 0.6:
            return queue
        return replace(queue, guarantee=replace(queue.guarantee, models=((draws.choice(MODELS), milli),)))

    def _job(self) -> Job:
        draws, job = self.draws, super()._job()
        level = draws.choice((Level.CLUSTER, Level.CLUSTER, Level.CLUSTER, Level.NODE, Level.RACK))
        role = job.roles[0]
        models = draws.choice(((), (), (MODELS[0],), (MODELS[1],), MODELS))
        if self._divides:
            models = draws.choice(((), ("A100-MIG-7g",), ("A100-MIG-3g",)))
        role = replace(role, request=replace(role.request, models=models))
        spacing = self._spacing(role.name) if role.maximum > 1 and draws.random() < 0.4 else ()
        job = replace(job, roles=(role,), only_on=self._only_on(), spacing=spacing)
        if spacing or level is Level.CLUSTER:
            return job
        return replace(job, together=level, together_required=draws.random() < 0.5)

    def _only_on(self) -> NodeSelection:
        draws = self.draws
        if draws.random() < 0.7:
            return ()
        key, values = draws.choice(((HOST, ("n0",)), (HOST, ("n1", "n2")), (RACK, ("r0",)), (RACK, ("r1",))))
        return ((NodeRequirement(key, draws.choice((NodeOperator.IN, NodeOperator.NOT_IN)), values),),)

    def _spacing(self, role: str) -> tuple[SpacingRule, ...]:
        draws = self.draws
        kind, label = draws.choice(list(SpacingKind)), draws.choice((HOST, RACK))
        others = () if kind is SpacingKind.TOGETHER else (role,)
        empty = len({dict(node.labels)[label] for node in self.nodes}) if kind is SpacingKind.EVEN else 0
        return (SpacingRule(kind, label, (role,), others, empty=empty),)

    # ---- cards that are divided -----------------------------------------------------------------------------

    def _configure(self) -> None:
        if self._divides and self.draws.random() < 0.5:
            self._divide()
        else:
            super()._configure()

    def _divide(self) -> None:
        """A card is divided for a job that waits, or that fails; what it is then its node says by joining."""
        world = self.world
        step = world.core.layout_step(world.now)
        if step is None:
            return

        def told(state: LayoutChangeState) -> Callable[[], None]:
            change = events.CardLayoutChanged(
                world.now, step.node, step.card, state, step.layout.instances, step.for_job
            )
            return lambda: world.tell(change)

        told(LayoutChangeState.CHANGING)()
        world.settle()
        if self.draws.random() < 0.2:
            told(LayoutChangeState.FAILED)()
            return
        number = next(place for place, node in enumerate(self.nodes) if node.name == step.node)
        divided = in_layout(self.nodes[number], (step.card,), step.layout)
        self.nodes[number] = divided
        world.tell(events.NodeJoined(world.now, divided))
        told(LayoutChangeState.DONE)()
