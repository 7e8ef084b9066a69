"""The section ``energy`` of the configuration, and the files that it names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.model.energy import RateMeasure, RateSeries
from millpond.model.sharing import ShareClass
from millpond.specs.config.cluster import ClusterConfig, read_cluster
from millpond.specs.errors import SpecError


def of_file(tmp_path: Path, text: str) -> ClusterConfig:
    path = tmp_path / "prices.csv"
    path.write_text(text, encoding="utf-8")
    return read_cluster(f"energy: {{price_file: {path}}}\n")


def test_a_price_is_a_number_or_a_file_and_cards_have_a_declared_power(tmp_path: Path) -> None:
    energy = read_cluster("energy: {price: 0.31, carbon: 380, cards: {X1: {idle_w: 10, busy_w: 90}}}\n").energy
    assert energy.price is not None
    assert energy.price.mean(0.0, 10.0) == (0.31, 1.0)
    assert energy.cards["X1"].drawn_w(0.5) == 50.0
    assert energy.flexible_rate == (RateMeasure.PRICE, energy.price)
    read = of_file(tmp_path, "at,value\n2026-11-26T00:00Z,0.2\n2026-11-26T02:00+01:00,\n2026-11-26T02:00Z,0.4\n").energy
    assert isinstance(read.price, RateSeries)
    assert read.price.values == (0.2, None, 0.4)


def test_a_price_may_have_hours_of_its_own_beside_the_one_of_all_others() -> None:
    hours = '[{window: "22:00-06:00", value: 0.19}, {window: {hours: "12:00-14:00", days: Sun}, value: -0.1}]'
    price = read_cluster(f"energy: {{price: {{value: 0.31, hours: {hours}}}}}\n").energy.price
    assert price is not None
    sunday = 3 * 86_400.0  # 4 January 1970
    assert [price.mean(sunday + hour * 3_600.0, sunday + hour * 3_600.0 + 60.0)[0] for hour in (1, 7, 13, 23)] == [
        0.19, 0.31, -0.1, 0.19
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("cheap", "'cheap' is no rate"),
        ("true", "true is no rate"),
        ("{hours: []}", "the field 'value' is missing"),
        ('{value: 1, hours: [{window: "25:00-26:00", value: 1}]}', "hours go from 00:00 to 24:00"),
        ('{value: 1, hours: [{window: "22:00-06:00"}]}', "the field 'value' is missing"),
        ("{value: .inf}", "inf is not a number"),
    ],
)
def test_a_wrong_price_is_refused(written: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_cluster(f"energy: {{price: {written}}}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "first line is not at,value"),
        ("at,value\n", "no line has a value"),
        ("at,value\nyesterday,1\n", "line 2: 'yesterday' is no instant"),
        ("at,value\n2026-11-26T00:00,1\n", "line 2: .* has no time zone"),
        ("at,value\n2026-11-26T00:00Z,cheap\n", "line 2: 'cheap' is no number"),
        ("at,value\n2026-11-26T00:00Z,nan\n", "line 2: 'nan' is no number"),
        ("at,value\n2026-11-26T00:00Z,1e300\n", "line 2: '1e300' is no number of at most 1,000,000"),
        ('at,value\n"' + 200_000 * "x", "its lines cannot be told apart"),
        ("at,value\n2026-11-26T01:00Z,1\n2026-11-26T00:00Z,1\n", "line 3 is not later"),
        ("at,value\n2026-11-26T00:00Z,1,2\n", "line 2 has 3 fields"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        of_file(tmp_path, text)


def test_what_others_put_in_place_of_a_file_keeps_no_server_waiting(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    os.mkfifo(path)
    with pytest.raises(SpecError, match="it is no file"):
        read_cluster(f"energy: {{price_file: {path}}}\n")
    path.unlink()
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(SpecError, match="keep it to 64 MiB"):
        read_cluster(f"energy: {{price_file: {path}}}\n")


WAKE = "wake_on_lan: {n1: '52:54:00:12:34:56'}"
SAVING = "kubernetes: {namespace: m}\npools: [{name: gold, save_energy: {off: 'x', RULE}}]\n"


def test_the_scheduler_knows_how_long_the_nodes_of_a_pool_may_boot() -> None:
    slow = read_cluster(SAVING.replace("RULE", "on: y, longest_boot: 1h")).pools[0]
    plain = read_cluster("pools: [{name: silver}]\n").pools[0]
    assert (slow.name, slow.longest_boot_s) == ("gold", 3_600)
    assert (plain.name, plain.longest_boot_s) == ("silver", 900)


def test_the_scheduler_knows_the_caps_of_a_pool_by_class() -> None:
    (pool,) = read_cluster("pools: [{power: {cap_w: 250, classes: {backfill: {cap_w: 200}, online: {}}}}]\n").pools
    assert pool.caps_w == ((ShareClass.NORMAL, 250.0), (ShareClass.BACKFILL, 200.0))


def test_a_pool_says_how_its_nodes_are_switched() -> None:
    saving = read_cluster(SAVING.replace("RULE", "wake_on_lan: {n1: '52:54:00:12:34:56'}, idle: 2m")).savings["gold"]
    assert (saving.rule.idle_s, saving.off.command, saving.on.mac_addresses) == (120, "x", {"n1": "52:54:00:12:34:56"})


def test_with_redfish_a_command_can_still_switch_nodes_off() -> None:
    redfish = "redfish: {system: 'https://$NODE-bmc/1/', user: u, password_file: /p}"
    with_off = read_cluster(SAVING.replace("RULE", redfish)).savings["gold"]
    without = read_cluster(SAVING.replace("off: 'x', RULE", redfish)).savings["gold"]
    assert (with_off.off.command, without.off.command) == ("x", "")
    assert without.off.redfish is not None
    assert with_off.on.redfish is not None
    assert (without.off.redfish.kind, with_off.on.redfish.kind) == ("GracefulShutdown", "On")
    assert with_off.on.redfish.system_of("n1") == "https://n1-bmc/1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SAVING.replace("RULE", f"on: y, {WAKE}"), "none of on, redfish and wake_on_lan, or several"),
        (SAVING.replace("RULE", "idle: 1h"), "none of on, redfish and wake_on_lan, or several"),
        (SAVING.replace("RULE", "wake_on_lan: {n1: '52:54'}"), "is no MAC address"),
        (SAVING.replace("RULE", "wake_on_lan: {}"), "use at least 1 entry"),
        (SAVING.replace("RULE", "on: y, broadcast: 10.0.0.256"), "'10.0.0.256' is no IPv4 address"),
        (SAVING.replace("RULE", "redfish: {system: 'https://bmc/1', user: u, password_file: /p}"), "of each node"),
        (SAVING.replace("RULE", "redfish: {system: 'https://u:w@$NODE/1', user: u, password_file: /p}"), "with a user"),
        (SAVING.replace("off: 'x', RULE", WAKE), "no off"),
        (SAVING.replace("RULE", "on: y, boot: 20m"), "longest_boot is shorter than boot"),
        (SAVING.replace("RULE", "on: y").splitlines()[1], "the nodes of one machine are never switched off"),
        ("energy: {price: 1, price_file: /a.csv}", "both price and price_file"),
        ("energy: {price: 1, flexible_by: carbon}", "flexible_by: carbon, and no carbon is given"),
        ("energy: {carbon_file: /does/not/exist.csv}", "cannot be read"),
        ("energy: {carbon: -1}", "-1 g of carbon"),
        ('energy: {carbon: {value: 9, hours: [{window: "12:00-14:00", value: -0.1}]}}', "-0.1 g of carbon"),
        ("energy: {cards: {X1: {idle_w: 90, busy_w: 10}}}", "exchange them"),
    ],
)
def test_a_wrong_section_is_refused_with_a_remedy(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_cluster(text + "\n")


def test_a_file_of_carbon_has_no_negative_value(tmp_path: Path) -> None:
    path = tmp_path / "carbon.csv"
    path.write_text("at,value\n2026-11-26T00:00Z,\n2026-11-26T01:00Z,-3\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"carbon\.csv: -3 g of carbon"):
        read_cluster(f"energy: {{carbon_file: {path}}}\n")
