"""How a cluster is reached: the kubeconfig that people have, or the account of a pod."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.model.errors import UnavailableError

if TYPE_CHECKING:
    import httpx2
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig

    from millpond.engines.kubernetes.cluster.api_channel import ApiChannel

_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def require_client() -> None:
    """Whether the client library is installed.

    Raises:
        UnavailableError: it is not.
    """
    if any(find_spec(name) is None for name in ("lightkube", "aiohttp")):
        raise UnavailableError("the client for Kubernetes is not installed", "pip install 'millpond[kubernetes]'")


def require_agent_libraries() -> None:
    """Whether what the agent of a node needs is installed.

    Raises:
        UnavailableError: it is not.
    """
    if any(find_spec(name) is None for name in ("lightkube", "aiohttp", "grpclib")):
        raise UnavailableError("what the agent of a node needs is not installed", "pip install 'millpond[agent]'")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Which cluster, as whom, and where in it.

    Attributes:
        kubeconfig: path, or several joined by ``:``; empty: as kubectl looks for it: a pod's own account,
            ``$KUBECONFIG``, ``~/.kube/config``.
        context: of that file; empty: its current one.
        namespace: where pods are made; empty: the context's.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""


def find_config(access: ClusterAccess) -> SingleConfig:
    """The server's address and credentials.

    Raises:
        UnavailableError: there is no such file or context, or the library is not installed.
    """
    require_client()
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError

    remedy = "name the file with kubernetes.kubeconfig, and one of its contexts with kubernetes.context"
    try:
        config = _contexts(access.kubeconfig).get(access.context or None)
    except (ConfigError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnavailableError(f"the way to the Kubernetes cluster is not known: {error}", remedy) from error
    if config is None:
        raise UnavailableError("the kubeconfig has no current context", remedy)
    return config._replace(user=config.user or User())


def _contexts(places: str) -> KubeConfig:
    from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, KubeConfig
    from lightkube.core.exceptions import ConfigError

    if not places:
        with suppress(ConfigError):
            return KubeConfig.from_service_account()
    places = places or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    return KubeConfig.from_dict(read_kubeconfig(places), places)


def read_kubeconfig(places: str) -> dict[str, Any]:
    """A kubeconfig, its files named by whole paths; of several that are joined by ``:``, all that they say.

    Where two say something of one name, the first counts; those that are not there are passed over.
    Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files

    Raises:
        ConfigError: none is there, or one is no YAML.
        OSError, ValueError: one cannot be read.
    """
    import yaml
    from lightkube.core.exceptions import ConfigError

    files = [path for place in places.split(os.pathsep) if place and (path := Path(place).expanduser()).is_file()]
    if not files:
        raise ConfigError(f"there is no file {places}")
    merged: dict[str, Any] = {"current-context": None, "clusters": {}, "contexts": {}, "users": {}}
    for path in files:
        try:
            said = yaml.safe_load(path.read_text()) or {}
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is no YAML: {error}") from error
        merged["current-context"] = merged["current-context"] or said.get("current-context")
        for kind in ("clusters", "contexts", "users"):
            for each in said.get(kind) or ():
                _name_whole(each.get(kind.removesuffix("s")) or {}, path.absolute().parent)
                merged[kind].setdefault(each["name"], each)
    return {kind: list(found.values()) if isinstance(found, dict) else found for kind, found in merged.items()}


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
    return msgspec.convert(said_of(config, "cluster", config.context.cluster), KubeconfigConnection)


def said_of(config: SingleConfig, kind: str, name: str | None) -> dict[str, Any]:
    """What a kubeconfig says of a ``cluster`` or a ``user``, all of it."""
    found = (each[kind] for each in read_kubeconfig(str(config.fname))[f"{kind}s"] if each["name"] == name)
    return next(found, {})


def _name_whole(said: dict[str, Any], folder: Path) -> None:
    """Files that a part of a kubeconfig names are looked for beside it; a plugin is, where its path has folders."""
    for name in _PATHS:
        if said.get(name):
            said[name] = str(folder / said[name])
    plugin = said.get("exec") or {}
    if os.sep in plugin.get("command", ""):
        plugin["command"] = str(folder / plugin["command"])


def api_channel(config: SingleConfig, at_once: int) -> ApiChannel:
    """A channel for many small requests, or for following the cluster. To be called on the event loop that it is for.

    Args:
        at_once: connections at the most; 0: no bound.

    Raises:
        UnavailableError: a certificate cannot be read.
    """
    from millpond.engines.kubernetes.cluster.api_channel import ApiChannel

    with _useful_credentials(config):
        return ApiChannel(config, at_once)


def sync_client(config: SingleConfig) -> httpx2.Client:
    """A client for a few questions, one after the other.

    Raises:
        UnavailableError: a certificate cannot be read, or a plugin fails.
    """
    from lightkube.config.client_adapter import Client, ConnectionParams

    from millpond.engines.kubernetes.cluster.credential_plugins import shown_user

    with _useful_credentials(config):
        named = connection_to(config)
        if config.user is not None and config.user.exec is not None:
            config = config._replace(user=asyncio.run(shown_user(config)))
        client = Client(config, ConnectionParams(proxy=named.proxy_url or None))
    if name := named.tls_server_name:
        client.event_hooks = {"request": [lambda request: request.extensions.update(sni_hostname=name)]}
    return client


def read_json(client: httpx2.Client, path: str) -> Any:
    """What a cluster has at a path.

    Raises:
        httpx2.HTTPStatusError: it answers with an error.
        UnavailableError: it does not answer, or not as a cluster does, or the credentials cannot be had.
    """
    import httpx2
    from lightkube.core.exceptions import ConfigError

    try:
        answer = client.get(path)
        answer.raise_for_status()
        return msgspec.json.decode(answer.content)
    except httpx2.HTTPStatusError:
        raise
    except msgspec.DecodeError as error:
        remedy = "check the address in the kubeconfig, and what stands between"
        begins = answer.text[:80]
        raise UnavailableError(f"{answer.url} is answered with no JSON, but: {begins}", remedy) from error
    except (httpx2.HTTPError, OSError) as error:
        remedy = "check the kubeconfig: the address, the certificate authority, and programs that it calls"
        raise UnavailableError(f"{client.base_url} does not answer: {error}", remedy) from error
    except ConfigError as error:  # of a file with a token
        raise UnavailableError(f"the credentials cannot be had: {error}", "see `users` in the kubeconfig") from error


@contextmanager
def _useful_credentials(config: SingleConfig) -> Iterator[None]:
    from lightkube.core.exceptions import ConfigError

    try:
        yield
    except ConfigError as error:
        raise UnavailableError(f"the credentials cannot be had: {error}", "see `users` in the kubeconfig") from error
    except (OSError, ValueError) as error:
        absent = ", ".join(name for name in _files_of(config) if not Path(config.abs_file(name)).is_file())
        why = f"there is no file {absent}" if absent else str(error)
        raise UnavailableError(f"the credentials of the cluster cannot be used: {why}", "see the kubeconfig") from error


def _files_of(config: SingleConfig) -> Iterator[str]:
    """Those that a kubeconfig names."""
    user = config.user
    names = (config.cluster.certificate_auth, *((user.client_cert, user.client_key) if user is not None else ()))
    yield from filter(None, names)
