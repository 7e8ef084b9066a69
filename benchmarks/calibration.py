"""What this machine gives right now: a rate beside which others can be read, on another machine or on a busy one."""

from __future__ import annotations

import time

STEPS = 2_000_000
TARGET_RATE = 40e6
"""The calibration for which targets are stated; a speed is scaled to that before it is held against one."""


def calibration_rate() -> float:
    """Additions a CPU second of a plain Python loop."""
    began = time.process_time()
    total = 0
    for number in range(STEPS):
        total += number & 7
    return STEPS / (time.process_time() - began)
