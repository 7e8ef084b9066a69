"""Whether a replica takes requests, asked from a thread; the proxy asks by itself (``proxy.balancing``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import httpcore2

from millpond.server.doors import UNREACHED, TaskNetworkNow
from millpond.server.proxy.balancing import question_headers
from millpond.server.proxy.places import Place
from millpond.specs.serving import Serve

ANSWER_WITHIN_S: Final = 2.0
_TIMEOUTS: Final = dict.fromkeys(("connect", "read", "write", "pool"), ANSWER_WITHIN_S)


class Probe:
    """Asks replicas; for one thread."""

    def __init__(self, state_dir: Path) -> None:
        self._pool = httpcore2.ConnectionPool(network_backend=TaskNetworkNow(state_dir))

    def close(self) -> None:
        """No more questions."""
        self._pool.close()

    def is_ready(self, place: Place, serve: Serve) -> bool:
        """Whether a replica answers as its job file says; without a word there, whether it takes connections."""
        path = serve.ready_path(place.task.job)
        if path is None:
            try:
                place.way.connect_now(ANSWER_WITHIN_S).close()
            except OSError:
                return False
            return True
        address = f"{place.way.url}{path}"
        try:
            asked = self._pool.request(
                "GET", address, headers=question_headers(place), extensions={"timeout": _TIMEOUTS}
            )
        except UNREACHED:
            return False
        return asked.status // 100 == 2
