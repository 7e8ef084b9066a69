"""The address at which pods reach this server, as far as it can be known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from millpond.server.operations.findings import Finding, Grade
from millpond.specs.config.cluster import ClusterConfig
from millpond.specs.config.listen import is_loopback

SERVICE: Final = "millpond"
"""The service in front of a server that runs in a pod itself (``deploy/``)."""
_ANY_URL: Final = "http://unknown.invalid:7433"
"""Stands for where a server will listen."""
_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def url_for_pods(config: ClusterConfig, own_url: str) -> str:
    """The address of this server for pods; empty where they have no way to it.

    Args:
        own_url: where it listens, as this machine reaches it.
    """
    if config.kubernetes is None:
        return ""
    if config.kubernetes.server_url:
        return config.kubernetes.server_url.rstrip("/")
    parts = urlsplit(own_url)
    if "KUBERNETES_SERVICE_HOST" in os.environ and _NAMESPACE.exists():
        return f"{parts.scheme}://{SERVICE}.{_NAMESPACE.read_text().strip()}.svc:{parts.port}"
    if config.listening.public_url:
        return config.listening.public_url
    return "" if is_loopback(parts.hostname or "") else own_url


def check_way(config: ClusterConfig) -> Finding:
    """What can be said from here on whether files can be carried into pods, and back."""
    settings, what = config.kubernetes, "way from pods"
    url = url_for_pods(config, _ANY_URL)
    if urlsplit(url).hostname == urlsplit(_ANY_URL).hostname:
        return Finding(
            what,
            Grade.LIMITED,
            "no sent folder, dataset or output is carried, unless the server listens where pods reach it (--host)",
            "set kubernetes.server_url",
        )
    if is_loopback(urlsplit(url).hostname or ""):
        said = f"{url} is each pod's own address, and not this server's"
        return Finding(what, Grade.BROKEN, said, "set kubernetes.server_url to an address that leads here from pods")
    image = (settings.helper_image if settings is not None else None) or "each job's own image, which takes python3"
    return Finding(what, Grade.OK, f"files are carried from {url} and back, in {image}; a pod alone can try it")
