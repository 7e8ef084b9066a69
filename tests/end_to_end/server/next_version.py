"""``pond`` of a version to come: it says so, and its scheduler would decide otherwise than the installed one."""

from __future__ import annotations

from millpond.client.cli.main import main
from millpond.scheduling.cycle import job_placement
from millpond.server import version

version.VERSION = "99.0"  # type: ignore[misc]
job_placement._SCORERS["default"] = job_placement._SCORERS["random"]

if __name__ == "__main__":
    main()
