"""Device memory that the kernel counts by control group (``dmem``): which cards it counts, and under what names.

A driver that registers a card's memory with the kernel has it limited like any other memory: what a group asks for
beyond its limit is refused, whichever program asks and however it was linked. Drivers of AMD and Intel cards register
theirs with the kernel's graphics layer (``drm/PCI ADDRESS/vram0``) since Linux 6.14, NVIDIA's since r615
(``nvidia/PCI ADDRESS/vidmem``).

Source: Linux documentation, admin-guide/cgroup-v2.rst, "DMEM Interface Files"; NVIDIA, Multi-Process Service, "MPS v3
Memory Partitioning".
"""

from __future__ import annotations

import re
from pathlib import Path

from millpond.node.host.cgroups import read
from millpond.node.host.controllers import CGROUPS

_CAPACITY = "dmem.capacity"
_REGION = re.compile(r"^((?:drm|nvidia)/([0-9a-fA-F:.]+)/(?:vram\d*|vidmem)) \d+$")


def regions(cgroups: Path = CGROUPS) -> dict[str, str]:
    """The kernel's name for the memory of each card, by the card's PCI address; empty where it counts none."""
    found = (
        _REGION.match(line) for root in (cgroups, cgroups / "unified") for line in read(root / _CAPACITY).splitlines()
    )
    return {pci_address(match[2]): match[1] for match in found if match is not None}


def pci_address(text: str) -> str:
    """An address as the kernel writes it; NVIDIA's library gives the domain eight digits."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]:0>4}:{rest}"
