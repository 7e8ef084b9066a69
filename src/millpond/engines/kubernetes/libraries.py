"""The optional libraries that a cluster takes: whether they are installed is asked before anything imports them."""

from __future__ import annotations

from importlib.util import find_spec

from millpond.model.errors import UnavailableError


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
