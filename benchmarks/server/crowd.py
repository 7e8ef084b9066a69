"""What many open portals cost a server while jobs start and end: each waits for a change and reads its page anew."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.lean_http import LeanConnection
from benchmarks.reporting import note
from benchmarks.server.served import ServedPond
from millpond.specs.api.base import API_PREFIX

PAGES: Final = ("/portal/", "/portal/jobs", "/portal/jobs", "/portal/queues", "/portal/nodes", "/portal/nodes/fake-1")
"""What people look at; each portal has one of these."""
JOBS_A_SECOND: Final = 10
WATCHED_S: Final = 30.0
SETTLE_S: Final = 5.0


@dataclass(slots=True)
class _Counts:
    pages: int = 0
    ended: int = 0


def crowded(state_dir: Path, portals: int) -> dict[str, Any]:
    """The server's share of a core with so many portals open, and with none, while jobs start and end."""
    with ServedPond(state_dir, ["--fake-gpus", "4x8:V100-32GB"]) as served:
        served.up()
        with served.client() as client:
            url, token = client.address.url, client.address.token
        without, _ = asyncio.run(_watched(served, url, token, 0))
        note(f"without a portal: {without:.1f} % of a core")
        share, counts = asyncio.run(_watched(served, url, token, portals))
    return {
        "portals": portals,
        "cpu_percent": share,
        "cpu_percent_without": without,
        "pages_a_second": counts.pages / WATCHED_S,
        "ended_a_second": counts.ended / WATCHED_S,
    }


async def _watched(served: ServedPond, url: str, token: str, portals: int) -> tuple[float, _Counts]:
    """Percent of a core, and what happened meanwhile."""
    counts = _Counts()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_portal(url, token, PAGES[n % len(PAGES)], counts)) for n in range(portals)]
        tasks.append(group.create_task(_submit(url, token)))
        await asyncio.sleep(SETTLE_S)
        counts.pages, before = 0, await _succeeded(url, token)
        begun, cpu = time.monotonic(), served.cpu_s()
        await asyncio.sleep(WATCHED_S)
        share = 100 * (served.cpu_s() - cpu) / (time.monotonic() - begun)
        counts.ended = await _succeeded(url, token) - before
        for task in tasks:
            task.cancel()
    return share, counts


async def _portal(url: str, token: str, path: str, counts: _Counts) -> None:
    """One open page: as its script does, it follows the stream and reads the page when something has changed."""
    async with LeanConnection(url, token) as stream:
        async for line in stream.lines("/portal/stream"):
            if line == b"event: changed":
                async with LeanConnection(url, token) as pages:  # the last one was closed for its silence
                    status, _ = await pages.request("GET", path)
                assert status == 200, status
                counts.pages += 1


async def _submit(url: str, token: str) -> None:
    """So many jobs a second, each of which ends at once."""
    job = {"name": "short", "gpus": 0.25, "cpus": "10m", "memory": "1MiB", "command": ["true"]}
    begun, sent = time.monotonic(), 0
    async with LeanConnection(url, token) as client:
        while True:
            await asyncio.sleep(max(begun + sent / JOBS_A_SECOND - time.monotonic(), 0.0))
            status, _ = await client.request("POST", f"{API_PREFIX}/jobs", job)
            assert status == 201, status
            sent += 1


async def _succeeded(url: str, token: str) -> int:
    """How many jobs have ended well so far."""
    async with LeanConnection(url, token) as client:
        _, body = await client.request("GET", f"{API_PREFIX}/server")
    return int(json.loads(body)["jobs"].get("succeeded", 0))
