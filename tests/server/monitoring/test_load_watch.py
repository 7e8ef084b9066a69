"""How busy cards are is told where that decides anything, and seldom."""

from __future__ import annotations

import random
from functools import partial

from api_world import Api

from millpond.model.events import LoadSampled, PolicyChanged
from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceSample
from millpond.node.devices.decayed_averages import SETTLE_S
from millpond.node.devices.vendor import NO_PROCESSES, DeviceVendor, OwnProcesses
from millpond.node.host.machine import Machine
from millpond.server.monitoring.load_watch import LOOK_EVERY_S, MOST_NODES, LoadMeter, LoadSources, LoadWatch
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.startup.background_workers import held_cards

ONE = {"n": {"a": 0}}


class Cards:
    """Cards that are looked at by a meter, every ten seconds."""

    def __init__(self) -> None:
        self.meter = LoadMeter()
        self.now = 0.0

    def go_on(self, seconds: float, uses: dict[str, float], held: dict[str, dict[str, int]]) -> list[LoadSampled]:
        told = []
        for _ in range(round(seconds / LOOK_EVERY_S)):
            self.now += LOOK_EVERY_S
            told += self.meter.look(held, uses, {}, self.now)
        return told


def test_a_card_that_stays_as_it_is_is_told_once() -> None:
    (told,) = Cards().go_on(7_200.0, {"a": 400.0}, ONE)
    assert (told.node, told.load_milli, [(card.device, card.load_milli) for card in told.cards]) == (
        "n",
        400,
        [("a", 400)],
    )


def test_a_card_is_told_in_steps_while_it_becomes_busy_and_as_it_is_in_the_end() -> None:
    cards = Cards()
    cards.go_on(3_600.0, {"a": 0.0}, ONE)
    told = [event.load_milli for event in cards.go_on(3_600.0, {"a": 1_000.0}, ONE)]
    assert told == sorted(told)
    assert len(told) == 9
    assert told[-1] >= 900


def test_work_that_hardly_computes_is_told_as_measured_in_steps_of_what_it_counts_by_estimate() -> None:
    cards = Cards()
    held = {"n": {"a": 0, "b": 100}}
    cards.go_on(3_600.0, {"a": 0.0, "b": 400.0}, held)
    told = cards.go_on(3_600.0, {"a": 0.0, "b": 400.0}, {"n": {"a": 100, "b": 100}})
    helds = [card.held_milli for event in told for card in event.cards if card.device == "a"]
    assert helds == sorted(helds)
    assert 2 <= len(helds) <= 6
    assert helds[-1] >= 60


def test_of_a_node_only_the_cards_that_have_changed_are_told_with_the_mean_of_all() -> None:
    cards, held = Cards(), {"n": {"a": 0, "b": 0}}
    cards.go_on(3_600.0, {"a": 0.0, "b": 600.0}, held)
    told = cards.go_on(600.0, {"a": 400.0, "b": 600.0}, held)
    assert {card.device for event in told for card in event.cards} == {"a"}
    assert told[-1].load_milli == round((told[-1].cards[0].load_milli + 600) / 2)


def test_a_card_whose_use_is_not_known_is_not_told() -> None:
    assert Cards().go_on(600.0, {"b": 500.0}, {"n": {"a": 500}}) == []


def test_no_look_tells_of_too_many_nodes_and_those_that_have_changed_most_come_first() -> None:
    cards = Cards()
    held = {f"n{number}": {f"c{number}": 0} for number in range(MOST_NODES + 50)}
    told = cards.go_on(SETTLE_S + 10.0, dict.fromkeys((card for each in held.values() for card in each), 300.0), held)
    assert len(told) == MOST_NODES
    busier = {f"c{number}": 300.0 + number for number in range(MOST_NODES + 50)}
    told = cards.go_on(LOOK_EVERY_S, busier, held)
    assert len(told) == 50  # those that were left out


def test_bursts_of_a_minute_are_hardly_told() -> None:
    draw, cards, told = random.Random(7), Cards(), []
    for _ in range(24 * 60):
        told += cards.go_on(60.0, {"a": 1_000.0 * (draw.random() < 0.1)}, ONE)
    assert len(told) < 24 * 60 / 4


class Vendor(DeviceVendor):
    """Cards that all compute half the time."""

    name, title, experimental, sample_every_s = "nvidia", "NVIDIA", False, 1.0

    def __init__(self, cards: tuple[Device, ...]) -> None:
        self._cards = cards

    def discover(self, own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        return self._cards

    def sample(self) -> tuple[DeviceSample, ...]:
        return tuple(DeviceSample(card.uuid, 500) for card in self._cards)


def test_a_server_tells_of_its_own_cards_and_of_those_of_agents_once_a_placement_counts_load(api: Api) -> None:
    held = api.loop.query(lambda core: core.scheduler.held_cards()).result(60)
    (node, *others), uuids = held, [uuid for cards in held.values() for uuid in cards]
    assert not others
    assert len(uuids) > 1
    own = Vendor((Device(uuids[0], 0, "nvidia", "A100", 1),))
    machine = Machine((Node(node, 1, 1, own.discover()),), {"nvidia": own})
    telemetry = Telemetry(machine, api.clock)
    sources = LoadSources(partial(held_cards, api.loop), telemetry, lambda: {uuids[1]: 125})
    watch = LoadWatch(sources, api.loop.notify, api.clock)

    def go_on() -> dict[str, int]:
        for _ in range(10):
            api.clock.now += LOOK_EVERY_S
            telemetry.look(own)
            watch.look()
            api.loop.query(lambda core: None).result(60)
        plain = api.loop.query(lambda core: core.scheduler.snapshot()["loads"]).result(60)
        return {uuid: load for uuid, _, _, load in plain["cards"]}

    assert go_on() == {}
    api.loop.notify([PolicyChanged(api.clock.now, "default", "service=spread", preempt=False, reserve=True)])
    assert go_on() == {uuids[0]: 500, uuids[1]: 125}
