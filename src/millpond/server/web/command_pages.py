"""Which page does what a command does: texts of the server name commands, and pages lead to each other instead."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

COMMAND_PAGES: Final = (
    (r"pond ps --members ([a-z0-9]\S*)", "/portal/jobs?members=", "Members"),
    (r"pond ps\b.*", "/portal/jobs?all=true", "Jobs"),
    (r"pond stop --queue ([A-Za-z0-9]\S*)", "/portal/jobs?queue=", "Jobs"),
    (r"pond (?:dev open|logs|resume|stop|why) ([a-z0-9]\S*)", "/portal/jobs/", "Job"),
    (r"pond clone ([a-z0-9]\S*)(?: --set .*)?", "/portal/submit?from=", "Clone"),
    (r"pond submit", "/portal/submit", "Submit"),
    (r"pond nodes cordon ([a-z0-9]\S*)", "/portal/nodes/", "Node"),
    (r"pond nodes\b.*", "/portal/nodes", "Nodes"),
    (r"pond queue (?:set|show) ([A-Za-z0-9]\S*)", "/portal/queues/", "Queue"),
    (r"pond queue show", "/portal/queues", "Queues"),
    (r"pond reservations\b.*", "/portal/reservations", "Reservations"),
    (r"pond user ls", "/portal/admin/users", "Users"),
    (r"pond group (?:invite|ls)\b.*", "/portal/admin/groups", "Groups"),
    (r"pond token (?:ls|revoke)", "/portal/admin/tokens", "Tokens"),
    (r"pond webhooks\b.*", "/portal/admin/webhooks", "Webhooks"),
    (r"pond notify\b.*", "/portal/notifications", "Notifications"),
    (r"pond whoami", "/portal/", "Overview"),
)
"""Of each command, the address of the page and what it is called there, in English: both are followed by what the
command names. The first that fits counts; for browsers too, whose expressions are of the same kind."""
_PAGES: Final = [(re.compile(command), address, title) for command, address, title in COMMAND_PAGES]


def page_of(command: str) -> tuple[str, str, str] | None:
    """The address of the page, its title, and what of it the command names; None where no page does it."""
    for pattern, address, title in _PAGES:
        if found := pattern.fullmatch(command):
            named = "".join(found.groups())
            return address + quote(named, safe=""), title, named
    return None
