"""Whether a replica takes requests, asked from a thread; the proxy asks by itself (``proxy.balancing``)."""

from __future__ import annotations

import socket
from typing import Final

import httpx2

from millpond.server.proxy.places import ADDRESS, Place
from millpond.specs.serving import Serve, base_path, service_of

ANSWER_WITHIN_S: Final = 2.0


class Probe:
    """Asks replicas; for one thread."""

    def __init__(self) -> None:
        # Nothing is encrypted on the way to this machine's own ports: there are no certificates to load.
        self._client = httpx2.Client(timeout=ANSWER_WITHIN_S, trust_env=False, verify=False)

    def close(self) -> None:
        """No more questions."""
        self._client.close()

    def is_ready(self, place: Place, serve: Serve) -> bool:
        """Whether a replica answers as its job file says; without a word there, whether its port takes connections."""
        if serve.ready is None:
            try:
                socket.create_connection((ADDRESS, place.port), ANSWER_WITHIN_S).close()
            except OSError:
                return False
            return True
        base = base_path(service_of(place.task.job)).rstrip("/") if serve.path == "whole" else ""
        headers = {"Authorization": f"Bearer {place.access_key}"}
        try:
            response = self._client.get(f"http://{ADDRESS}:{place.port}{base}{serve.ready}", headers=headers)
        except httpx2.TransportError:
            return False
        return response.is_success
