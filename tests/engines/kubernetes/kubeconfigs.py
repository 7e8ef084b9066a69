"""Kubeconfigs as tests write them, what asks a cluster by one, and a server that has a certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from standin_cluster import NAMESPACE

from millpond.engines.kubernetes.cluster.access import api_channel
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config


def kubeconfig(folder: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": NAMESPACE}}],
                "users": [{"name": "me", "user": user}],
            }
        )
    )
    return path


def channel_by(path: Path) -> ApiChannel:
    return api_channel(find_config(ClusterAccess(str(path))), 2)


async def ask(channel: ApiChannel) -> int:
    answer = await channel.request("GET", "/version", content=b"", params={}, headers={})
    return answer.status_code


@asynccontextmanager
async def tls_server(
    own: tuple[Path, Path],
    clients: list[Path],
    takes: list[str],
    host: str = "127.0.0.1",
    asked: list[str] | None = None,
) -> AsyncIterator[int]:
    """Gives the port where it listens, and knows clients by their certificates, on each request anew.

    Args:
        takes: names of those that it takes by now; none: all.
        asked: is given the path of each request.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*own)
    for each in clients:
        context.load_verify_locations(each)
        context.verify_mode = ssl.CERT_REQUIRED

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = (writer.get_extra_info("peercert") or {}).get("subject", ())
        while line := await reader.readline():
            if asked is not None:
                asked.append(line.split()[1].decode())
            while (await reader.readline()).strip():
                pass
            is_taken = not takes or any((("commonName", name),) in shown for name in takes)
            status = b"200 OK" if is_taken else b"401 Unauthorized"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, host, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
