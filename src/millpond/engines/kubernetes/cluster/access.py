"""How a cluster is reached: the kubeconfig that people have, or the account of a pod."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from millpond.model.errors import UnavailableError

if TYPE_CHECKING:
    import httpx2
    from lightkube.config.kubeconfig import SingleConfig

    from millpond.engines.kubernetes.cluster.api_channel import ApiChannel


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
        kubeconfig: path; empty: as kubectl looks for it: a pod's own account, ``$KUBECONFIG``, ``~/.kube/config``.
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
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.core.exceptions import ConfigError
    from yaml import YAMLError

    from millpond.engines.kubernetes.cluster.credentials import with_plugin

    remedy = "name the file with kubernetes.kubeconfig, and one of its contexts with kubernetes.context"
    try:
        found = KubeConfig.from_file(access.kubeconfig) if access.kubeconfig else KubeConfig.from_env()
        config = found.get(access.context or None)
    except (ConfigError, OSError, AttributeError, KeyError, TypeError, ValueError, YAMLError) as error:
        raise UnavailableError(f"the way to the Kubernetes cluster is not known: {error}", remedy) from error
    if config is None:
        raise UnavailableError("the kubeconfig has no current context", remedy)
    return config._replace(user=with_plugin(config.user))


def api_channel(config: SingleConfig, at_once: int) -> ApiChannel:
    """A channel for many small requests, or for following the cluster. To be called on the event loop that it is for.

    Args:
        at_once: connections at the most; 0: no bound.

    Raises:
        UnavailableError: a certificate cannot be read.
    """
    from millpond.engines.kubernetes.cluster.api_channel import ApiChannel

    with _useful_credentials():
        return ApiChannel(config, at_once)


def sync_client(config: SingleConfig) -> httpx2.Client:
    """A client for a few questions, one after the other.

    Raises:
        UnavailableError: a certificate cannot be read.
    """
    from lightkube.config.client_adapter import Client, ConnectionParams

    with _useful_credentials():
        return Client(config, ConnectionParams())


@contextmanager
def _useful_credentials() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"the credentials of the cluster cannot be used: {error}", "see the kubeconfig"
        ) from error
