"""How the server of a state directory is, by its own answer."""

from __future__ import annotations

import httpx2

from millpond.client.sdk.transport.discovery import Address
from millpond.client.sdk.transport.trust import trust
from millpond.specs.api.codec import from_json
from millpond.specs.api.server import HealthInfo, ServerFile


def ask_health(left: ServerFile, within_s: float = 2.0) -> HealthInfo | None:
    """What a server answers; None where it answers nothing in that time, in seconds."""
    trusted = trust(Address(left.url, "", certificate=left.certificate))
    try:
        answer = httpx2.get(f"{left.url}/readyz", timeout=within_s, trust_env=False, verify=trusted)
        return from_json(HealthInfo, answer.content)
    except (httpx2.TransportError, ValueError):
        return None
