"""``--fake-gpus``: what it accepts, what it pretends, what it says when it cannot be read."""

from __future__ import annotations

import pytest

from millpond.model.errors import InvalidInputError
from millpond.node.devices.fake import FakeGroup, FakeVendor, Tenant, fake_nodes, parse_fake_gpus


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("8:A100-80GB", (FakeGroup(1, 8, "A100", 81920),)),
        ("4x8:V100-32GB", (FakeGroup(4, 8, "V100", 32768),)),
        ("2:RTX-3090-24GB", (FakeGroup(1, 2, "RTX-3090", 24576),)),
        ("4x8:V100-32GB, 1x16:H100-80GiB", (FakeGroup(4, 8, "V100", 32768), FakeGroup(1, 16, "H100", 81920))),
    ],
)
def test_nodes_cards_model_and_memory_are_read(text: str, groups: tuple[FakeGroup, ...]) -> None:
    assert parse_fake_gpus(text) == groups


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        ("eight", "'eight' cannot be read", "NODESxCARDS:MODEL-MEMORY"),
        ("", "'' cannot be read", "4x8:V100-32GB"),
        ("8:V100-32GB,", "in '8:V100-32GB,' cannot be read", "joined by commas"),
        ("8:V100", "lack the card's memory", "V100-32GB"),
        ("-1x8:V100-32GB", "cannot be read", "NODESxCARDS"),
        ("0x8:V100-32GB", "0 nodes", "at least 1"),
        ("4x0:V100-32GB", "0 cards", "at least 1"),
        ("8:V100-0GB", "0 GiB per card", "at least 1"),
        ("400000x8:V100-32GB", "3200000 fake GPUs", "at most 65536"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_remedy(text: str, cause: str, remedy: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_fake_gpus(text)
    assert cause in caught.value.cause
    assert remedy in caught.value.remedy


def test_nodes_are_numbered_through_all_groups_and_cards_say_that_they_are_fake() -> None:
    nodes = fake_nodes("2x1:T4-16GB,1x8:V100-32GB")
    assert [node.name for node in nodes] == ["fake-1", "fake-2", "fake-3"]
    assert nodes[2].devices[3].uuid == "FAKE-fake-3-3"
    assert all(device.fake for node in nodes for device in node.devices)
    assert len({device.uuid for node in nodes for device in node.devices}) == 10


def test_eight_v100_are_joined_as_a_cube_mesh_and_other_counts_are_not() -> None:
    eight, four = fake_nodes("8:V100-32GB,4:V100-32GB")
    assert (eight.link_map, four.link_map) == ("v100-cube-mesh", "")


def test_a_pretended_node_is_as_large_as_its_cards_deserve() -> None:
    small, large = fake_nodes("1:V100-32GB,8:V100-32GB")
    assert large.cpu_milli == 8 * small.cpu_milli
    assert large.memory_mib == 8 * small.memory_mib


def test_a_program_is_told_its_fake_cards_and_sees_no_real_ones() -> None:
    nodes = fake_nodes("4:V100-32GB")
    environment = FakeVendor(nodes).environment(nodes[0].devices[1:3])
    assert environment == {"CUDA_VISIBLE_DEVICES": "", "MILLPOND_FAKE_DEVICES": "FAKE-fake-1-1,FAKE-fake-1-2"}


def test_pretended_cards_compute_and_draw_as_their_tenants_pretend() -> None:
    nodes = fake_nodes("3:H200-141GB")
    now = [100.0]
    vendor = FakeVendor(nodes, lambda: now[0])
    vendor.tenants = lambda: [
        Tenant("FAKE-fake-1-0", 700, 40_000),
        Tenant("FAKE-fake-1-0", 600, 20_000),
        Tenant("FAKE-fake-1-1", 0, 10_000),
        Tenant("elsewhere", 1000, 1),
    ]
    vendor.sample()
    now[0] += 10.0
    busy, parked, bare = vendor.sample()
    assert [(s.use_milli, s.memory_used_mib) for s in (busy, parked, bare)] == [(1000, 60_000), (0, 10_000), (0, 0)]
    assert (busy.power_w, bare.power_w) == (700.0, 74.0)
    assert parked.power_w is not None
    assert 74.0 + 26.0 <= parked.power_w <= 74.0 + 50.0
    assert (busy.energy_j, bare.energy_j) == (7000.0, 740.0)
    assert (busy.temperature_c, busy.processes) == (None, None)
