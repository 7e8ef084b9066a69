"""How the cards of a node are joined, as its page shows it."""

from __future__ import annotations

from millpond.model.hardware.devices import Device
from millpond.model.hardware.nodes import Node
from millpond.server.views.hardware.machines import links_of


def node(places: list[tuple[int, int]], link_map: str = "") -> Node:
    """A node whose cards hang on these switches and sockets."""
    devices = tuple(
        Device(f"GPU-{index}", index, "nvidia", "V100", switch=switch, socket=socket)
        for index, (switch, socket) in enumerate(places)
    )
    return Node("n", 1, 1, devices, link_map=link_map)


def test_a_known_map_counts_before_switches_and_sockets() -> None:
    links = links_of(node([(0, 0)] * 8, "v100-cube-mesh"))
    assert links[0][:4] == ["same", "nvlink-single", "nvlink-single", "nvlink-double"]
    assert links[0][5] == "cross-socket"


def test_without_a_map_cards_are_joined_by_switch_and_socket() -> None:
    assert links_of(node([(0, 0), (0, 0), (1, 0), (2, 1)]))[0] == ["same", "pcie-switch", "socket", "cross-socket"]


def test_of_one_card_or_of_cards_without_a_place_nothing_is_said() -> None:
    assert links_of(node([(0, 0)])) == []
    assert links_of(node([(0, 0)] * 4)) == []
