"""All kubelets of a cluster whose nodes are status alone, in one process: what is bound runs, and ends when it is told.

    python -m benchmarks.kubernetes.fake_kubelets URL TOKEN KUBECONFIG LOG_PORT STATUS_EVERY_S NODES

Each node's status is written every so often, as kubelets do. (They also renew a lease each, which no scheduler looks
at, and which is left out here.) A pod that is deleted is gone at once. Lines on standard input tell the rest:
``end PREFIX`` ends the pods whose names begin so, with exit code 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from benchmarks.kubernetes.api_client import Ask
from benchmarks.lean_http import LeanConnection
from millpond.engines.kubernetes.cluster.access import api_channel
from millpond.engines.kubernetes.cluster.cluster_view import PODS
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.cluster.reflector import Reflector

CONNECTIONS = 16
_BEGAN = "2026-11-24T10:00:00Z"
_ENDED = "2026-11-24T10:00:01Z"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"


class FakeKubelets:
    """Does with pods what a kubelet does, by their status alone."""

    def __init__(self, url: str, token: str) -> None:
        self._connections = [LeanConnection(url, token) for _ in range(CONNECTIONS)]
        self._to_do: asyncio.Queue[Ask] = asyncio.Queue()
        self._running: dict[str, str] = {}
        self._over: dict[str, asyncio.Event] = {}
        self._leaving: set[str] = set()

    def changed(self, pod: PodObject) -> None:
        """What the API server says of a pod."""
        meta, path = pod.metadata, f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        if not pod.spec.node_name:
            return
        if meta.deletion_timestamp is not None:
            if meta.uid not in self._leaving:
                self._leaving.add(meta.uid)
                self._to_do.put_nowait(Ask("DELETE", f"{path}?gracePeriodSeconds=0"))
        elif pod.status.phase == "Pending" and meta.name not in self._running:
            self._running[meta.name] = path
            self._to_do.put_nowait(Ask("PATCH", f"{path}/status", _status("Running", running={"startedAt": _BEGAN})))
        elif pod.is_over:
            self._forget(meta.name)

    def deleted(self, pod: PodObject) -> None:
        """A pod is gone."""
        self._leaving.discard(pod.metadata.uid)
        self._forget(pod.metadata.name)

    def end(self, prefix: str) -> None:
        """The programs of these pods end by themselves."""
        end = {"exitCode": 0, "reason": "Completed", "startedAt": _BEGAN, "finishedAt": _ENDED}
        for name, path in self._running.items():
            if name.startswith(prefix):
                self._to_do.put_nowait(Ask("PATCH", f"{path}/status", _status("Succeeded", terminated=end)))

    async def beat(self, nodes: int, every_s: float) -> None:
        """Write the status of one node after the other, for ever."""
        while True:
            for number in range(nodes):
                beat = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}
                status = {"status": {"conditions": [beat]}}
                self._to_do.put_nowait(Ask("PATCH", f"/api/v1/nodes/node-{number:05}/status", status))
                await asyncio.sleep(every_s / nodes)

    async def work(self, connection: LeanConnection) -> None:
        """Write to the API server, for ever; what it does not take now it is asked to again."""
        while True:
            ask = await self._to_do.get()
            try:
                status, _ = await ask.by(connection)
                if status == 429 or status >= 500:
                    raise ConnectionError
            except (OSError, asyncio.IncompleteReadError):
                self._to_do.put_nowait(ask)
                await asyncio.sleep(0.5)

    async def serve_log(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The output of a pod: nothing, for as long as it runs if it is followed."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                target = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                writer.write(_HEAD)
                await writer.drain()
                pod = target.split("/")[3] if target.count("/") > 3 else ""
                if "follow=true" in target and pod in self._running:
                    over = self._over.setdefault(pod, asyncio.Event())
                    hung_up = asyncio.create_task(reader.read(1))
                    await asyncio.wait([asyncio.create_task(over.wait()), hung_up], return_when="FIRST_COMPLETED")
                    if hung_up.done():
                        break
                    hung_up.cancel()
                    await asyncio.wait([hung_up])
                writer.write(_END)
                await writer.drain()
        writer.close()

    def run(self) -> list[Any]:
        """What is to run."""
        return [self.work(connection) for connection in self._connections]

    def _forget(self, name: str) -> None:
        self._running.pop(name, None)
        if (over := self._over.pop(name, None)) is not None:
            over.set()


def _status(phase: str, **state: Any) -> dict[str, Any]:
    container = {"name": "task", "image": "none", "imageID": "", "ready": True, "restartCount": 0, "state": state}
    return {"status": {"phase": phase, "startTime": _BEGAN, "containerStatuses": [container]}}


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _lines() -> AsyncIterator[str]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().strip()


async def main(url: str, token: str, kubeconfig: str, log_port: int, every_s: float, nodes: int) -> None:
    """Be all kubelets until standard input ends."""
    kubelets = FakeKubelets(url, token)
    server = await asyncio.start_server(kubelets.serve_log, "127.0.0.1", log_port, ssl=_own_certificate(), backlog=4096)
    channel = api_channel(find_config(ClusterAccess(kubeconfig)), 0)
    follow = Reflector(channel, PODS, kubelets.changed, kubelets.deleted).run()
    tasks = [asyncio.create_task(each) for each in (*kubelets.run(), follow, kubelets.beat(nodes, every_s))]
    async for line in _lines():
        word, _, prefix = line.partition(" ")
        if word == "end":
            kubelets.end(prefix)
    for task in tasks:
        task.cancel()
    server.close()


def _own_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:
        key, certificate = f"{folder}/key.pem", f"{folder}/certificate.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kubelet", "-days", "2"]
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context.load_cert_chain(certificate, key)
    return context


if __name__ == "__main__":
    logging.getLogger("millpond").addHandler(logging.NullHandler())
    uvloop.install()
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])))
