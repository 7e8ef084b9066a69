"""Programs that a kubeconfig names to be asked for credentials (``exec``).

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
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
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User, UserExec
from lightkube.core.exceptions import ConfigError

from millpond.engines.kubernetes.cluster.kubeconfig import said_of

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


class _PluginStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _PluginAnswer(msgspec.Struct):
    """What a plugin writes."""

    status: _PluginStatus = msgspec.field(default_factory=_PluginStatus)


@dataclass(frozen=True, slots=True)
class ShownUser:
    """Who asks a cluster, and what is shown for that.

    Attributes:
        expires_at: when that is to be had anew, in seconds since 1970; infinite: when it is no longer taken.
    """

    user: User
    expires_at: float = math.inf


async def shown_user(config: SingleConfig) -> ShownUser:
    """The user of a context, with what its plugin shows for it where it has one.

    Raises:
        ConfigError, OSError: it fails, or says nothing in time.
    """
    user = config.user or User()
    if user.exec is None or user.token or user.token_file:
        return ShownUser(user)
    output = await _output_of(user.exec, _told_to_plugin(config, user.exec))
    try:
        shown = msgspec.json.decode(output, type=_PluginAnswer).status
    except msgspec.DecodeError as error:
        raise ConfigError(f"what {user.exec.command} writes is no ExecCredential: {error}") from error
    if not (shown.token or shown.client_certificate_data):
        raise ConfigError(f"{user.exec.command} gives neither a token nor a certificate")
    expires_at = math.inf if shown.expiration_timestamp is None else shown.expiration_timestamp.timestamp()
    user = msgspec.structs.replace(user, exec=None, token=shown.token or None)
    if shown.client_certificate_data:
        pair = (shown.client_certificate_data, shown.client_key_data)
        certificate, key = (base64.b64encode((text or "").encode()).decode() for text in pair)
        user = msgspec.structs.replace(user, client_cert_data=certificate, client_key_data=key)
    return ShownUser(user, expires_at)


def _told_to_plugin(config: SingleConfig, plugin: UserExec) -> dict[str, Any]:
    """What a plugin is to write, and where the kubeconfig wants that, for which cluster."""
    told: dict[str, Any] = {"interactive": False}
    if said_of(config, "user", config.context.user).get("exec", {}).get("provideClusterInfo"):
        cluster = said_of(config, "cluster", config.context.cluster)
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
