"""Where things are and how well they talk: levels of nearness, kinds of links, and link maps of known machines."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """Levels of the topology path, from the innermost out."""

    DEVICE = 0
    SWITCH = 1
    SOCKET = 2
    NODE = 3
    RACK = 4
    ZONE = 5
    CLUSTER = 6


class Link(IntEnum):
    """How two devices are joined, as a cost: the smaller the better.

    NVLink bonds counts the parallel links between two cards of a cube mesh; NVSWITCH joins all cards alike.
    """

    SAME = 0
    NVSWITCH = 1
    NVLINK_DOUBLE = 2
    NVLINK_SINGLE = 3
    PCIE_SWITCH = 5
    SOCKET = 8
    CROSS_SOCKET = 16


_S, _D, _N, _X = Link.SAME, Link.NVLINK_DOUBLE, Link.NVLINK_SINGLE, Link.CROSS_SOCKET

LINK_MAPS: dict[str, tuple[tuple[int, ...], ...]] = {
    # Eight V100 in a DGX-1: two quads fully meshed, each card bonded to its twin in the other quad.
    # Source: NVIDIA DGX-1 with Tesla V100 system architecture (white paper WP-08437-002), figure 4.
    "v100-cube-mesh": (
        (_S, _N, _N, _D, _D, _X, _X, _X),
        (_N, _S, _D, _N, _X, _D, _X, _X),
        (_N, _D, _S, _D, _X, _X, _N, _X),
        (_D, _N, _D, _S, _X, _X, _X, _N),
        (_D, _X, _X, _X, _S, _N, _N, _D),
        (_X, _D, _X, _X, _N, _S, _D, _N),
        (_X, _X, _N, _X, _N, _D, _S, _D),
        (_X, _X, _X, _N, _D, _N, _D, _S),
    ),
    "nvswitch-8": tuple(
        tuple(Link.SAME if row == column else Link.NVSWITCH for column in range(8)) for row in range(8)
    ),
}
"""Link cost between the devices of a node, by name of the map; a square matrix over device indices."""
