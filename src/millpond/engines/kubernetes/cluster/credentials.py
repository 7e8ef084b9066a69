"""What a process shows an API server, and by what it knows that one; read anew when it is no longer taken.

Tokens, certificates and whole kubeconfigs are replaced in their files while a server runs, before the old ones expire.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Final

import httpx2
import msgspec
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import NameValue, User
from lightkube.core.exceptions import ConfigError

from millpond.engines.kubernetes.cluster.access import ClusterAccess, find_config, read_kubeconfig
from millpond.model.errors import UnavailableError

_PLUGINS: Final = "client.authentication.k8s.io/"


class KubeconfigConnection(msgspec.Struct):
    """What a kubeconfig says of the way to a cluster and the library does not read.

    Attributes:
        proxy_url: empty: what the environment says.
        tls_server_name: that of the server's certificate; empty: the host of its address.
    """

    proxy_url: str = msgspec.field(name="proxy-url", default="")
    tls_server_name: str = msgspec.field(name="tls-server-name", default="")


def connection_to(config: SingleConfig) -> KubeconfigConnection:
    """The way to the cluster of a context; of a pod's own account it is straight.

    Raises:
        OSError, ValueError: the kubeconfig cannot be read.
    """
    if config.fname is None:
        return KubeconfigConnection()
    clusters = read_kubeconfig(str(config.fname))["clusters"]
    found = (each["cluster"] for each in clusters if each["name"] == config.context.cluster)
    return msgspec.convert(next(found, {}), KubeconfigConnection)


class Credentials:
    """Those of one context of a kubeconfig, or of a pod's own account. Lives on one event loop.

    Attributes:
        trust: for connections from now on.

    Raises:
        OSError, ValueError: a certificate cannot be read.
    """

    def __init__(self, config: SingleConfig) -> None:
        self._renewing = asyncio.Lock()
        self._take(config)

    def _take(self, config: SingleConfig) -> None:
        self._auth = user_auth(config.user)
        self.trust = verify_cluster(config.cluster, config.user, config.abs_file)  # type: ignore[arg-type]
        self._config = config
        self._header: Mapping[str, str] | None = None

    async def header(self, instead_of: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """The header that says who asks; all of it is read anew in place of one that is no longer taken.

        Raises:
            httpx2.TransportError: a program or a file that knows it fails.
        """
        async with self._renewing:
            try:
                if self._header is not None and self._header is instead_of:
                    self._take(_read_again(self._config))
                if self._header is None:
                    self._header = await _header_by(self._auth, self._config.cluster.server)
            except KeyError as error:
                raise httpx2.TransportError(f"the plugin of the kubeconfig gives no {error.args[0]}") from error
            except (ConfigError, UnavailableError, OSError, ValueError) as error:
                raise httpx2.TransportError(f"the credentials cannot be had: {error}") from error
            return self._header


def with_plugin(user: User | None) -> User:
    """A user whose plugin is told what to write.

    The library has it write by the older names of the format, which has not changed with its last.
    Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """
    if user is None or user.exec is None:
        return user or User()
    plugin = user.exec
    about = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = [*(plugin.env or ()), NameValue("KUBERNETES_EXEC_INFO", json.dumps(about))]
    version = f"{_PLUGINS}v1beta1" if plugin.apiVersion == f"{_PLUGINS}v1" else plugin.apiVersion
    return msgspec.structs.replace(user, exec=msgspec.structs.replace(plugin, apiVersion=version, env=env))


def _read_again(config: SingleConfig) -> SingleConfig:
    """The same context as its file has it by now; of a pod's own account the files are the same."""
    return config if config.fname is None else find_config(ClusterAccess(str(config.fname), config.context_name))


async def _header_by(auth: httpx2.Auth | None, url: str) -> Mapping[str, str]:
    """What the credentials put on a request."""
    if auth is None:
        return {}
    flow: AsyncGenerator[httpx2.Request, httpx2.Response] = auth.async_auth_flow(httpx2.Request("GET", url))
    try:
        asked = await anext(flow)
        return {"Authorization": asked.headers["Authorization"]}
    finally:
        await flow.aclose()
