"""A server's REST API as Python methods: typed answers, errors as ``MillpondError``.

What few callers ask for is imported where it is asked for: making the classes of a subject's bodies takes longer than
most requests, and a command of ``pond`` needs those of one subject.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from millpond.client.sdk.resources.cluster import ClusterRequests
from millpond.client.sdk.resources.jobs import JobRequests
from millpond.client.sdk.resources.queues import QueueRequests
from millpond.client.sdk.transport.connection import ServerConnection
from millpond.client.sdk.transport.discovery import Address

if TYPE_CHECKING:
    import httpx2

    from millpond.client.sdk.resources.accounts import AccountsClient
    from millpond.client.sdk.resources.charts import ChartsClient
    from millpond.client.sdk.resources.credentials import SecretsClient, SshClient
    from millpond.client.sdk.resources.files import FilesClient
    from millpond.client.sdk.resources.images import ImagesClient
    from millpond.client.sdk.resources.inputs import Inputs
    from millpond.client.sdk.resources.notifications import NotificationsClient
    from millpond.client.sdk.resources.saved_views import SavedViewsClient
    from millpond.client.sdk.resources.services import ServicesClient
    from millpond.client.sdk.resources.webhooks import WebhooksClient


class Client(JobRequests, ClusterRequests, QueueRequests):
    """A connection to one server.

    Args:
        url, token, state_dir: which server; see ``find_server`` for what counts when they are not given.
        timeout_s: how long one answer may take.
        transport: how requests travel, for tests that carry them to a server in the same process.
        notify: called with each line of progress.

    Raises:
        UnavailableError: no server is running there.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        state_dir: Path | None = None,
        timeout_s: float = 15.0,
        transport: httpx2.BaseTransport | None = None,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(ServerConnection((url, token, state_dir), timeout_s, transport))
        self._notify = notify

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Client], tuple[str, None, Path | None, float]]:
        """A pickle has the address and no token, which is found where it is read, as for a new client."""
        return Client, self._connection.found_again_by()

    def __deepcopy__(self, _copied: dict[int, object]) -> Self:
        """A connection is shared, not copied."""
        return self

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def address(self) -> Address:
        """Where the server is."""
        return self._connection.address

    def reconnect(self) -> None:
        """Find the server anew and connect: it may have been restarted on another port.

        Raises:
            UnavailableError: no server is running.
        """
        self._connection.reconnect()

    @property
    def files(self) -> FilesClient:
        """Files to and from this server."""
        from millpond.client.sdk.resources.files import FilesClient

        return FilesClient(self._connection, self._notify)

    @property
    def inputs(self) -> Inputs:
        """Standard input of jobs."""
        from millpond.client.sdk.resources.inputs import Inputs

        return Inputs(self._connection)

    @property
    def secrets(self) -> SecretsClient:
        """Secrets of this server's jobs: set, list, remove."""
        from millpond.client.sdk.resources.credentials import SecretsClient

        return SecretsClient(self._connection)

    @property
    def services(self) -> ServicesClient:
        """Services and their revisions."""
        from millpond.client.sdk.resources.services import ServicesClient

        return ServicesClient(self._connection)

    @property
    def images(self) -> ImagesClient:
        """The server's catalogue of images."""
        from millpond.client.sdk.resources.images import ImagesClient

        return ImagesClient(self._connection, self.files)

    @property
    def accounts(self) -> AccountsClient:
        """The server's users, groups, tokens and audit log."""
        from millpond.client.sdk.resources.accounts import AccountsClient

        return AccountsClient(self._connection)

    @property
    def notifications(self) -> NotificationsClient:
        """What one is told of by mail and by chat."""
        from millpond.client.sdk.resources.notifications import NotificationsClient

        return NotificationsClient(self._connection)

    @property
    def charts(self) -> ChartsClient:
        """Training curves, and the history of the pool."""
        from millpond.client.sdk.resources.charts import ChartsClient

        return ChartsClient(self._connection)

    @property
    def saved_views(self) -> SavedViewsClient:
        """Lists of jobs that have a name."""
        from millpond.client.sdk.resources.saved_views import SavedViewsClient

        return SavedViewsClient(self._connection)

    @property
    def ssh(self) -> SshClient:
        """SSH into jobs: keys, and where the gateway is."""
        from millpond.client.sdk.resources.credentials import SshClient

        return SshClient(self._connection)

    @property
    def webhooks(self) -> WebhooksClient:
        """Other programs that are notified, and what was delivered."""
        from millpond.client.sdk.resources.webhooks import WebhooksClient

        return WebhooksClient(self._connection)
