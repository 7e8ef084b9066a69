"""Where a login leads on to: a page of the portal, whatever the address of the login says."""

from __future__ import annotations

import re
from urllib.parse import unquote

from millpond.server.auth.guard import PORTAL_LOGIN, PORTAL_PREFIX


def way_back(wanted: str) -> str:
    """The page that was wanted before the login; the overview where that is none of the portal."""
    is_plain = "\\" not in wanted and wanted.isprintable()
    # A browser makes /proxy/JOB/ of /portal/../proxy/JOB/: what a job shows may look like another page to log in at.
    steps = unquote(re.split("[?#]", wanted)[0]).split("/")
    is_ours = is_plain and wanted.startswith(PORTAL_PREFIX) and not {".", ".."} & set(steps)
    return wanted if is_ours and not wanted.startswith(PORTAL_LOGIN) else PORTAL_PREFIX
