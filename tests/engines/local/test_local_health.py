"""Devices that become busy, faulty, or well again while the server runs."""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from local_bench import LONGEST_WAIT_S, Bench, eventually

from millpond.engines.local import executor, health
from millpond.engines.local.health import QUIET_S, HealthListener, HealthWatch
from millpond.model.decisions import Grant, Placement, Start
from millpond.model.errors import UnavailableError
from millpond.model.events import Confirmed, DeviceHealthChanged, DeviceReported, Ended, Noted, Refused
from millpond.model.hardware.devices import Device, DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import FaultScope, HealthEvent
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.devices.failed_devices import FailedDevices
from millpond.node.devices.vendor import NO_PROCESSES, Availability, OwnProcesses
from millpond.node.host.machine import Machine

CARD = Device("GPU-0", 0, "nvidia", "A100", 81920)


class Reports(queue.SimpleQueue[HealthEvent]):
    """What a driver has reported and no listener has taken yet."""

    def wait(self, timeout_s: float) -> tuple[HealthEvent, ...]:
        try:
            return (self.get(timeout=timeout_s),)
        except queue.Empty:
            return ()


class OneCard:
    """A vendor whose only card is as the test says."""

    name = title = "nvidia"

    def __init__(self) -> None:
        self.card: Device | None = CARD

    def available(self) -> Availability:
        return Availability(True, "1 found")

    def discover(self, own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        return () if self.card is None else (self.card,)

    def watch(self) -> None:
        return None

    def environment(self, devices: Sequence[Device]) -> dict[str, str]:
        return {}


class Watched:
    """A node with one card, and what was reported of it."""

    def __init__(self, own: Callable[[], OwnProcesses] = lambda: NO_PROCESSES) -> None:
        self.vendor = OneCard()
        self.defects: list[BaseException] = []
        self.reports: list[tuple[str, DeviceHealth]] = []
        self.for_person: list[str] = []
        self.erred: list[tuple[str, str, bool]] = []
        self.now = 0.0
        machine = Machine((Node("box", 1000, 1024, (CARD,)),), {"nvidia": self.vendor})
        self.watch = HealthWatch(
            machine,
            own,
            HealthListener(
                self.changed,
                lambda node, device, text, is_of_program: self.erred.append((device.uuid, text, is_of_program)),
                self.defects.append,
            ),
            lambda: self.now,
        )

    def changed(self, node: str, device: Device, needs_person: bool) -> None:
        self.reports.append((node, device.health))
        if needs_person:
            self.for_person.append(device.health_detail)

    def look(self, card: Device | None) -> list[tuple[str, DeviceHealth]]:
        self.vendor.card = card
        self.reports.clear()
        self.watch.look()
        return list(self.reports)


BUSY = replace(CARD, health=DeviceHealth.BUSY_ELSEWHERE, health_detail="used by process 7")


def test_a_card_is_busy_elsewhere_when_two_looks_in_a_row_find_it_so() -> None:
    watched = Watched()
    assert watched.look(BUSY) == []
    assert watched.look(BUSY) == [("box", DeviceHealth.BUSY_ELSEWHERE)]
    assert watched.watch.nodes[0].devices[0].health_detail == "used by process 7"
    assert watched.look(CARD) == [("box", DeviceHealth.OK)]


def test_who_asks_about_a_card_is_answered_by_the_look_that_makes_sure() -> None:
    watched, answers = Watched(), list[list[str]]()

    def ask() -> None:
        watched.watch.ask({"GPU-0"}, lambda used: answers.append([device.health_detail for device in used]))

    ask()
    assert answers == []
    watched.look(CARD)
    assert answers == [[]]
    watched.now = 10.0
    ask()
    watched.look(BUSY)
    ask()
    assert answers == [[]]
    watched.look(BUSY)
    assert answers == [[], ["used by process 7"], ["used by process 7"]]


def test_a_burst_of_questions_is_answered_by_one_look_and_by_what_was_seen_just_now() -> None:
    looks: list[float] = []

    def own() -> OwnProcesses:
        looks.append(watched.now)
        return NO_PROCESSES

    watched, answers = Watched(own), list[int]()
    for _ in range(100):
        watched.watch.ask({"GPU-0"}, lambda used: answers.append(len(used)))
    watched.look(CARD)
    watched.now = 0.4
    watched.watch.ask({"GPU-0"}, lambda used: answers.append(len(used)))
    assert (looks, answers) == ([0.0], [0] * 101)
    watched.now = 0.6
    watched.watch.ask({"GPU-0"}, lambda used: answers.append(len(used)))
    assert len(answers) == 101


def test_a_look_that_fails_answers_that_nothing_is_known_against_the_card() -> None:
    answers: list[int] = []

    def own() -> OwnProcesses:
        raise OSError(errno.EMFILE, "Too many open files")

    watched = Watched(own)
    watched.watch.ask({"GPU-0"}, lambda used: answers.append(len(used)))
    with pytest.raises(OSError, match="Too many"):
        watched.watch.look()
    assert answers == [0]


def test_a_card_to_which_a_foreign_process_came_a_moment_ago_is_not_handed_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_SURE_AFTER_S", 0.01)
    _with_a_real_card(bench, BUSY)
    bench.define("one", ("true",))
    start = Start(bench.next_id(), "one", 1, Cause.FITS, (ON_THE_CARD,))
    bench.apply(start)
    seen, refused = bench.events(2)
    assert isinstance(seen, DeviceHealthChanged)
    assert seen.health is DeviceHealth.BUSY_ELSEWHERE
    assert isinstance(refused, Refused)
    assert refused.device_fault
    assert refused.reason == "others have come to what it was to get: card 0 is used by process 7"


@pytest.mark.parametrize("hangs", [False, True])
def test_a_start_on_a_card_without_foreign_processes_goes_on_and_does_not_wait_for_a_driver_that_hangs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    vendor, over = _with_a_real_card(bench, CARD), threading.Event()
    if hangs:
        monkeypatch.setattr(executor, "_CARDS_LOOKED_AT_WITHIN_S", 0.01)

        def hanging(own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
            over.wait(LONGEST_WAIT_S)
            return (BUSY,)

        vendor.discover = hanging  # type: ignore[method-assign]
    bench.define("one", ("true",))
    bench.apply(Start(bench.next_id(), "one", 1, Cause.FITS, (ON_THE_CARD,)))
    confirmed, ended = bench.events(2)
    over.set()
    assert isinstance(confirmed, Confirmed)
    assert isinstance(ended, Ended)
    assert ended.outcome is Outcome.SUCCESS


ON_THE_CARD = Placement(0, "worker", "box", (Grant("GPU-0", 1000, 1000, 0),))


def _with_a_real_card(bench: Bench, as_seen: Device) -> OneCard:
    """The bench's engine anew, on a machine with one card that is well, and will be seen so."""
    vendor = OneCard()
    vendor.card = as_seen
    bench.machine = Machine((Node("box", 1000, 1024, (CARD,)),), {"nvidia": vendor})
    bench.restart()
    return vendor


def test_a_foreign_process_seen_for_a_moment_is_no_news() -> None:
    watched = Watched()
    assert [watched.look(card) for card in (BUSY, CARD, BUSY, CARD)] == [[], [], [], []]


def test_a_card_that_vanishes_is_faulty_until_it_is_back() -> None:
    watched = Watched()
    assert watched.look(None) == [("box", DeviceHealth.FAULTY)]
    assert watched.look(None) == []
    assert watched.look(CARD) == [("box", DeviceHealth.OK)]


def test_a_fault_of_the_device_stays_for_an_hour_if_nothing_shows_a_reset() -> None:
    watched = Watched()
    watched.watch.take(HealthEvent("GPU-0", FaultScope.DEVICE, "XID 79"))
    assert watched.reports == [("box", DeviceHealth.FAULTY)]
    assert watched.watch.nodes[0].devices[0].health_detail == "XID 79"
    assert watched.look(CARD) == []
    assert watched.watch.nodes[0].devices[0].health is DeviceHealth.FAULTY

    watched.now = QUIET_S - 1.0
    assert watched.look(CARD) == []
    watched.now = QUIET_S
    assert watched.look(CARD) == [("box", DeviceHealth.OK)]


SICK = replace(CARD, health=DeviceHealth.FAULTY, health_detail="the driver wants it reset")


@pytest.mark.parametrize("meanwhile", [None, SICK])
def test_a_faulty_card_that_was_away_or_complained_of_and_is_so_no_longer_was_reset(meanwhile: Device | None) -> None:
    watched = Watched()
    watched.watch.take(HealthEvent("GPU-0", FaultScope.DEVICE, "XID 79"))
    watched.now = QUIET_S + 1.0
    assert watched.look(meanwhile) == []
    watched.now += 10.0
    assert watched.look(CARD) == [("box", DeviceHealth.OK)]


def test_each_further_fault_begins_the_hour_anew() -> None:
    watched = Watched()
    for watched.now in (0.0, QUIET_S - 1.0):
        watched.watch.take(HealthEvent("GPU-0", FaultScope.DEVICE, "XID 119"))
    watched.now = QUIET_S + 10.0
    assert watched.look(CARD) == []


def test_a_fault_that_no_reset_mends_is_said_even_of_a_card_that_is_faulty_already() -> None:
    watched = Watched()
    watched.watch.take(HealthEvent("GPU-0", FaultScope.DEVICE, "XID 48"))
    assert watched.for_person == []
    for _ in range(2):
        watched.watch.take(HealthEvent("GPU-0", FaultScope.PERSON, "XID 64"))
    assert watched.for_person == ["XID 64"]


def test_a_fault_of_a_program_leaves_the_card_in_use_and_is_told_once_a_minute() -> None:
    watched = Watched()
    for watched.now in (0.0, 1.0, 59.0, 61.0):
        watched.watch.take(HealthEvent("GPU-0", FaultScope.TASK, "XID 31"))
    assert watched.erred == [("GPU-0", "XID 31", True)] * 2
    assert watched.reports == []
    assert watched.watch.nodes[0].devices[0].health is DeviceHealth.OK


def test_what_needs_no_answer_is_told_and_changes_nothing() -> None:
    watched = Watched()
    watched.watch.take(HealthEvent("GPU-0", FaultScope.NOTE, "XID 63"))
    assert (watched.reports, watched.erred) == ([], [("GPU-0", "XID 63", False)])


def test_what_is_about_no_device_of_the_pool_changes_nothing() -> None:
    watched = Watched()
    watched.watch.take(HealthEvent("", FaultScope.DEVICE, "XID 79"))
    watched.watch.take(HealthEvent("GPU-9", FaultScope.DEVICE, "XID 79"))
    assert (watched.reports, watched.erred) == ([], [])


def test_a_fault_of_a_card_takes_all_instances_that_were_cut_out_of_it() -> None:
    watched = Watched()
    part = replace(CARD, uuid="MIG-1", parent="GPU-7", instance=0)
    watched.watch = HealthWatch(
        Machine((Node("box", 1000, 1024, (CARD, part)),), {"nvidia": watched.vendor}),
        lambda: NO_PROCESSES,
        HealthListener(
            lambda node, device, needs_person: watched.reports.append((device.uuid, device.health)),
            lambda node, device, text, is_of_program: None,
            lambda error: None,
        ),
    )
    watched.watch.take(HealthEvent("GPU-7", FaultScope.DEVICE, "XID 48"))
    assert watched.reports == [("MIG-1", DeviceHealth.FAULTY)]


def test_a_vendor_that_cannot_tell_now_leaves_its_cards_as_they_are() -> None:
    watched = Watched()

    def hangs(own: OwnProcesses = NO_PROCESSES) -> tuple[Device, ...]:
        raise UnavailableError("the tool does not answer")

    watched.vendor.discover = hangs  # type: ignore[method-assign]
    watched.watch.look()
    assert watched.reports == []
    assert watched.watch.nodes[0].devices == (CARD,)


def test_jobs_on_a_card_that_fails_are_told_which_and_why_before_the_scheduler_is(bench: Bench) -> None:
    bench.start("one", ("sleep", "60"))
    bench.events(1)
    bench.engine._health.take(HealthEvent("FAKE-fake-1-0", FaultScope.DEVICE, "it fell off the bus"))
    told, changed = bench.events(2)
    assert isinstance(told, Noted)
    assert (told.job, told.text) == ("one", "card 0 of fake-1 has failed: it fell off the bus")
    assert isinstance(changed, DeviceHealthChanged)
    assert changed.health is DeviceHealth.FAULTY
    assert FailedDevices(bench.state_dir).noted() == {"FAKE-fake-1-0": told.text}


def test_a_fault_of_a_program_stands_in_the_history_of_the_jobs_on_the_card(bench: Bench) -> None:
    bench.start("one", ("sleep", "60"))
    bench.events(1)
    for card in ("FAKE-fake-1-0", "FAKE-fake-1-1"):
        bench.engine._health.take(HealthEvent(card, FaultScope.TASK, "XID 31"))
    told, *reported = bench.events(3)
    assert isinstance(told, Noted)
    assert told.text == "card 0 of fake-1 reports XID 31; the program's fault, not the card's"
    assert [(event.device, event.text) for event in reported if isinstance(event, DeviceReported)] == [
        (card, "XID 31; the program's fault, not the card's") for card in ("FAKE-fake-1-0", "FAKE-fake-1-1")
    ]


def test_looks_go_on_after_one_for_which_too_many_files_were_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_LOOK_EVERY_S", 0.01)
    fails = iter([OSError(errno.EMFILE, "Too many open files")])

    def own() -> OwnProcesses:
        for error in fails:
            raise error
        return NO_PROCESSES

    watched = Watched(own)
    watched.vendor.card = None
    watched.watch.start()
    assert eventually(lambda: watched.reports == [("box", DeviceHealth.FAULTY)])
    assert watched.defects == []
    watched.watch.close()


def test_what_a_driver_reports_is_heard_while_the_watch_is_open() -> None:
    watched, reports = Watched(), Reports()
    watched.vendor.watch = lambda: reports  # type: ignore[attr-defined]
    watched.watch.start()
    reports.put(HealthEvent("GPU-0", FaultScope.DEVICE, "XID 79"))
    assert eventually(lambda: watched.reports == [("box", DeviceHealth.FAULTY)])
    watched.watch.close()


def test_a_driver_that_will_report_no_more_leaves_the_regular_looks() -> None:
    class Ending:
        def wait(self, timeout_s: float) -> tuple[HealthEvent, ...]:
            ended.set()
            raise UnavailableError("the driver reports no more faults")

    watched, ended = Watched(), threading.Event()
    watched.vendor.watch = Ending  # type: ignore[attr-defined]
    watched.watch.start()
    assert ended.wait(60.0)
    assert watched.look(None) == [("box", DeviceHealth.FAULTY)]
    watched.watch.close()
