"""Where ``pond`` begins: Ctrl-C ends it at once while its modules load, and says nothing of where they were.

From then on Ctrl-C is an exception, which each command answers in its own way.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Run ``pond`` and end the process with its exit code."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # else it is ignored, as behind ``nohup``
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from millpond.client.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    run()
