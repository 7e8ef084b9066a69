"""Clients of a cluster, by what a kubeconfig says of it; what of that cannot be used is said in words for users."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.engines.kubernetes.cluster.kubeconfig import connection_to
from millpond.model.errors import UnavailableError

if TYPE_CHECKING:
    import httpx2
    from lightkube.config.kubeconfig import SingleConfig

    from millpond.engines.kubernetes.cluster.api_channel import ApiChannel


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
            config = config._replace(user=asyncio.run(shown_user(config)).user)
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
    import msgspec
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
