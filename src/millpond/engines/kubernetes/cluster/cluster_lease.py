"""The right to change the cluster, of which one process at a time has a lease there.

Who leads is decided elsewhere: by the lock of the state directory, or of the database that servers share
(``server.store.connection.leadership``). That is no fence for the cluster. A process that stood still, or was cut off,
may go on with requests that it had begun, beside the one that has taken over. So every request that changes something
waits until its process has the lease, and a process that finds another's name in it changes nothing any more.

No two clocks are compared. The holder counts from before it asked to renew; the next one counts from when it first saw
the lease as it is, and has to see it unchanged for as long as it lasts. Whoever is known to be dead is not waited for.
https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx2
import msgspec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

from millpond.engines.kubernetes.cluster.api_channel import PASSING, REQUEST_WITHIN_S, ApiAnswer, ApiChannel, status_of
from millpond.model.errors import LeadershipLostError, UnavailableError
from millpond.node.host import procfs

log = logging.getLogger(__name__)

_NOT_FOUND, _CONFLICT, _FORBIDDEN = 404, 409, 403
_RELEASED_WITHIN_S, _AGAIN_AFTER_S = 2.0, 0.1
_JSON: Final = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease lasts; all in seconds.

    Attributes:
        lasts_s: unchanged for so long it belongs to nobody.
        holds_s: its holder goes on without having renewed it for so long. The rest is for requests that were sent last:
            they are answered or given up by then.
        renewed_every_s: how often the holder renews it.
    """

    lasts_s: float = 10.0 + REQUEST_WITHIN_S
    holds_s: float = 10.0
    renewed_every_s: float = 2.0


class ClusterLease:
    """One process's claim. Lives on one event loop.

    Args:
        server: identity of the server: processes that work for the same one take turns.

    Attributes:
        asking: what asks for it, last. Cut off in the middle, it might have got the lease without knowing so.
        refused: why the cluster does not let it be used, in its own words; empty: it does, or it does not answer.
    """

    def __init__(self, channel: ApiChannel, namespace: str, server: str, times: LeaseTimes) -> None:
        self.holder = _own_name()
        self._channel = channel
        self._name = f"millpond-{server}"
        self._namespace = namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._times = times
        self._until = 0.0
        self._renewed = asyncio.Event()
        self._version = ""
        self._seen, self._seen_at = "", 0.0
        self._was_held = False
        self.asking: asyncio.Task[bool] | None = None
        self.refused = ""

    async def held(self) -> None:
        """Wait until this process may change the cluster: at once, for as long as it has the lease."""
        while time.monotonic() >= self._until:
            await self._renewed.wait()

    @property
    def is_lost(self) -> bool:
        """Whether this process had it, and cannot renew it in time: the cluster does not answer, or not to this one."""
        return self._was_held and time.monotonic() >= self._until

    async def require_right(self) -> None:
        """Whether leases may be used at all; nothing is written for that.

        Raises:
            UnavailableError: they may not, or the namespace is not there.
            httpx2.HTTPError: the cluster does not answer.
        """
        answer = await self._ask("GET", self._name)
        if answer.is_success or answer.status_code == _NOT_FOUND:
            version = _decoded(answer).metadata.resource_version if answer.is_success else ""
            answer = await self._put(self.holder, version, {"dryRun": "All"})
        if answer.status_code in (_FORBIDDEN, _NOT_FOUND):
            raise UnavailableError(
                f"the server may not use leases in namespace {self._namespace}, by which no two run the same jobs: "
                f"{status_of(answer).message}",
                "the namespace has to be there, with the right to get, create and update leases: "
                "deploy/kubernetes/roles.yaml",
            )

    async def keep(self) -> None:
        """Get it, and renew it for ever.

        Raises:
            LeadershipLostError: another process has taken it.
        """
        while True:
            self.asking = asyncio.create_task(self._ask_for_it())
            has = await asyncio.shield(self.asking)  # a request that has begun has its answer before it is given back
            await asyncio.sleep(self._times.renewed_every_s if has else self._times.renewed_every_s / 4)

    async def _ask_for_it(self) -> bool:
        asked_at = time.monotonic()
        try:
            has = await (self._renew() if self._version and asked_at < self._until else self._take())
        except httpx2.HTTPError:
            self.refused = ""
            return False  # not reached: the reflectors say so in the log
        if has:
            self._until, self._was_held = asked_at + self._times.holds_s, True
            self._renewed.set()
            self._renewed = asyncio.Event()
        return has

    async def settle(self) -> None:
        """Wait for the answer to what was asked last, before tasks are ended of which some may be sending it."""
        if self.asking is not None:
            await asyncio.wait((self.asking,), timeout=_RELEASED_WITHIN_S)

    async def release(self) -> None:
        """Let another process have it at once; what was asked last has been settled."""
        is_known = self.asking is None or not self.asking.cancelled()
        try:
            async with asyncio.timeout(_RELEASED_WITHIN_S):
                if not is_known or not self._version or time.monotonic() >= self._until:
                    return
                self._until = 0.0
                while (await self._write("", self._version)).status_code in PASSING:
                    await asyncio.sleep(_AGAIN_AFTER_S)
        except (httpx2.HTTPError, TimeoutError) as error:
            log.debug("the lease runs out by itself: %s", error)
        finally:
            self._until = 0.0

    async def _renew(self) -> bool:
        answer = await self._write(self.holder, self._version)
        if answer.status_code in (_NOT_FOUND, _CONFLICT):
            self._version = ""  # somebody else has written it: looked at next
            return await self._take()
        return answer.is_success

    async def _take(self) -> bool:
        """Take it if nobody has it any more.

        Raises:
            LeadershipLostError: it was this process's, and is another's.
        """
        answer = await self._ask("GET", self._name)
        if answer.status_code == _NOT_FOUND:
            return (await self._write(self.holder, "")).is_success
        if not answer.is_success:
            self.refused = status_of(answer).message
            return False
        found = _decoded(answer)
        other, version = found.spec.holder_identity or "", found.metadata.resource_version
        if self._was_held and other != self.holder:
            lease = f"the lease {self._name} of namespace {self._namespace}"
            raise LeadershipLostError(
                f"another server has {lease} ({_who(other)})" if other else f"another server had {lease} meanwhile",
                "this one was paused, or cut off from the cluster, for too long; see that each state directory or "
                "database has one server, then start it again: it waits until the other has ended",
            )
        return self._is_over(other, version) and (await self._write(self.holder, version)).is_success

    def _is_over(self, other: str, version: str) -> bool:
        if other in ("", self.holder) or _is_dead(other):
            return True
        if version != self._seen:
            if not self._seen:
                log.warning("%s has the lease %s: nothing is changed in the cluster until it ends", other, self._name)
            self._seen, self._seen_at = version, time.monotonic()
        return time.monotonic() - self._seen_at >= self._times.lasts_s

    async def _write(self, holder: str, version: str) -> ApiAnswer:
        """Make it, or replace the one of that version."""
        answer = await self._put(holder, version, {})
        self.refused = "" if answer.is_success else status_of(answer).message
        if answer.is_success:
            self._version = _decoded(answer).metadata.resource_version
        return answer

    async def _put(self, holder: str, version: str, params: Mapping[str, str]) -> ApiAnswer:
        now = datetime.now(UTC)  # for people; the API takes no instant without a fraction
        spec = LeaseSpec(
            holderIdentity=holder,
            leaseDurationSeconds=max(round(self._times.lasts_s), 1),
            renewTime=now.replace(microsecond=max(now.microsecond, 1)),
        )
        meta = ObjectMeta(name=self._name, namespace=self._namespace, resourceVersion=version or None)
        item = Lease(metadata=meta, spec=spec)
        return await self._ask("PUT" if version else "POST", self._name if version else "", item, params)

    async def _ask(
        self, method: str, name: str, item: Any = None, params: Mapping[str, str] = MappingProxyType({})
    ) -> ApiAnswer:
        path = f"{self._path}/{name}" if name else self._path
        content = b"" if item is None else msgspec.json.encode(item)
        return await self._channel.request(method, path, content=content, params=params, headers=_JSON)


class _LeaseMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _HeldBy(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _LeaseObject(msgspec.Struct):
    metadata: _LeaseMeta
    spec: _HeldBy = msgspec.field(default_factory=_HeldBy)


def _decoded(answer: ApiAnswer) -> _LeaseObject:
    return msgspec.json.decode(answer.content, type=_LeaseObject)


def _place() -> str:
    """This machine as it runs now, and what in it can see this process: others cannot say whether it lives."""
    return f"{socket.gethostname()}/{procfs.boot_id()}/{Path('/proc/self/ns/pid').stat().st_ino}"


def _who(holder: str) -> str:
    """A holder, for people."""
    place, *process = holder.rsplit("/", 3)
    return f"process {process[0]} on {place.partition('/')[0]}" if len(process) == 3 else holder


def _own_name() -> str:
    """A name for this process, of which others of its place can say whether it lives."""
    return f"{_place()}/{os.getpid()}/{procfs.start_ticks(os.getpid())}/{secrets.token_hex(4)}"


def _is_dead(holder: str) -> bool:
    """Whether a holder is known to have ended."""
    place, *process = holder.rsplit("/", 3)
    if place != _place() or len(process) < 3 or not process[0].isdecimal():
        return False
    return str(procfs.start_ticks(int(process[0]))) != process[1]
