"""What a process shows an API server, and by what it knows that one; read anew when it is no longer taken.

Tokens, certificates and whole kubeconfigs are replaced in their files while a server runs, before the old ones expire.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User, UserExec
from lightkube.core.exceptions import ConfigError

from millpond.engines.kubernetes.cluster.access import ClusterAccess, find_config, read_kubeconfig
from millpond.model.errors import UnavailableError

_FOR_PLUGINS: Final = "client.authentication.k8s.io/exec"
_TOLD_TO_PLUGINS: Final = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
)
PLUGIN_WITHIN_S: Final = 60.0
"""A plugin that takes longer is ended."""


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
    return msgspec.convert(_said_of(config, "cluster", config.context.cluster), KubeconfigConnection)


def _said_of(config: SingleConfig, kind: str, name: str | None) -> dict[str, Any]:
    """What a kubeconfig says of a ``cluster`` or a ``user``, all of it."""
    found = (each[kind] for each in read_kubeconfig(str(config.fname))[f"{kind}s"] if each["name"] == name)
    return next(found, {})


class _PluginStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _PluginAnswer(msgspec.Struct):
    """What a plugin writes."""

    status: _PluginStatus = msgspec.field(default_factory=_PluginStatus)


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
        self._renewal: asyncio.Task[Mapping[str, str]] | None = None

    async def header(
        self, instead_of: Mapping[str, str] | None = None, give_up_at: float = math.inf
    ) -> Mapping[str, str]:
        """The header that says who asks; all of it is read anew in place of one that is no longer taken.

        Args:
            give_up_at: by the clock of the loop.

        Raises:
            httpx2.TransportError: a program or a file that knows it fails, or it is not there in time.
        """
        if self._header is not None and self._header is not instead_of:
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
            user = await shown_user(config)
            trust = verify_cluster(config.cluster, user, config.abs_file)
            header = _header_by(user_auth(user), config.cluster.server)
        except (ConfigError, UnavailableError, OSError, ValueError) as error:
            raise httpx2.TransportError(f"the credentials cannot be had: {error}") from error
        self._config, self.trust, self._header = config, trust, header
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


async def shown_user(config: SingleConfig) -> User:
    """The user of a context, with what its plugin shows for it where it has one.

    Raises:
        ConfigError, OSError: it fails, or says nothing in time.
    """
    user = config.user or User()
    if user.exec is None or user.token or user.token_file:
        return user
    output = await _output_of(user.exec, _told_to_plugin(config, user.exec))
    try:
        shown = msgspec.json.decode(output, type=_PluginAnswer).status
    except msgspec.DecodeError as error:
        raise ConfigError(f"what {user.exec.command} writes is no ExecCredential: {error}") from error
    if not (shown.token or shown.client_certificate_data):
        raise ConfigError(f"{user.exec.command} gives neither a token nor a certificate")
    user = msgspec.structs.replace(user, exec=None, token=shown.token or None)
    if not shown.client_certificate_data:
        return user
    pair = (shown.client_certificate_data, shown.client_key_data)
    certificate, key = (base64.b64encode((text or "").encode()).decode() for text in pair)
    return msgspec.structs.replace(user, client_cert_data=certificate, client_key_data=key)


def _told_to_plugin(config: SingleConfig, plugin: UserExec) -> dict[str, Any]:
    """What a plugin is to write, and where the kubeconfig wants that, for which cluster.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """
    told: dict[str, Any] = {"interactive": False}
    if _said_of(config, "user", config.context.user).get("exec", {}).get("provideClusterInfo"):
        cluster = _said_of(config, "cluster", config.context.cluster)
        told["cluster"] = {name: cluster[name] for name in _TOLD_TO_PLUGINS if name in cluster}
        if place := cluster.get("certificate-authority"):
            told["cluster"]["certificate-authority-data"] = base64.b64encode(Path(place).read_bytes()).decode()
        for each in cluster.get("extensions") or ():
            if each["name"] == _FOR_PLUGINS:
                told["cluster"]["config"] = each["extension"]
    return {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": told}


async def _output_of(plugin: UserExec, about: Mapping[str, Any]) -> bytes:
    named = {each.name: each.value for each in plugin.env or ()}
    env = os.environ | named | {"KUBERNETES_EXEC_INFO": json.dumps(about)}
    command = (plugin.command, *(plugin.args or ()))
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(PLUGIN_WITHIN_S):
            output, errors = await process.communicate()
    except (TimeoutError, asyncio.CancelledError) as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what it has begun
        await process.wait()
        if isinstance(error, TimeoutError):
            raise ConfigError(f"{plugin.command} was ended, as it took more than {PLUGIN_WITHIN_S:g} s") from error
        raise
    if process.returncode:
        raise ConfigError(f"{plugin.command} ends with {process.returncode}: {errors.decode(errors='replace').strip()}")
    return output


def _read_again(config: SingleConfig) -> SingleConfig:
    """The same context as its file has it by now; of a pod's own account the files are the same."""
    return config if config.fname is None else find_config(ClusterAccess(str(config.fname), config.context_name))


def _header_by(auth: httpx2.Auth | None, url: str) -> Mapping[str, str]:
    """What the credentials put on a request."""
    if auth is None:
        return {}
    asked = next(auth.sync_auth_flow(httpx2.Request("GET", url)))
    return {"Authorization": asked.headers["Authorization"]}
