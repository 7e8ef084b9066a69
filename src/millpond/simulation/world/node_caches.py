"""What simulated nodes hold of what jobs need, and for how long they fetch the rest.

Each node fetches one thing after another at its rate, and keeps what was fetched as long as there is room: what is
worth least (``model.contents``) makes room, what running work uses does not. What finds no room so is used and gone. A
fetch counts as held from its begin on, as an engine knows of it then; who needs the same waits for its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.model.contents import Content, uses_after, worth
from millpond.model.errors import InvalidInputError
from millpond.model.events import NodeContents


@dataclass(frozen=True, slots=True)
class CacheSize:
    """The cache of each node.

    Attributes:
        bytes: its size; 0: nothing is kept.
        fetch_rate: bytes per second.
    """

    bytes: int
    fetch_rate: int

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.fetch_rate <= 0:
            raise InvalidInputError(
                f"a cache of {self.bytes} bytes that fetches {self.fetch_rate} a second",
                "use 0 bytes or more, and a rate above 0",
            )


class _Cache:
    """That of one node; ``ready_at``, ``uses``: when a thing it holds is there, how often and when last it was used."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.ready_at: dict[str, float] = {}
        self.uses: dict[str, tuple[float, float]] = {}
        self.users: dict[str, int] = {}
        self.fetches_until = 0.0


class NodeCaches:
    """The caches of all nodes.

    Attributes:
        starts, hits: starts of work that needed anything, and those of them that had nothing to fetch.
        fetched_bytes: by all nodes.
    """

    def __init__(self, size: CacheSize, nodes: Sequence[str]) -> None:
        self._size = size
        self._caches = {node: _Cache() for node in nodes}
        self.starts = self.hits = self.fetched_bytes = 0

    def report(self, node: str, at: float) -> NodeContents:
        """What a node holds now."""
        held = tuple(Content(name, size) for name, size in self._caches[node].held.items())
        return NodeContents(at, node, held, self._size.fetch_rate)

    def begin(self, contents: Sequence[Content], nodes: Sequence[str], now: float) -> tuple[float, list[str]]:
        """Work starts: when all of its nodes have what it needs, and which of them hold other things than before."""
        ready_at, changed, fetched = now, [], self.fetched_bytes
        for node in nodes:
            cache, before = self._caches[node], self.fetched_bytes
            for content in contents:
                ready_at = max(ready_at, self._use(cache, content, now))
            if self.fetched_bytes > before:
                changed.append(node)
        self.starts += 1
        self.hits += self.fetched_bytes == fetched
        return ready_at, changed

    def prefetch(self, contents: Sequence[Content], node: str, now: float) -> bool:
        """A node begins to fetch for work that has not begun; False if not all of it finds room."""
        cache = self._caches[node]
        held = [self._hold(cache, content, now) for content in contents]
        return all(held)

    def end(self, contents: Sequence[Content], nodes: Sequence[str]) -> None:
        """Work that began on these nodes is over."""
        for node in nodes:
            users = self._caches[node].users
            for content in contents:
                users[content.name] -= 1

    def _use(self, cache: _Cache, content: Content, now: float) -> float:
        """Hold a content if there is room; returns when it is there."""
        name = content.name
        cache.users[name] = cache.users.get(name, 0) + 1
        if self._hold(cache, content, now):
            return cache.ready_at[name]
        return self._fetch(cache, content, now)

    def _hold(self, cache: _Cache, content: Content, now: float) -> bool:
        """Have a content from now on, or fetch it and keep it; False where there is no room for it."""
        name = content.name
        if name not in cache.held:
            if not self._make_room(cache, content.bytes):
                return False
            cache.held[name], cache.ready_at[name] = content.bytes, self._fetch(cache, content, now)
        uses, last_use_at = cache.uses.get(name, (0.0, now))
        cache.uses[name] = 1.0 + uses_after(uses, now - last_use_at), now
        return True

    def _fetch(self, cache: _Cache, content: Content, now: float) -> float:
        """Fetch a content behind what the node fetches already; returns when it is there."""
        cache.fetches_until = max(cache.fetches_until, now) + content.bytes / self._size.fetch_rate
        self.fetched_bytes += content.bytes
        return cache.fetches_until

    def _make_room(self, cache: _Cache, size: int) -> bool:
        """Drop what is worth least and not in use, if that is enough."""
        idle = [name for name in cache.held if not cache.users.get(name)]
        free = self._size.bytes - sum(cache.held.values())
        if free + sum(cache.held[name] for name in idle) < size:
            return False
        for name in sorted(idle, key=lambda name: worth(*cache.uses[name], 1.0 / self._size.fetch_rate)):
            if free >= size:
                break
            free += cache.held.pop(name)
            del cache.ready_at[name], cache.uses[name]
        return True
