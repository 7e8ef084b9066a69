"""Lists of jobs that have a name, as Python methods: ``Client().saved_views.all()``."""

from __future__ import annotations

from millpond.client.sdk.transport.connection import Requests, segment
from millpond.specs.api.jobs.saved_views import SavedViewInfo, SavedViewList


class SavedViewsClient(Requests):
    """One's own saved views, and those of one's groups."""

    def all(self) -> list[SavedViewInfo]:
        """One's own, then those of one's groups."""
        return self._ask(SavedViewList, "GET", "/views").views

    def save(self, name: str, query: str, group: str = "") -> SavedViewInfo:
        """Keep the filters of a list of jobs under a name, in place of that of the same owner and name.

        Args:
            query: as behind the question mark of such a list: ``state=queued&queue=vision``.
            group: whose it is, by its lead; empty: one's own.
        """
        return self._ask(SavedViewInfo, "POST", "/views", json={"name": name, "query": query, "group": group})

    def delete(self, view: str) -> None:
        """Forget the view of this id."""
        self._connection.send("DELETE", f"/views/{segment(view)}")
