"""What all pods of a run share: secrets, and the service by which a gang finds its first task."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias

from lightkube.resources.core_v1 import Secret, Service

from millpond.engines.kubernetes.cluster.cluster_refusals import StatusError, refused
from millpond.engines.kubernetes.loop_work import all_of
from millpond.engines.kubernetes.pods.pod_files import secret_name

log = logging.getLogger(__name__)

_CONFLICT: Final = 409
MOST_RUNS_KNOWN: Final = 10_000
"""Of so many runs it is remembered what was made for them, so that nothing else is deleted."""

Shared: TypeAlias = "Secret | Service"


class SharedObjects:
    """Makes and deletes them. Lives on one event loop.

    Args:
        post: makes an object under a path.
        delete: deletes the object at a path; it may be gone.
    """

    def __init__(self, post: Callable[[str, Shared], Awaitable[Any]], delete: Callable[[str], Awaitable[Any]]) -> None:
        self._post, self._delete = post, delete
        self._staying: set[str] = set()
        """Names of secrets of all runs."""
        self._made: dict[str, set[str]] = {}
        """Paths of what there is of runs that began here, by their names; of others it is not known."""

    async def make(self, run: str, items: Iterable[Shared], *, begins: bool) -> None:
        """Make what a run shares; it may exist. What stays is made once.

        Args:
            begins: for a start that joins no tasks of the run.

        Raises:
            ClusterRefusedError: the cluster does not take it.
        """
        if begins and run not in self._made:
            self._made[run] = set()
            if len(self._made) > MOST_RUNS_KNOWN:
                del self._made[next(iter(self._made))]
        await all_of(self._make(run, item) for item in items)

    async def _make(self, run: str, item: Shared) -> None:
        kind, name = type(item).__name__.lower(), item.metadata.name if item.metadata else None
        stays = isinstance(item, Secret) and item.immutable
        if stays and name in self._staying:
            return
        try:
            await self._post(f"{kind}s", item)
        except StatusError as error:
            if error.code != _CONFLICT:
                raise refused(f"cannot make the {kind} of a run", error) from error
        finally:
            if not stays and run in self._made:
                self._made[run].add(f"{kind}s/{name}")
        if stays and name is not None:
            self._staying.add(name)

    def forget(self) -> None:
        """What stays may be gone: others have deleted it, or its namespace."""
        self._staying.clear()

    async def delete(self, run: str) -> None:
        """Delete what a run shared; what the cluster keeps does no harm."""
        there = self._made.get(run, {f"secrets/{run}", f"secrets/{secret_name(run)}", f"services/{run}"})
        for path in sorted(there):
            there.discard(path)
            try:
                await self._delete(path)
            except StatusError as error:
                there.add(path)
                log.warning("%s is left over: %s", path, error)
