"""The first release, with which upgrades begin: every database before it is refused, and a new one takes no steps."""

from __future__ import annotations

# Named after the last of the steps in which its tables came to be: a database that went through all of these is gone on
# with.
revision = "names_by_pattern"
down_revision = None
