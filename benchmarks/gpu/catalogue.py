"""The measurements, in the order in which they are made: what teaches most first.

What is true of the driver comes before how fast it is, and that before what may leave the card in a bad way. All of a
part write into one file, line by line.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu import (
    m00_probe,
    m01_context,
    m02_memcap,
    m03_overhead,
    m04_share,
    m05_colocate,
    m06_freeze,
    m07_ckpt,
    m08_ckpt_edges,
    m09_swap,
    m10_telemetry,
    m11_mps,
    m12_xid,
    m13_remap,
    m14_account,
    m15_rates,
    m16_exits,
)

_PARTS = {
    "truth": (m00_probe, m01_context, m14_account, m02_memcap, m16_exits),
    "time": (m15_rates, m04_share, m05_colocate),
    "moves": (m08_ckpt_edges, m13_remap, m07_ckpt, m09_swap),
    "more": (m03_overhead, m10_telemetry, m06_freeze, m12_xid, m11_mps),
}

CATALOGUE = {module.MEASUREMENT.name: module.MEASUREMENT for modules in _PARTS.values() for module in modules}
ON_REQUEST = frozenset(module.MEASUREMENT.name for module in _PARTS["more"])
"""Made only where they are named: ten minutes are too short for all."""


def file_of(name: str, folder: Path) -> Path:
    """Where the lines of a measurement go."""
    part = next(part for part, modules in _PARTS.items() if any(m.MEASUREMENT.name == name for m in modules))
    return folder / f"{part}.jsonl"
