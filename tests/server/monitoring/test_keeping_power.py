"""Caps and clocks by pool and class: set, changed, refused by the driver, and put back whatever happens."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import UnavailableError
from millpond.model.hardware.power import UNTOUCHED, PowerLimits, PowerRule, PowerSetting
from millpond.model.sharing import ShareClass
from millpond.node.devices.fake import FakePowerControl, FakeVendor
from millpond.node.host.machine import describe_machine
from millpond.server.monitoring.power_enforcement import FILE, Policy, PowerEnforcer
from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError

CARD, OTHER = "FAKE-fake-1-0", "FAKE-fake-1-1"
GENTLE = PowerRule(PowerSetting(600.0), {ShareClass.BACKFILL: PowerSetting(400.0, 1200)})


class Kept:
    """Two pretended H200 of the default pool, and a server that keeps them."""

    def __init__(self, state_dir: Path) -> None:
        self.rules: Mapping[str, PowerRule] = {}
        self.present: Mapping[str, Collection[ShareClass]] = {}
        self.caps: Mapping[str, float] = {}
        self.state_dir = state_dir
        self.machine = describe_machine("2:H200-141GB")
        vendor = self.machine.vendors["fake"]
        assert isinstance(vendor, FakeVendor)
        knobs = vendor.power()
        assert isinstance(knobs, FakePowerControl)
        self.knobs = knobs
        self.keeper = self.new_server()

    def new_server(self) -> PowerEnforcer:
        policy = Policy(lambda: self.rules, lambda: self.present, lambda: self.caps)
        self.keeper = PowerEnforcer(self.machine, policy, self.state_dir)
        return self.keeper

    def look(self, rule: PowerRule | None = None, **present: Collection[ShareClass]) -> tuple[float, int | None]:
        self.rules = {} if rule is None else {"default": rule}
        self.present = {CARD: present.get("card", ())}
        self.keeper.look()
        return self.knobs.caps_w[CARD], self.knobs.clocks_mhz.get(CARD)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_without_a_rule_nothing_is_touched(kept: Kept) -> None:
    kept.knobs.caps_w[CARD] = 500.0
    assert kept.look() == (500.0, None)
    kept.keeper.close()
    assert kept.knobs.caps_w[CARD] == 500.0
    assert not (kept.state_dir / FILE).exists()


def test_a_pool_is_capped_and_backfill_alone_on_a_card_runs_slower(kept: Kept) -> None:
    assert kept.look(GENTLE) == (600.0, None)
    assert kept.look(GENTLE, card=[ShareClass.BACKFILL]) == (400.0, 1200)
    assert kept.look(GENTLE, card=[ShareClass.BACKFILL, ShareClass.ONLINE]) == (600.0, None)
    assert kept.knobs.caps_w[OTHER] == 600.0


def test_everything_goes_back_to_what_it_was_when_the_rule_goes_or_the_server_ends(kept: Kept) -> None:
    kept.knobs.caps_w[CARD] = 650.0
    kept.look(GENTLE, card=[ShareClass.BACKFILL])
    assert kept.look() == (650.0, None)
    kept.look(GENTLE, card=[ShareClass.BACKFILL])
    kept.keeper.close()
    assert (kept.knobs.caps_w, kept.knobs.clocks_mhz) == ({CARD: 650.0, OTHER: 700.0}, {})


def test_what_a_killed_server_set_the_next_one_puts_back(kept: Kept) -> None:
    kept.look(GENTLE, card=[ShareClass.BACKFILL])
    kept.new_server()
    assert kept.look() == (700.0, None)


def test_a_clock_that_was_never_touched_is_not_put_back(kept: Kept) -> None:
    kept.knobs.clocks_mhz[CARD] = 1000
    kept.look(PowerRule(PowerSetting(400.0)))
    kept.new_server()
    assert kept.look() == (700.0, 1000)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (PowerSetting(100.0), "allows a cap of 350 to 700 W, not of 100 W"),
        (PowerSetting(900.0), "allows a cap of 350 to 700 W, not of 900 W"),
        (PowerSetting(None, 5000), "runs at 1980 MHz at the most, not at 5000 MHz"),
    ],
)
def test_what_the_driver_does_not_allow_is_said_once_and_not_tried(
    kept: Kept, caplog: pytest.LogCaptureFixture, setting: PowerSetting, said: str
) -> None:
    assert kept.look(PowerRule(setting)) == (700.0, None)
    kept.look(PowerRule(setting))
    assert [record.message for record in caplog.records if CARD in record.message and said in record.message] != []
    assert len(caplog.records) == 2  # once for each card


def test_a_driver_that_refuses_is_said_and_asked_again(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    accept, kept.knobs.cap = kept.knobs.cap, _refuse  # type: ignore[method-assign]
    assert kept.look(GENTLE) == (700.0, None)
    assert "run the server as root" in caplog.text
    kept.knobs.cap = accept  # type: ignore[method-assign]
    assert kept.look(GENTLE) == (600.0, None)


def test_the_cap_of_a_job_goes_with_it(kept: Kept) -> None:
    kept.knobs.caps_w[CARD] = 650.0
    kept.caps = {CARD: 500.0}
    assert kept.look() == (500.0, None)
    assert (kept.keeper.job_cap_w(CARD), kept.keeper.job_cap_w(OTHER)) == (500.0, 0.0)
    kept.caps = {CARD: 400.0}
    assert kept.look() == (400.0, None)
    kept.caps = {}
    assert kept.look() == (650.0, None)
    assert kept.keeper.job_cap_w(CARD) == 0.0
    assert not json.loads((kept.state_dir / FILE).read_text())


def test_the_cap_of_a_job_that_a_killed_server_set_the_next_one_puts_back(kept: Kept) -> None:
    kept.knobs.caps_w[CARD] = 650.0
    kept.caps = {CARD: 500.0}
    kept.look()
    kept.caps = {}
    kept.new_server()
    assert kept.look() == (650.0, None)


def test_a_server_that_goes_on_keeps_the_cap_of_a_job_that_still_runs_and_the_limit_from_before(kept: Kept) -> None:
    kept.knobs.caps_w[CARD] = 650.0
    kept.caps = {CARD: 500.0}
    kept.look()
    kept.new_server()
    assert kept.look() == (500.0, None)
    assert kept.keeper.job_cap_w(CARD) == 500.0
    kept.keeper.close()
    assert kept.knobs.caps_w[CARD] == 650.0


def test_of_the_caps_of_a_pool_and_of_a_job_the_lower_one_holds(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.caps = {CARD: 500.0}
    assert kept.look(GENTLE) == (500.0, None)
    assert not caplog.records
    for _ in range(2):
        assert kept.look(GENTLE, card=[ShareClass.BACKFILL]) == (400.0, 1200)
    (told,) = caplog.messages
    assert told.endswith("its pool keeps it at 400 W, below the 500 W of its job")
    assert kept.keeper.job_cap_w(CARD) == 400.0
    assert kept.knobs.caps_w[OTHER] == 600.0


def test_a_driver_that_refuses_the_cap_of_a_job_is_said_once_and_no_cap_is_claimed(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.knobs.cap = _refuse  # type: ignore[method-assign]
    kept.caps = {CARD: 500.0}
    for _ in range(3):
        assert kept.look() == (700.0, None)
    assert kept.keeper.job_cap_w(CARD) == 0.0
    assert len(caplog.records) == 1
    kept.caps = {}
    assert kept.look() == (700.0, None)


def test_without_rights_nothing_is_written_down_for_long_and_the_server_ends(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept.knobs, "cap", _refuse)
    assert kept.look(GENTLE) == (700.0, None)
    kept.keeper.close()
    assert not json.loads((kept.state_dir / FILE).read_text())
    caplog.clear()
    kept.new_server()
    assert kept.look() == (700.0, None)
    assert not caplog.records


@pytest.mark.parametrize("ends", [True, False], ids=["the server ends", "the rule goes"])
def test_a_cap_whose_clock_is_refused_is_put_back(kept: Kept, monkeypatch: pytest.MonkeyPatch, *, ends: bool) -> None:
    clock = kept.knobs.clock
    monkeypatch.setattr(kept.knobs, "clock", _refuse)
    assert kept.look(PowerRule(PowerSetting(400.0, 1200))) == (400.0, None)
    monkeypatch.setattr(kept.knobs, "clock", clock)
    if ends:
        kept.keeper.close()
    else:
        kept.look()
    assert kept.knobs.caps_w[CARD] == 700.0


def test_a_cap_that_took_hold_although_its_driver_refused_it_is_put_back(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = kept.knobs.cap

    def set_and_refuse(device: str, watts: float) -> None:
        accept(device, watts)
        _refuse(device, watts)

    monkeypatch.setattr(kept.knobs, "cap", set_and_refuse)
    kept.caps = {CARD: 500.0}
    kept.look()
    monkeypatch.setattr(kept.knobs, "cap", accept)
    kept.caps = {}
    assert kept.look() == (700.0, None)


def test_a_card_that_lost_its_setting_in_a_reset_gets_it_again(kept: Kept) -> None:
    busy = {"card": [ShareClass.BACKFILL]}
    kept.look(GENTLE, **busy)
    kept.knobs.caps_w[CARD] = 700.0
    kept.knobs.clocks_mhz.clear()
    assert kept.look(GENTLE, **busy) == (400.0, 1200)


def test_a_card_whose_present_cap_is_unknown_is_not_capped_as_that_could_not_be_put_back(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept.knobs, "limits", lambda device: PowerLimits(None, 350.0, 700.0, 1980))
    assert kept.look(GENTLE) == (700.0, None)
    assert "its driver does not say what it is kept to now" in caplog.text


def test_a_card_that_is_lost_while_it_is_capped_is_put_back_by_the_next_server(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.look(GENTLE)
    with monkeypatch.context() as lost:
        lost.setattr(kept.knobs, "limits", lambda device: PowerLimits())
        lost.setattr(kept.knobs, "cap", _refuse)
        kept.look(GENTLE)
        kept.keeper.close()
    kept.new_server()
    assert kept.look() == (700.0, None)


def test_a_driver_that_does_not_answer_does_not_keep_the_server_from_its_end(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, released = Event(), Event()

    def hang(device: str, watts: float) -> None:
        asked.set()
        assert released.wait(60)

    monkeypatch.setattr(kept.knobs, "cap", hang)
    monkeypatch.setattr(kept.keeper._worker, "close", partial(kept.keeper._worker.close, 0.01))
    kept.rules = {"default": GENTLE}
    kept.keeper.start()
    assert asked.wait(60)
    try:
        kept.keeper.close()
        assert "the driver does not answer" in caplog.text
        assert json.loads((kept.state_dir / FILE).read_text())
    finally:
        released.set()


def _refuse(device: str, value: float | None) -> None:
    raise UnavailableError("the driver does not let it be set", "run the server as root")


SETTINGS = st.builds(
    PowerSetting, st.none() | st.sampled_from([350.0, 500.0, 700.0, 9.0]), st.none() | st.sampled_from([900, 1500])
)
RULES = st.none() | st.builds(PowerRule, SETTINGS, st.dictionaries(st.sampled_from(ShareClass), SETTINGS))


@pytest.mark.long
@given(steps=st.lists(st.tuples(RULES, st.sets(st.sampled_from(ShareClass)), st.booleans()), max_size=12))
def test_whatever_happened_between_all_is_as_it_was_at_the_end(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[PowerRule | None, set[ShareClass], bool]]
) -> None:
    kept = Kept(tmp_path_factory.mktemp("state"))
    kept.knobs.caps_w[CARD] = 620.0
    for rule, present, killed in steps:
        if killed:
            kept.new_server()
        kept.look(rule, card=present)
    kept.new_server().close()
    assert (kept.knobs.caps_w, kept.knobs.clocks_mhz) == ({CARD: 620.0, OTHER: 700.0}, {})


def test_the_configuration_says_it_by_pool() -> None:
    text = (
        "pools:\n- {name: slow, power: {cap_w: 500, classes: {backfill: {cap_w: 300, clock_mhz: 1200}}}}\n- {name: a}\n"
    )
    assert read_cluster(text).power == {
        "slow": PowerRule(PowerSetting(500.0), {ShareClass.BACKFILL: PowerSetting(300.0, 1200)})
    }
    assert PowerRule().setting([ShareClass.ONLINE]) == UNTOUCHED
    with pytest.raises(SpecError, match="cap_w"):
        read_cluster("pools:\n- {name: a, power: {cap_w: 0}}\n")
