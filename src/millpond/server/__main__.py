"""``python -m millpond.server``: the server as a program of its own, for running in the background."""

from __future__ import annotations

import sys

from millpond.server.process import run

sys.exit(run(sys.argv[1:]))
