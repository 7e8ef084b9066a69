"""``pond top``: devices with their figures, tasks below them, dashes for what nobody knows, within 80 columns."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from millpond.client.cli.commands.cluster.top import device_lines, fitted
from millpond.specs.api.pool.nodes import DeviceStatus, SamplePoint, SliceStatus

SLICE = SliceStatus(
    job="resnet50-abcde", attempt=1, task=0, role="worker", user="ada", state="running", share_class="backfill",
    hold="gate", compute_milli=250, limit_milli=500, memory_mib=8_192, use_milli=123, memory_used_mib=8_100,
    swapped_mib=0,
)  # fmt: skip
DEVICE = DeviceStatus(
    node="n1", pool="default", uuid="GPU-0", index=3, vendor="nvidia", model="H200", memory_mib=143_771, health="ok",
    latest=SamplePoint(at=1.0, use_milli=730, memory_used_mib=12_288, power_w=412.5, temperature_c=61),
    slices=[SLICE],
)  # fmt: skip
BARE = DeviceStatus(
    node="a-node-with-a-long-name", pool="default", uuid="NPU-1", index=1, instance=2, vendor="ascend",
    model="Ascend910B3-of-some-kind", memory_mib=0, health="faulty", health_detail="it fell off the bus",
    experimental=True, slices=[SliceStatus(job="a job of another group", attempt=1, task=12, role="", user="",
    state="frozen", share_class="normal", compute_milli=1000, limit_milli=1000, memory_mib=0)],
)  # fmt: skip


def test_a_device_stands_above_the_tasks_that_share_it() -> None:
    summary, titles, device, part = device_lines([DEVICE], 80)
    assert summary == "1 device, 73 % in use, 412 W, 1 task on them"
    assert titles.split() == [
        "DEVICE",
        "/",
        "TASK",
        "MODEL",
        "CLASS",
        "SHARE%",
        "USE%",
        "GIB",
        "SWAP",
        "W",
        "C",
        "STATE",
    ]
    assert device.split() == ["n1", "3", "H200", "73", "12/140", "412", "61", "ok"]
    assert part.split() == ["resne…0-abcde/0", "ada", "backfill", "25-50", "12", "7.9/8", "0", "running"]


@pytest.mark.parametrize(("power", "shown"), [("off", "off"), ("booting", "booting"), ("draining", "ok")])
def test_a_device_of_a_node_that_is_not_there_is_not_said_to_be_ok(power: str, shown: str) -> None:
    assert device_lines([replace(DEVICE, power=power)], 80)[2].split()[-1] == shown


def test_what_nobody_knows_is_a_dash() -> None:
    device, part = device_lines([BARE], 80)[2:]
    assert device.split() == ["a-node-…-name", "1.2", "Ascend91…", "-", "-", "-", "-", "faulty…"]
    assert part.split()[-7:] == ["-", "normal", "100", "-", "-", "-", "frozen"]


def test_nothing_is_wider_than_eighty_columns_and_figures_stand_below_each_other() -> None:
    lines = device_lines([DEVICE, BARE], 80)[1:]
    assert max(map(len, lines)) <= 80
    assert {line[44:48].strip() for line in lines} == {"USE%", "73", "12", "-"}


def test_a_wide_terminal_gives_its_width_to_names_and_states() -> None:
    assert "  resnet50-abcde/0 " in device_lines([DEVICE], 100)[3]
    assert device_lines([BARE], 160)[2].endswith("faulty: it fell off the bus experimental")


def test_what_does_not_fit_a_terminal_is_counted() -> None:
    assert fitted(["a", "b", "c"], 3) == ["a", "b", "c"]
    assert fitted(["a", "b", "c", "d"], 3) == ["a", "b", "... 2 more lines; a higher window shows them"]


def test_the_figures_come_as_json(server, run_pond) -> None:
    server.will(200, {"devices": [asdict(DEVICE)]})
    code, out, _ = run_pond("top", "-o", "json")
    assert code == 0
    assert json.loads(out)["devices"][0]["latest"]["power_w"] == 412.5


def test_where_there_is_no_terminal_it_is_shown_once(server, run_pond) -> None:
    server.will(200, {"devices": []})
    assert run_pond("top")[1].startswith("no devices on these machines; pond doctor")


def test_ctrl_c_ends_a_live_view_quietly(server, run_pond, monkeypatch) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    server.will(200, {"devices": [asdict(DEVICE)]})
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("millpond.client.cli.commands.cluster.top.time.sleep", interrupted)
    code, out, err = run_pond("top", "--watch", "5")
    assert (code, err) == (0, "")
    assert "H200" in out
