"""What a cluster drew, by its log alone: from events and decisions, and the declared power of cards and machines.

Every card of a machine that is there draws power, from the machine's joining until it is lost, and of one that was
switched off from the instant at which it is switched on again. A card computes with what
tasks hold of it from the confirmation of their start until they end or leave it. What it draws is shared by those that
hold it, in proportion to their parts; of an empty card it is nobody's. The rates are charged as on a server
(``model.energy``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from millpond.model import events
from millpond.model.decisions import CapPower, Decision, Migrate, Placement, Resume, Start, Suspend, SuspendMode
from millpond.model.energy import NO_ENERGY, DeclaredPower, EnergyRates, EnergySum
from millpond.model.hardware.node_power import NodePowerState
from millpond.model.hardware.nodes import Node
from millpond.model.resources import CARD_MILLI
from millpond.model.workloads import Kind
from millpond.simulation.results.card_use import SESSION_BUSY, TRAINING_BUSY
from millpond.simulation.world.power_curves import PowerCurve

BUSY: Final[Mapping[Kind, float]] = {Kind.TRAIN: TRAINING_BUSY, Kind.DEV: SESSION_BUSY, Kind.SERVICE: TRAINING_BUSY}
"""Which part of the time work of a kind computes on what it holds of a card."""

_Task = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MeteredEnergy:
    """What was drawn.

    Attributes:
        by_job: on the cards that jobs held.
        idle: by cards that nobody held.
        machines: by the machines around the cards.
        powered_gpu_s: card-seconds of all cards that drew power, of any model.
        unknown_gpu_s: those of models without a declared power.
    """

    by_job: Mapping[str, EnergySum]
    idle: EnergySum
    machines: EnergySum
    powered_gpu_s: float
    unknown_gpu_s: float

    @property
    def total(self) -> EnergySum:
        """All of it."""
        return sum((*self.by_job.values(), self.machines), self.idle)


@dataclass(slots=True)
class _Held:
    """What a task has of a card, which part of it it uses while it computes, and whether it does."""

    milli: int
    use: float
    computes: bool = False


@dataclass(slots=True)
class _Card:
    """One card of a machine that is there; ``since`` when what it draws is not charged yet."""

    model: str
    since: float
    held: dict[_Task, _Held] = field(default_factory=dict)

    @property
    def use(self) -> float:
        return min(sum(each.use for each in self.held.values() if each.computes), 1.0)


class EnergyMeter:
    """Follows a log from its beginning.

    Args:
        rates: prices, and the declared power of cards; the energy of other models is unknown.
        machine_w: what each machine draws besides its cards.
        begin: what is drawn before is not charged.
        curves: by job, what each of its cards draws at power caps, where that is known better than by the use.
        busy: by job, which part of each of its cards it keeps busy, where that is not as usual for its kind.
    """

    def __init__(
        self,
        rates: EnergyRates,
        machine_w: float = 0.0,
        begin: float = float("-inf"),
        busy: Mapping[str, float] | None = None,
        curves: Mapping[str, PowerCurve] | None = None,
    ) -> None:
        self._rates = rates
        self._machine_w = machine_w
        self._begin = begin
        self._busy = busy or {}
        self._curves = curves or {}
        self._caps_w: dict[str, float] = {}
        self._kinds: dict[str, Kind] = {}
        self._known: dict[str, Node] = {}
        self._nodes: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._cards: dict[str, _Card] = {}
        self._places: dict[_Task, Placement] = {}
        self._open: dict[int, tuple[Decision, tuple[Placement, ...]]] = {}
        self._by_job: dict[str, EnergySum] = {}
        self._idle = self._machines = NO_ENERGY
        self._powered_gpu_s = self._unknown_gpu_s = 0.0

    def happened(self, event: events.Event) -> None:
        """The next event of the log."""
        match event:
            case events.JobSubmitted(job=job):
                self._kinds[job.id] = job.kind
            case events.NodeJoined(node=node):
                self._known[node.name] = node
                self._node_comes(node, event.at, self._node_leaves(node.name, event.at))
            case events.NodePowerChanged(node=name, state=NodePowerState.BOOTING):
                self._node_comes(self._known[name], event.at)
            case events.NodePowerChanged(node=name, state=NodePowerState.FAILED):
                self._node_leaves(name, event.at)
            case events.NodeLost(node=name):
                self._node_leaves(name, event.at)
            case events.Confirmed(decision=number) if number in self._open:
                self._confirmed(*self._open.pop(number), event.at)
            case events.Refused(decision=number) if number in self._open:
                self._refused(*self._open.pop(number), event.at)
            case events.Ended(job=job, task=task):
                ended = [each for each in self._places if each[0] == job and task in (each[1], events.ALL_TASKS)]
                for each in ended:
                    self._leave(each, event.at)
                    del self._places[each]

    def decided(self, at: float, decisions: Iterable[Decision]) -> None:
        """What the cycle behind these events came to."""
        for decision in decisions:
            of_job = tuple(place for task, place in self._places.items() if task[0] == decision.job)
            match decision:
                case CapPower(job=job, cap_w=cap_w):
                    for place in of_job:
                        self._charge_task((job, place.task), at)
                    self._caps_w[job] = cap_w
                    continue
                case Start(placements=placements):
                    self._enter(decision.job, placements, at)
                case Suspend():
                    for place in of_job:
                        self._compute((decision.job, place.task), at, computes=False)
                case Resume():
                    self._enter(decision.job, of_job if decision.placement is None else (decision.placement,), at)
                case Migrate(placement=placement):
                    self._enter(decision.job, (placement,), at)
                case _:
                    continue
            self._open[decision.id] = decision, of_job

    def close(self, at: float) -> MeteredEnergy:
        """What was drawn until ``at``, the end of the log."""
        for name in list(self._nodes):
            since, cards = self._nodes[name]
            self._charge_machine(since, at)
            self._nodes[name] = at, cards
        for card in self._cards.values():
            self._charge(card, at)
        return MeteredEnergy(dict(self._by_job), self._idle, self._machines, self._powered_gpu_s, self._unknown_gpu_s)

    # ---- what is where ------------------------------------------------------------------------------------------

    def _node_comes(self, node: Node, at: float, before: Mapping[str, _Card] = {}) -> None:
        """A machine is there; one that is described anew has the work on its cards as it was."""
        self._nodes[node.name] = at, tuple(device.uuid for device in node.devices)
        for device in node.devices:
            card = before.get(device.uuid)
            self._cards[device.uuid] = _Card(device.model, at, {} if card is None else card.held)

    def _node_leaves(self, name: str, at: float) -> dict[str, _Card]:
        since, cards = self._nodes.pop(name, (at, ()))
        self._charge_machine(since, at)
        left = {uuid: self._cards.pop(uuid) for uuid in cards}
        for card in left.values():
            self._charge(card, at)
        return left

    def _enter(self, job: str, placements: Iterable[Placement], at: float) -> None:
        for place in placements:
            task = job, place.task
            self._leave(task, at)
            self._places[task] = place
            self._put(task, place, at)

    def _put(self, task: _Task, place: Placement, at: float) -> None:
        declared, usual = self._busy.get(task[0]), BUSY[self._kinds[task[0]]]
        for grant in place.grants:
            if (card := self._cards.get(grant.device)) is not None:
                self._charge(card, at)
                use = usual * grant.compute_milli / CARD_MILLI if declared is None else declared
                card.held[task] = _Held(grant.compute_milli, use)

    def _leave(self, task: _Task, at: float) -> None:
        self._charge_task(task, at)
        for card in self._cards_of(task):
            card.held.pop(task, None)
        self._caps_w.pop(task[0], None)

    def _charge_task(self, task: _Task, at: float) -> None:
        for card in self._cards_of(task):
            self._charge(card, at)

    def _compute(self, task: _Task, at: float, *, computes: bool) -> None:
        for card in self._cards_of(task):
            if task in card.held:
                self._charge(card, at)
                card.held[task].computes = computes
        if not computes:
            self._caps_w.pop(task[0], None)

    def _cards_of(self, task: _Task) -> list[_Card]:
        place = self._places.get(task)
        grants = () if place is None else place.grants
        return [card for grant in grants if (card := self._cards.get(grant.device)) is not None]

    def _confirmed(self, decision: Decision, before: tuple[Placement, ...], at: float) -> None:
        if isinstance(decision, Suspend):
            if decision.mode is SuspendMode.SWAP:
                for place in before:
                    self._leave((decision.job, place.task), at)
            return
        entered = decision.placements if isinstance(decision, Start) else ()
        for task in [each for each in self._places if each[0] == decision.job]:
            if not entered or any(place.task == task[1] for place in entered):
                self._compute(task, at, computes=True)

    def _refused(self, decision: Decision, before: tuple[Placement, ...], at: float) -> None:
        match decision:
            case Start(placements=placements):
                for place in placements:
                    self._leave((decision.job, place.task), at)
                    self._places.pop((decision.job, place.task), None)
            case Resume():
                for place in before:
                    self._leave((decision.job, place.task), at)
            case Suspend() | Migrate():
                self._enter(decision.job, before, at)
                for place in before:
                    self._compute((decision.job, place.task), at, computes=True)

    # ---- what it drew -------------------------------------------------------------------------------------------

    def _charge_machine(self, since: float, at: float) -> None:
        since = max(since, self._begin)
        if at > since and self._machine_w:
            self._machines += self._rates.charge((since, at), 0.0, 0.0, self._machine_w * (at - since))

    def _charge(self, card: _Card, at: float) -> None:
        since, card.since = max(card.since, self._begin), at
        if at <= since:
            return
        self._powered_gpu_s += at - since
        power = self._rates.cards.get(card.model)
        if power is None:
            self._unknown_gpu_s += at - since
            return
        drawn_j = self._drawn_w(card, power) * (at - since)
        if not card.held:
            self._idle += self._rates.charge((since, at), at - since, 0.0, drawn_j)
            return
        granted = sum(each.milli for each in card.held.values()) or 1
        for (job, _), each in card.held.items():
            part = each.milli / granted
            charged = self._rates.charge((since, at), (at - since) * each.milli / CARD_MILLI, 0.0, drawn_j * part)
            self._by_job[job] = self._by_job.get(job, NO_ENERGY) + charged

    def _drawn_w(self, card: _Card, power: DeclaredPower) -> float:
        """What a card draws: as the only job on it does, else by its use."""
        (job, _), held = next(iter(card.held.items())) if len(card.held) == 1 else (("", 0), None)
        curve = self._curves.get(job)
        if curve is None or held is None or not held.computes:
            return power.drawn_w(card.use)
        return curve.drawn_w(self._caps_w.get(job, 0.0))
