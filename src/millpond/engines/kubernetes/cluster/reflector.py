"""A copy of all objects of one kind, kept by list and watch as Kubernetes means it.

A list says where in the cluster's history it stands; a watch goes on from there and can be taken up again where it was
cut. When the cluster no longer has that part of its history (410 Gone), everything is listed anew and compared.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import httpx2
import msgspec

from millpond.engines.kubernetes.cluster.api_channel import (
    PASSING,
    ApiChannel,
    ErrorAnswerError,
    UnreadableAnswerError,
    status_of,
)
from millpond.engines.kubernetes.cluster.objects import ListMeta, MetaOnly, ObjectMeta, StatusObject, WatchLine

log = logging.getLogger(__name__)

PAGE = 500
PART_WITHIN_S = 30.0
"""The next part of a list is asked for again for so long."""
WATCH_S = (60, 120)
"""A watch ends after so long, at random, so that many do not end together. An idle one may say nothing until then, as
does one that something on the way has forgotten."""
LATE_S = 10.0
"""One that should have ended so long ago is cut."""
LASTING_S = 1.0
"""A watch that ends sooner is not opened again at once, a second time: something may end all of them."""
MOST_PATIENCE_S = 60.0
"""A cluster that wants to be left alone is, for so long at the most."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 3.0
GONE = 410


class WatchedObject(Protocol):
    """What has a name and a version."""

    @property
    def metadata(self) -> ObjectMeta:
        """These."""


T = TypeVar("T", bound=WatchedObject)


@dataclass(frozen=True, slots=True)
class ObjectKind(Generic[T]):
    """What is watched.

    Attributes:
        path: of the list, such as ``/api/v1/pods``.
        model: what its objects are decoded to.
        selectors: which of them, as parameters of the request.
    """

    path: str
    model: type[T]
    selectors: Mapping[str, str] = field(default_factory=dict)


class ListPage(msgspec.Struct, Generic[T]):
    """A part of a list."""

    metadata: ListMeta
    items: list[T]


class _PageMeta(msgspec.Struct):
    """The same, without its objects."""

    metadata: ListMeta


class _RawPage(msgspec.Struct):
    """The same, with its objects as they came."""

    items: list[msgspec.Raw]


_RAW_PAGE: Final = msgspec.json.Decoder(_RawPage)


@dataclass(frozen=True, slots=True)
class ObjectPart(Generic[T]):
    """Some objects of a kind, of which more is kept than of all.

    Attributes:
        model: what they are decoded to.
        sign: what the text of each has, and few others have.
        lacks: a label that none of them has: nothing more of an object with it is read.
        is_one: whether another object is one.
    """

    model: type[T]
    sign: bytes
    lacks: str
    is_one: Callable[[T], bool]


class HistoryGoneError(Exception):
    """The cluster no longer knows what came after the version that was asked for."""


class WatchEndedError(Exception):
    """The cluster ended a watch with an error."""


class _ObjectCopy(Generic[T]):
    """What there is of some objects, and who hears of it.

    Args:
        changed: called with each object that is new or has changed.
        deleted: called with the last that was known of an object that is gone.

    Attributes:
        objects: what there is, by namespace and name.
    """

    def __init__(self, model: type[T], changed: Callable[[T], None], deleted: Callable[[T], None]) -> None:
        self.objects: dict[str, T] = {}
        self._object = msgspec.json.Decoder(model)
        self._changed, self._deleted = changed, deleted

    def _put(self, key: str, item: T) -> None:
        self.objects[key] = item
        self._tell(self._changed, item)

    def _take_list(self, found: dict[str, T]) -> None:
        for key in [key for key in self.objects if key not in found]:
            self._tell(self._deleted, self.objects.pop(key))
        for key, item in found.items():
            known = self.objects.get(key)
            if known is not None and known.metadata.uid != item.metadata.uid:
                self._tell(self._deleted, known)  # another of the same name
            self.objects[key] = item
            if known is None or known.metadata.resource_version != item.metadata.resource_version:
                self._tell(self._changed, item)

    def _tell(self, heard: Callable[[T], None], item: T) -> None:
        """Have somebody hear of an object; one that cannot be handled keeps none of the others from being followed."""
        try:
            heard(item)
        except Exception:
            log.exception("%s of %s cannot be handled by a defect", _key(item.metadata), type(item).__name__)


class PartialCopy(_ObjectCopy[T]):
    """A copy of a part of what a reflector follows, kept by its lists and watches.

    The cluster reads all objects for each list, however few are wanted, and sends each of them once for each watch.
    """

    def __init__(self, part: ObjectPart[T], changed: Callable[[T], None], deleted: Callable[[T], None]) -> None:
        super().__init__(part.model, changed, deleted)
        self._part = part

    def found_in(self, page: bytes, metas: Iterable[ObjectMeta]) -> dict[str, T]:
        """Its objects among all of a part of a list; nothing else is decoded whole."""
        if self._part.sign not in page:
            return {}
        read = map(self.read, _RAW_PAGE.decode(page).items, metas)
        return {_key(item.metadata): item for item in read if item is not None}

    def read(self, text: msgspec.Raw, meta: ObjectMeta) -> T | None:
        """An object, if it is one of these; one that cannot be read is not, and keeps none of the others waiting."""
        if self._part.lacks in meta.labels or self._part.sign not in bytes(text):
            return None
        try:
            item = self._object.decode(text)
        except msgspec.ValidationError as error:
            log.error("%s cannot be read, and is left out: %s", _key(meta), error)
            return None
        return item if self._part.is_one(item) else None

    def take(self, key: str, item: T | None, *, is_gone: bool) -> None:
        """An object of the reflector has changed, or is gone; None: it is none of these, or no longer."""
        if item is not None and not is_gone:
            self._put(key, item)
        elif (known := self.objects.pop(key, None)) is not None:
            self._tell(self._deleted, known if item is None else item)


class Reflector(_ObjectCopy[T]):
    """Follows one kind of object. Lives on one event loop.

    Attributes:
        parts: copies of some of the objects that it keeps too; they hear of each after it.
        ready: set when everything has been listed for the first time.
        trouble: why the cluster does not answer; empty while it does.
        troubled_at: when that began, by the clock of the loop.
    """

    def __init__(
        self,
        channel: ApiChannel,
        kind: ObjectKind[T],
        changed: Callable[[T], None],
        deleted: Callable[[T], None],
    ) -> None:
        super().__init__(kind.model, changed, deleted)
        self.parts: Sequence[PartialCopy[Any]] = ()
        self.ready = asyncio.Event()
        self.trouble, self.troubled_at = "", 0.0
        self._channel = channel
        self._path, self._selectors = kind.path, kind.selectors
        self._page = msgspec.json.Decoder(ListPage[kind.model])  # type: ignore[name-defined]
        self._line = msgspec.json.Decoder(WatchLine)
        self._version = ""

    async def run(self) -> None:
        """Follow for ever."""
        clock = asyncio.get_running_loop()
        wait_s, watched = 0.0, False
        while True:
            began, least_s, patience_s = math.inf, 0.0, 0.0
            try:
                if not self._version or (watched and await self._is_restored()):
                    await self.list_once()
                began, watched = clock.time(), True
                await self._watch()
            except HistoryGoneError:
                self._version = ""
            except (httpx2.HTTPError, ErrorAnswerError, OSError, msgspec.DecodeError, WatchEndedError) as error:
                if isinstance(error, ErrorAnswerError) and error.status_code == GONE and self._version:
                    self._version = ""
                else:
                    self._note(error)
                least_s, patience_s = _FIRST_WAIT_S, _patience_of(error)
            wait_s = max(least_s, 0.0 if clock.time() - began >= LASTING_S else wait_s)
            await asyncio.sleep(max(wait_s * random.uniform(0.5, 1.0), patience_s))
            wait_s = min(max(2 * wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)

    async def _is_restored(self) -> bool:
        """Whether the cluster has gone back behind what is known, as from a backup of its etcd.

        A watch from a version that is yet to come says nothing until then. Versions are numbers that rise:
        https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
        """
        part = await self._channel.get(self._path, {"limit": "1"})
        now = msgspec.json.decode(part, type=_PageMeta).metadata.resource_version
        is_known = now.isdecimal() and self._version.isdecimal()
        return is_known and int(now) < int(self._version)

    async def list_once(self) -> None:
        """Everything as it is now; what is gone since is taken for deleted.

        Raises:
            ErrorAnswerError: the cluster refuses.
            httpx2.HTTPError: it does not answer.
        """
        found: dict[str, T] = {}
        of_parts: list[tuple[PartialCopy[Any], dict[str, Any]]] = [(part, {}) for part in self.parts]
        go_on, version = "", ""
        while True:
            text = await self._part_from(go_on)
            try:
                page = self._page.decode(text)
                for part, some in of_parts:
                    some |= part.found_in(text, (item.metadata for item in page.items))
            except msgspec.DecodeError as error:
                raise UnreadableAnswerError(self._path, text, error) from error
            found |= {_key(item.metadata): item for item in page.items}
            go_on, version = page.metadata.go_on, page.metadata.resource_version
            if not go_on:
                break
        self._take_list(found)
        for part, some in of_parts:
            part._take_list(some)
        self._version = version
        self._answered()
        self.ready.set()

    async def _part_from(self, go_on: str) -> bytes:
        """A part of a list. One that does not come is asked for again for a while: those before it are here."""
        clock = asyncio.get_running_loop()
        params = {"limit": str(PAGE), **self._selectors, **({"continue": go_on} if go_on else {})}
        give_up_at = clock.time() + PART_WITHIN_S if go_on else 0.0
        while True:
            try:
                return await self._channel.get(self._path, params)
            except (httpx2.TransportError, ErrorAnswerError) as error:
                is_final = isinstance(error, ErrorAnswerError) and error.status_code not in PASSING
                if is_final or clock.time() >= give_up_at:
                    raise
                patience_s = _patience_of(error)
            await asyncio.sleep(max(_FIRST_WAIT_S, patience_s))

    async def _watch(self) -> None:
        lasts_s = random.randint(*WATCH_S)
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(lasts_s),
            **self._selectors,
        }
        rest = b""
        async with contextlib.aclosing(self._channel.follow(self._path, params, lasts_s + LATE_S)) as pieces:
            async for piece in pieces:
                if not piece:
                    self._answered()
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line:
                        self._take(self._line.decode(line))

    def _take(self, line: WatchLine) -> None:
        if line.type == "ERROR":
            status = msgspec.json.decode(line.object, type=StatusObject)
            if status.code == GONE:
                raise HistoryGoneError
            raise WatchEndedError(status.message or status.reason)
        if line.type == "BOOKMARK":
            self._version = msgspec.json.decode(line.object, type=MetaOnly).metadata.resource_version
            return
        item, is_gone = self._object.decode(line.object), line.type == "DELETED"
        of_parts = [(part, part.read(line.object, item.metadata)) for part in self.parts]
        key = _key(item.metadata)
        self._version = item.metadata.resource_version
        if is_gone:
            self.objects.pop(key, None)
            self._tell(self._deleted, item)
        else:
            self._put(key, item)
        for part, of_part in of_parts:
            part.take(key, of_part, is_gone=is_gone)

    def _answered(self) -> None:
        if self.trouble:
            log.info("the cluster answers again for %s", self._path)
        self.trouble = ""

    def _note(self, error: Exception) -> None:
        words = status_of(error.answer).message if isinstance(error, ErrorAnswerError) else ""
        text = words or str(error) or type(error).__name__
        if not self.trouble:
            self.troubled_at = asyncio.get_running_loop().time()
            log.warning("the cluster does not answer for %s: %s; tried again until it does", self._path, text)
        self.trouble = text


def _patience_of(error: Exception) -> float:
    """How long the cluster asks to be left alone, within bounds."""
    return min(error.answer.retry_after_s, MOST_PATIENCE_S) if isinstance(error, ErrorAnswerError) else 0.0


def _key(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}"
