"""Requests about queues: what they hold, and how they are defined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millpond.client.sdk.transport.connection import Requests, given, segment

if TYPE_CHECKING:
    from millpond.specs.api.pool.cells import CellMapInfo
    from millpond.specs.api.pool.queues import QueueDetailInfo, QueueEditInfo, QueueInfo


class QueueRequests(Requests):
    """The part of a client that has the requests about queues."""

    def queues(self) -> list[QueueInfo]:
        """The queues of one's groups, for admins all, each behind the one above it."""
        from millpond.specs.api.pool.queues import QueueList

        return self._ask(QueueList, "GET", "/queues").queues

    def queue(self, name: str) -> QueueDetailInfo:
        """A queue with its users, who has borrowed of it, and its largest waiting job.

        Raises:
            NotFoundError: there is none of this name, or it is not the caller's to see.
        """
        from millpond.specs.api.pool.queues import QueueDetailInfo

        return self._ask(QueueDetailInfo, "GET", f"/queues/{segment(name)}")

    def cells(self) -> CellMapInfo:
        """Which cards are bound to whose cells; empty while no queue is owed any."""
        from millpond.specs.api.pool.cells import CellMapInfo

        return self._ask(CellMapInfo, "GET", "/cells")

    def add_queue(self, name: str, fields: Mapping[str, Any], *, dry_run: bool = False) -> QueueEditInfo:
        """Define a queue.

        Args:
            fields: as in the configuration: ``{"parent": "org", "guarantee": 6}``.
            dry_run: it is only said what would come of it.

        Raises:
            ConflictError: there is one of this name; its parent is used and takes jobs.
            InvalidInputError: a field is wrong, or does not go together with the other queues.
        """
        from millpond.specs.api.pool.queues import QueueEditInfo

        request = {"name": name, "fields": dict(fields), "dry_run": dry_run}
        return self._ask(QueueEditInfo, "POST", "/queues", json=request)

    def change_queue(
        self, name: str, fields: Mapping[str, Any], *, version: int | None = None, dry_run: bool = False
    ) -> QueueEditInfo:
        """Change fields of a queue; what runs goes on.

        Args:
            fields: as in the configuration; those that are None are left out from now on, others stay.
            version: the version that was seen; None: whatever it is.
            dry_run: it is only said what would come of it.

        Raises:
            NotFoundError, ConflictError: there is none of this name; its version is another one.
            InvalidInputError: a field is wrong, or does not go together with the other queues.
        """
        from millpond.specs.api.pool.queues import QueueEditInfo

        request = {"fields": dict(fields), "version": version, "dry_run": dry_run}
        return self._ask(QueueEditInfo, "PATCH", f"/queues/{segment(name)}", json=request)

    def delete_queue(self, name: str, *, version: int | None = None, dry_run: bool = False) -> QueueEditInfo:
        """Delete a queue that nothing uses; arguments as for ``change_queue``.

        Raises:
            NotFoundError, ConflictError: there is none of this name; its version is another one, or it is used.
        """
        from millpond.specs.api.pool.queues import QueueEditInfo

        params = given(dry_run=dry_run, version=version)
        return self._ask(QueueEditInfo, "DELETE", f"/queues/{segment(name)}", params=params)
