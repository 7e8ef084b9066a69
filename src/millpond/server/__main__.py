"""``python -m millpond.server``: the server as a program of its own, for running in the background."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Serve as the command line says; returns the exit code."""
    # What is imported stays: looking through it for garbage again and again is a tenth of the start.
    gc.disable()
    from millpond.server.startup.process import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
