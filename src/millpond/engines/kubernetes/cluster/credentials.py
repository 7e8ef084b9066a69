"""What a process shows an API server, and by what it knows that one; read anew when it is no longer taken.

Tokens, certificates and whole kubeconfigs are replaced in their files while a server runs, before the old ones expire.
Plugins may say when theirs do.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping

import httpx2
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from millpond.engines.kubernetes.cluster.credential_plugins import shown_user
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.model.errors import UnavailableError


class Credentials:
    """Those of one context of a kubeconfig, or of a pod's own account. Lives on one event loop.

    They are renewed by one task at a time, for all who need that; the others go on with what there is meanwhile.

    Attributes:
        trust: for connections from now on.

    Raises:
        OSError, ValueError: a certificate cannot be read.
    """

    def __init__(self, config: SingleConfig) -> None:
        self.trust = verify_cluster(config.cluster, config.user, config.abs_file)  # type: ignore[arg-type]
        self._config = config
        self._header: Mapping[str, str] | None = None
        self._expires_at = math.inf
        self._renewal: asyncio.Task[Mapping[str, str]] | None = None

    async def header(
        self, instead_of: Mapping[str, str] | None = None, give_up_at: float = math.inf
    ) -> Mapping[str, str]:
        """The header that says who asks; all of it is read anew where that is no longer taken, or has expired.

        Args:
            give_up_at: by the clock of the loop.

        Raises:
            httpx2.TransportError: a program or a file that knows it fails, or it is not there in time.
        """
        if self._header is not None and self._header is not instead_of and time.time() < self._expires_at:
            return self._header
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew())
            self._renewal.add_done_callback(_hear)
        renewal = self._renewal
        within_s = None if give_up_at == math.inf else give_up_at - asyncio.get_running_loop().time()
        await asyncio.wait((renewal,), timeout=within_s)
        if not renewal.done():
            raise httpx2.ConnectTimeout("the plugin of the kubeconfig has not given credentials yet")
        return renewal.result()

    async def _renew(self) -> Mapping[str, str]:
        try:
            config = self._config if self._header is None else _read_again(self._config)
            shown = await shown_user(config)
            trust = verify_cluster(config.cluster, shown.user, config.abs_file)
            header = _header_by(user_auth(shown.user), config.cluster.server)
        except (ConfigError, UnavailableError, OSError, ValueError) as error:
            raise httpx2.TransportError(f"the credentials cannot be had: {error}") from error
        self._config, self.trust, self._header = config, trust, header
        # What comes expired is of a clock that disagrees with this one: it is shown until it is no longer taken.
        self._expires_at = shown.expires_at if time.time() < shown.expires_at else math.inf
        return header

    async def aclose(self) -> None:
        """Let go of what is being renewed."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait((self._renewal,))


def _hear(renewal: asyncio.Task[Mapping[str, str]]) -> None:
    """Take a failure for heard: whoever waited for that renewal may have given up."""
    if not renewal.cancelled():
        renewal.exception()


def _read_again(config: SingleConfig) -> SingleConfig:
    """The same context as its file has it by now; of a pod's own account the files are the same."""
    return config if config.fname is None else find_config(ClusterAccess(str(config.fname), config.context_name))


def _header_by(auth: httpx2.Auth | None, url: str) -> Mapping[str, str]:
    """What the credentials put on a request."""
    if auth is None:
        return {}
    asked = next(auth.sync_auth_flow(httpx2.Request("GET", url)))
    return {"Authorization": asked.headers["Authorization"]}
