"""Which cluster, and as whom: the kubeconfig that people have, or the account of a pod."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import yaml

from millpond.engines.kubernetes.libraries import require_client
from millpond.model.errors import UnavailableError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig

_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


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
        _ = config and urlsplit(config.cluster.server).port  # raises, where that is no address
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


@dataclass(frozen=True, slots=True)
class KubeconfigConnection:
    """What a kubeconfig says of the way to a cluster and the library does not read.

    Attributes:
        proxy_url: empty: what the environment says.
        tls_server_name: that of the server's certificate; empty: the host of its address.
    """

    proxy_url: str = ""
    tls_server_name: str = ""


def connection_to(config: SingleConfig) -> KubeconfigConnection:
    """The way to the cluster of a context; of a pod's own account it is straight.

    Raises:
        OSError, ValueError: the kubeconfig cannot be read, or says something else than text.
    """
    import msgspec

    if config.fname is None:
        return KubeconfigConnection()
    said = said_of(config, "cluster", config.context.cluster)
    named = {"proxy_url": said.get("proxy-url") or "", "tls_server_name": said.get("tls-server-name") or ""}
    return msgspec.convert(named, KubeconfigConnection)


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
