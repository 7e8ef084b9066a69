"""Compiled kernels for large clusters; no request waits for the compiler.

A server starts on interpreted kernels. Where the cluster is large enough to gain, a child process compiles (or finds
that the cache on disk has it all), a thread of this process loads the result, and the scheduling thread swaps it in
between two turns. Decisions are the same either way.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Final

from millpond.model.errors import MillpondError
from millpond.scheduling.placement.kernels import compiled
from millpond.scheduling.settings import Settings
from millpond.server.runtime.loop import Loop
from millpond.simulation import kernel_warmup

log = logging.getLogger(__name__)

WORTHWHILE_NODES: Final = 64
"""Below so many nodes an interpreted cycle takes about as long as storing its events."""

COMPILED_WITHIN_S: Final = 600.0


def accelerate(loop: Loop, nodes: int, settings: Settings) -> None:
    """Begin to get compiled kernels ready for a cluster of so many nodes; returns at once."""
    if nodes >= WORTHWHILE_NODES:
        threading.Thread(target=_swap_in, args=(loop, settings), name="kernels", daemon=True).start()


def _swap_in(loop: Loop, settings: Settings) -> None:
    try:
        subprocess.run(
            [sys.executable, "-P", "-m", kernel_warmup.__name__],
            check=True,
            timeout=COMPILED_WITHIN_S,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        kernel_warmup.warm_up(settings)
        loop.query(lambda core: core.scheduler.use_kernels(compiled()))
    except (ImportError, OSError, subprocess.SubprocessError, MillpondError) as error:
        log.warning("scheduling goes on with interpreted kernels: %s", error)
    else:
        log.info("compiled kernels are in use")
