"""Which cards may be divided while a server runs: by the configuration, the cards, and what they can have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millpond.model.hardware.devices import DeviceHealth
from millpond.node.devices.fake_layouts import FILE
from millpond.server.startup.local_engine import describe
from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError

NODES = "nodes: [{name: a, devices: 3, model: H200, device_memory: 141GiB}, {name: b, devices: 1, pool: other}]\n"
LAYOUTS = "layouts: [[7g.141gb], [3g.71gb, 3g.71gb]]"


def test_the_named_cards_of_a_pool_may_be_divided_and_all_others_stay_whole(tmp_path: Path) -> None:
    config = read_cluster(
        f"{NODES}pools: [{{name: default, mig: {{{LAYOUTS}, cards: [1], stay: 5m}}}}, {{name: other}}]"
    )
    machine = describe("", config, tmp_path)
    first, second = machine.nodes
    (divisible,) = first.divisible
    assert (divisible.card, divisible.stay_s) == ("FAKE-a-1", 300.0)
    assert [layout.text for layout in divisible.layouts] == ["1 x 7g.141gb", "2 x 3g.71gb"]
    assert [device.health for device in first.devices] == [
        DeviceHealth.OK,
        DeviceHealth.BUSY_ELSEWHERE,
        DeviceHealth.OK,
    ]
    assert second.divisible == ()
    (tmp_path / FILE).write_text(json.dumps({"FAKE-a-1": ["3g.71gb", "3g.71gb"]}))
    again = describe("", config, tmp_path).nodes[0]
    assert [device.model for device in again.devices] == ["H200", "H200-MIG-3g.71gb", "H200-MIG-3g.71gb", "H200"]
    without = describe("", read_cluster(NODES + "pools: [{name: default}, {name: other}]"), tmp_path).nodes[0]
    assert (len(without.devices), without.divisible) == (3, ())


def test_a_layout_that_cards_cannot_have_is_left_out_and_said(tmp_path: Path) -> None:
    config = read_cluster(
        f"{NODES}pools: [{{name: default, mig: {{layouts: [[9g.9gb], [7g.141gb]]}}}}, "
        f"{{name: other, mig: {{{LAYOUTS}}}}}]"
    )
    machine = describe("", config, tmp_path)
    assert [len(each.layouts) for each in machine.nodes[0].divisible] == [1, 1, 1]
    assert machine.nodes[1].divisible == ()
    notes = "\n".join(machine.notes)
    assert "a card of a cannot be divided into 9g.9gb: the card offers no MIG profile '9g.9gb'" in notes
    assert "a card of b cannot be divided into 7g.141gb: how much memory the card has is not known" in notes
    only = read_cluster(f"nodes: [{{name: b, devices: 1}}]\npools: [{{name: default, mig: {{{LAYOUTS}}}}}]")
    assert "no card may be divided while the server runs" in "\n".join(describe("", only, tmp_path).notes)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"kubernetes: {{namespace: m}}\npools: [{{name: default, mig: {{{LAYOUTS}}}}}]", "not divided by this server"),
        ("pools: [{name: default, mig: {layouts: []}}]", "layouts"),
        ("pools: [{name: default, mig: {layouts: [[]]}}]", "layouts"),
        (f"pools: [{{name: default, mig: {{{LAYOUTS}, cards: [-1]}}}}]", "cards"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, cause: str) -> None:
    with pytest.raises(SpecError, match=cause):
        read_cluster(text)
