"""The measurements, in the order in which they are made: those that may leave the card in a bad way come last."""

from __future__ import annotations

from gpu import (
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
)

_MODULES = (
    m00_probe,
    m01_context,
    m10_telemetry,
    m02_memcap,
    m03_overhead,
    m04_share,
    m05_colocate,
    m06_freeze,
    m07_ckpt,
    m09_swap,
    m13_remap,
    m08_ckpt_edges,
    m12_xid,
    m11_mps,
)

CATALOGUE = {module.MEASUREMENT.name: module.MEASUREMENT for module in _MODULES}
