"""The output of pods, copied to where that of local tasks lies: what shows logs finds it, whatever becomes of the pod.

Lines come with the time at which they were written. After a cut, or a restart of the server, the cluster is asked for
those since the second of the last one, and what was copied already is left out. Kubernetes does not say which stream a
line was written to: all count as standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx2

from millpond.engines.kubernetes.pod_template import CONTAINER
from millpond.node.host.files import write_all
from millpond.node.task.output import MARK_EVERY_US, Mark, Stream
from millpond.node.task.records import TaskFiles

log = logging.getLogger(__name__)

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.3, 3.0
_NOT_THERE: Final = frozenset({400, 404})
"""The container does not run yet, or the pod is gone."""


class LogFile:
    """A task's log on the server, with its index, and how far it has come.

    Attributes:
        last: the time of the last line that was copied, in nanoseconds since 1970; 0: none was.
        count: lines with that time.
    """

    def __init__(self, files: TaskFiles) -> None:
        files.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._log = os.open(files.log, flags, 0o600)
        self._index = os.open(files.log_index, flags, 0o600)
        self._place = files.log.with_suffix(".copied")
        self.last, self.count = _place_in(self._place)
        self._marked_us = 0

    def take(self, lines: list[bytes]) -> None:
        """Append lines as the cluster sends them, each behind its time."""
        for line in lines:
            stamp, _, text = line.partition(b" ")
            at = _instant(stamp)
            if not at:
                continue  # the kubelet's own words, on a container that is gone
            self.count = self.count + 1 if at == self.last else 1
            self.last = at
            with contextlib.suppress(OSError):  # what a full disk has no room for is lost, as of local tasks
                self._mark(at // 1000)
                write_all(self._log, text)
        with contextlib.suppress(OSError):
            self._place.write_text(json.dumps([self.last, self.count]))

    def close(self) -> None:
        """Nothing more comes."""
        os.close(self._log)
        os.close(self._index)

    def _mark(self, time_us: int) -> None:
        if self._marked_us and time_us - self._marked_us < MARK_EVERY_US:
            return
        self._marked_us = time_us
        write_all(self._index, Mark(os.fstat(self._log).st_size, time_us, Stream.STDOUT).packed())


class LogCopies:
    """Copies the output of pods. Lives on one event loop.

    Args:
        client: of the cluster's API.
    """

    def __init__(self, client: httpx2.AsyncClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def copy(self, pod: str, files: TaskFiles, is_over: Callable[[], bool]) -> None:
        """Copy what a pod writes until it is over and everything is copied, or the pod is gone.

        Args:
            is_over: whether the pod has ended, so that an answer that ends is the last one.
        """
        target, wait_s = LogFile(files), _FIRST_WAIT_S
        try:
            while True:
                over = is_over()
                try:
                    await self._follow(pod, target)
                    if over:
                        return
                    wait_s = _FIRST_WAIT_S
                except httpx2.HTTPStatusError as error:
                    if over and error.response.status_code in _NOT_THERE:
                        return
                except httpx2.HTTPError as error:
                    log.debug("the log of %s was cut: %s", pod, error)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        finally:
            target.close()

    async def _follow(self, pod: str, target: LogFile) -> None:
        params = {"container": CONTAINER, "follow": "true", "timestamps": "true"}
        if target.last:
            params["sinceTime"] = _second_of(target.last)
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/log"
        last, copied, rest = target.last, target.count, b""
        async with self._client.stream("GET", path, params=params, timeout=httpx2.Timeout(10.0, read=None)) as answer:
            answer.raise_for_status()
            async for piece in answer.aiter_bytes():
                whole, newline, rest = (rest + piece).rpartition(b"\n")
                lines = [line + b"\n" for line in whole.split(b"\n")] if newline else []
                fresh = [line for line in lines if _instant(line.partition(b" ")[0]) >= last]
                again = sum(_instant(line.partition(b" ")[0]) == last for line in fresh) if copied else 0
                target.take(fresh[min(again, copied) :])
                copied -= min(again, copied)
            if rest:
                target.take([rest])


def _place_in(path: Path) -> tuple[int, int]:
    try:
        last, count = json.loads(path.read_text())
        return int(last), int(count)
    except (OSError, ValueError, TypeError):
        return 0, 0


def _instant(stamp: bytes) -> int:
    """Nanoseconds since 1970 of a time as Kubernetes writes it, with up to nine digits of a second."""
    try:
        text = stamp.decode("ascii")
        seconds, _, rest = text.partition(".")
        digits = rest.rstrip("Z").split("+")[0].split("-")[0]
        zone = text[len(seconds) + 1 + len(digits) :] if rest else ""
        whole = datetime.fromisoformat(seconds + (zone if rest else ""))
    except ValueError:
        return 0
    return int(whole.timestamp()) * 1_000_000_000 + int(digits.ljust(9, "0") if digits else 0)


def _second_of(instant: int) -> str:
    return datetime.fromtimestamp(instant // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
