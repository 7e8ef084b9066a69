"""Requests about machines and devices, and what happened and was used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from millpond.client.sdk.transport.connection import Requests, given, segment
from millpond.specs.api.server import ServerInfo

if TYPE_CHECKING:
    from millpond.specs.api.events import EventInfo
    from millpond.specs.api.pool.nodes import DeviceStatus, NodeDetail, NodeInfo, NodeList
    from millpond.specs.api.pool.overview import OverviewInfo
    from millpond.specs.api.pool.reservations import ReservationInfo
    from millpond.specs.api.reports.history import HistoryPage
    from millpond.specs.api.reports.usage import UsageList, WaitingJobList, WaitReport
    from millpond.specs.api.reports.what_if import WhatIfInfo
    from millpond.specs.api.server import AdaptationInfo, SettingsInfo

_PLAYED_WITHIN_S: Final = 90.0
"""The server gives up earlier, and says so."""


class ClusterRequests(Requests):
    """The part of a client that has the requests about the cluster."""

    def happenings(self, after: int | None = None, limit: int = 100) -> list[EventInfo]:
        """What happened to jobs and machines, oldest first: the latest, or the first behind ``seq`` of an entry."""
        from millpond.specs.api.events import EventList

        params = given(limit=limit, after=after)
        return self._ask(EventList, "GET", "/events", params=params).events

    def node_events(self, name: str, limit: int = 100) -> list[EventInfo]:
        """The latest that happened to a machine, oldest first."""
        from millpond.specs.api.events import EventList

        return self._ask(EventList, "GET", f"/nodes/{segment(name)}/events", params={"limit": limit}).events

    def nodes(self) -> list[NodeInfo]:
        """All machines of the cluster."""
        return self.node_list().nodes

    def node_list(self) -> NodeList:
        """All machines of the cluster, and how many empty ones stay on in pools that save energy."""
        from millpond.specs.api.pool.nodes import NodeList

        return self._ask(NodeList, "GET", "/nodes")

    def node(self, name: str) -> NodeDetail:
        """One machine with the figures of its devices, and how they are joined.

        Raises:
            NotFoundError: there is none of that name.
        """
        from millpond.specs.api.pool.nodes import NodeDetail

        return self._ask(NodeDetail, "GET", f"/nodes/{segment(name)}")

    def overview(self) -> OverviewInfo:
        """What is free by model, what starts next, and what holds cards without computing."""
        from millpond.specs.api.pool.overview import OverviewInfo

        return self._ask(OverviewInfo, "GET", "/overview")

    def settings(self) -> SettingsInfo:
        """The configuration that is in force, without its secrets; for admins."""
        from millpond.specs.api.server import SettingsInfo

        return self._ask(SettingsInfo, "GET", "/settings")

    def adaptation(self) -> AdaptationInfo:
        """Which policies hold, and how the server chose among them by its own past; for admins."""
        from millpond.specs.api.server import AdaptationInfo

        return self._ask(AdaptationInfo, "GET", "/adaptation")

    def reservations(self) -> list[ReservationInfo]:
        """The advance reservations of the queues of one's groups, for admins all, the first to begin first."""
        from millpond.specs.api.pool.reservations import ReservationList

        return self._ask(ReservationList, "GET", "/reservations").reservations

    def reserve(self, name: str, queue: str, cards: int, until: float, **fields: Any) -> ReservationInfo:
        """Reserve cards for the jobs of a queue, or change the reservation of this name.

        Args:
            until: when it ends, in seconds since 1970.
            fields: ``begin`` (default: now), ``pool``, ``models``, ``whole_nodes``, ``beyond_guarantee`` (for admins).

        Raises:
            NotFoundError, InvalidInputError, ConflictError: it does not fit; the remedy says from when on it does.
        """
        from millpond.specs.api.pool.reservations import ReservationInfo

        request = {"queue": queue, "cards": cards, "until": until, **fields}
        return self._ask(ReservationInfo, "PUT", f"/reservations/{segment(name)}", json=request)

    def cancel_reservation(self, name: str) -> None:
        """Give a reservation up; work on its cards goes on as any other.

        Raises:
            NotFoundError: there is none of that name.
        """
        self._connection.send("DELETE", f"/reservations/{segment(name)}")

    def devices(self, history: int = 0) -> list[DeviceStatus]:
        """All devices as they fare now, with so many earlier looks of each."""
        from millpond.specs.api.pool.nodes import DeviceList

        return self._ask(DeviceList, "GET", "/devices", params={"history": history}).devices

    def close_node(
        self,
        name: str,
        *,
        reason: str = "",
        until: float | None = None,
        drain: bool = False,
        begin: float | None = None,
        card: int | None = None,
    ) -> NodeInfo:
        """Let a machine take no new work.

        Args:
            card: its card of this number alone, until that is opened.
            until: when it opens by itself, in seconds since 1970; None: when it is opened.
            drain: preemptible work there is asked to leave.
            begin: plans it for then, and drains: work known to run into it does not start there before.

        Raises:
            NotFoundError, InvalidInputError: there is none of that name; the span makes no sense.
        """
        from millpond.specs.api.pool.nodes import NodeInfo

        request = {"reason": reason, "until": until, "drain": drain, "begin": begin} | given(card=card)
        return self._ask(NodeInfo, "POST", f"/nodes/{segment(name)}/close", json=request)

    def open_node(self, name: str, *, planned: bool = False, card: int | None = None) -> NodeInfo:
        """Let a machine take new work again.

        Args:
            card: its card of this number alone.
            planned: what is planned for it is given up too.

        Raises:
            NotFoundError, ConflictError: there is none of that name; it is open.
        """
        from millpond.specs.api.pool.nodes import NodeInfo

        return self._ask(NodeInfo, "POST", f"/nodes/{segment(name)}/open", json={"planned": planned} | given(card=card))

    def forget_node(self, name: str) -> None:
        """Know a machine no more that was switched off and does not come back.

        Raises:
            ConflictError: it is none that is switched off and gone.
        """
        self._connection.send("DELETE", f"/nodes/{segment(name)}")

    def usage(self, by: str = "user", since: float = 0.0, until: float | None = None) -> UsageList:
        """Who held how much between two instants (seconds since 1970; default: up to now).

        Args:
            by: ``user``, ``group``, ``queue``, ``model``, ``kind``, ``job`` or ``month``.
        """
        from millpond.specs.api.reports.usage import UsageList

        params = {"by": by, "since": since, **given(until=until)}
        return self._ask(UsageList, "GET", "/usage", params=params)

    def waits(self, by: str = "group", since: float = 0.0, until: float | None = None) -> WaitReport:
        """How long jobs that were submitted between two instants waited for their first start.

        Args:
            by: ``group``, ``queue`` or ``user``, besides the number of cards.
        """
        from millpond.specs.api.reports.usage import WaitReport

        params = {"by": by, "since": since, **given(until=until)}
        return self._ask(WaitReport, "GET", "/usage/waits", params=params)

    def waiting_jobs(
        self, since: float = 0.0, until: float | None = None, *, cards: str = "", limit: int = 200, **only: str
    ) -> WaitingJobList:
        """The jobs behind a row of ``waits``, those that waited longest first.

        Args:
            cards: only jobs of this size, as a row has it.
            only: ``user``, ``group``, ``queue``: those of which this is true only; an empty one: those without any.
        """
        from millpond.specs.api.reports.usage import WaitingJobList

        params = {"since": since, "cards": cards, "limit": limit, **only, **given(until=until)}
        return self._ask(WaitingJobList, "GET", "/usage/waits/jobs", params=params)

    def what_if(self, question: Mapping[str, Any]) -> WhatIfInfo:
        """What changes would do to the jobs of the server; nothing is changed. It may take a minute.

        Args:
            question: the fields of a ``WhatIfRequest``.

        Raises:
            NotFoundError, InvalidInputError: a change is about what is not there, is none, or is refused.
            ConflictError: one's last question is not answered yet.
        """
        from millpond.specs.api.reports.what_if import WhatIfInfo

        return self._ask(WhatIfInfo, "POST", "/what-if", json=dict(question), timeout=_PLAYED_WITHIN_S)

    def history(self, since: float = 0.0, until: float | None = None) -> Iterator[HistoryPage]:
        """The jobs that were submitted between two instants (seconds since 1970) and have ended, part by part."""
        from millpond.specs.api.reports.history import HistoryPage

        params = given(since=since, until=until)
        while True:
            page = self._ask(HistoryPage, "GET", "/history", params=params)
            yield page
            if not page.next:
                return
            params["after"] = page.next

    def server(self) -> ServerInfo:
        """The server itself."""
        return self._ask(ServerInfo, "GET", "/server")
