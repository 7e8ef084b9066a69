"""What this machine gives right now: a rate beside which others can be read, on another machine or on a busy one.

And what a server gives its process: ``as_served``.
"""

from __future__ import annotations

import gc
import time

STEPS = 2_000_000
TARGET_RATE = 40e6
"""The calibration for which targets are stated; a speed is scaled to that before it is held against one."""
YOUNG_OBJECTS = 10_000
"""As ``server.startup.process`` has it."""


def as_served() -> None:
    """Look for garbage as a server does from its start on: not among what it has loaded, nor after each 700 objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


def calibration_rate() -> float:
    """Additions a CPU second of a plain Python loop."""
    began = time.process_time()
    total = 0
    for number in range(STEPS):
        total += number & 7
    return STEPS / (time.process_time() - began)
