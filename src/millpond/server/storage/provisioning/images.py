"""What the API can be asked about images. What takes long tells each line that it says; whoever leaves ends it."""

from __future__ import annotations

import asyncio
import queue
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Final

from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError
from millpond.node.containers.images import LocalImage, Tell
from millpond.node.containers.logins import FOLDER_PREFIX
from millpond.node.task.records import TaskFiles, TaskId, read_record
from millpond.node.task.workspace import lay_out
from millpond.server.auth.roles import AccessTarget, Caller, first_group
from millpond.server.http.error_responses import refusal_of
from millpond.server.runtime.inbox import wall_clock
from millpond.server.storage.files.admission import complete_snapshot
from millpond.server.storage.files.blobs import BlobStore
from millpond.server.storage.provisioning.admission import Provisions
from millpond.server.storage.provisioning.building import bases_of
from millpond.server.storage.provisioning.catalogue import Catalogue, CatalogueImage, held_as
from millpond.server.storage.provisioning.host import ContainerHost
from millpond.specs.api.files import Visibility
from millpond.specs.api.images import (
    ImageAdd,
    ImageBuild,
    ImageChange,
    ImageEntry,
    ImageInfo,
    ImagePush,
    ImageSave,
    ImageStep,
)
from millpond.specs.api.jobs import JobInfo
from millpond.specs.job.images import LOCAL_REGISTRY, repository_of

Work = Callable[[Tell], CatalogueImage]
Ended = Callable[[int, str], Future[None] | None]
"""Hears how something came out: the status that its answer would have, and a few words. Done when that is kept."""

_KEPT_WITHIN_S: Final = 10.0
"""After that the answer ends all the same, as where a full disk keeps nothing."""

BUILD_FILES: Final = ("Containerfile", "Dockerfile")
_AT_ONCE: Final = 4
_LEFT: Final = "whoever asked for it is gone"
_BUILD_PREFIX: Final = "build-"


class ImageService:
    """The catalogue, and what fills it.

    Args:
        state_dir: the server's.
        nodes: the names of the machines.
    """

    def __init__(
        self,
        host: ContainerHost,
        catalogue: Catalogue,
        provisions: Provisions,
        state_dir: Path,
        nodes: Sequence[str],
    ) -> None:
        self._host = host
        self._catalogue = catalogue
        self._provisions = provisions
        self._state_dir = state_dir.resolve()
        self._nodes = nodes
        self._blobs = BlobStore(self._state_dir)
        _remove_leftovers(self._state_dir)
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def list(self, sees: Callable[[AccessTarget], bool]) -> list[ImageInfo]:
        """The images that somebody may use, with where they are."""

        def look() -> list[ImageInfo]:
            shown = [entry for entry in self._catalogue.all() if sees(entry.seen)]
            here = self._digests_here() if shown else frozenset()
            return [self._info(entry, entry.digest in here) for entry in shown]

        return await asyncio.to_thread(look)

    async def target(self, name: str, tag: str, caller: Caller) -> AccessTarget:
        """An image as something to be changed; the caller's own where there is none yet."""
        entry = await asyncio.to_thread(self._catalogue.get, name, tag)
        mine = frozenset({first_group(caller)} - {""})
        return AccessTarget("image", f"{name}:{tag}", caller.user, mine) if entry is None else entry.target

    async def entry(self, name: str, tag: str) -> CatalogueImage:
        """An entry of the catalogue.

        Raises:
            NotFoundError: there is none.
        """
        return await asyncio.to_thread(self._catalogue.find, name, tag)

    async def seen(self, name: str, tag: str) -> AccessTarget:
        """An image as something to be used; nobody's where there is none."""
        entry = await asyncio.to_thread(self._catalogue.get, name, tag)
        return AccessTarget("image", f"{name}:{tag}") if entry is None else entry.seen

    async def change(self, name: str, tag: str, wish: ImageChange) -> ImageInfo:
        """Other words about an image.

        Raises:
            NotFoundError: there is none.
        """
        told = {field: value for field, value in wish.model_dump().items() if value is not None}
        entry = await asyncio.to_thread(self._catalogue.change, name, tag, lambda old: replace(old, **told))
        return self._info(entry, True)

    async def remove(self, name: str, tag: str) -> ImageInfo:
        """Take an image out of the catalogue; jobs that were submitted with it keep it as long as they need it.

        Raises:
            NotFoundError: there is none.
        """

        def remove() -> CatalogueImage:
            entry = self._catalogue.find(name, tag)
            self._catalogue.remove(entry)
            if self._host.found is not None and not self._provisions.is_needed(entry.digest):
                self._host.found.images.drop(entry.held_as)
            return entry

        return self._info(await asyncio.to_thread(remove), False)

    # ---- what takes long ----------------------------------------------------------------------------------------

    def add(self, wish: ImageAdd, caller: Caller, queue: str) -> Work:
        """Put an image of a registry, or of this machine, into the catalogue.

        Args:
            queue: whose rule about registries counts; empty: none.

        Raises:
            InvalidInputError: it may not come from there, or its secret is no login.
            NotFoundError: nobody has that secret.
        """
        reference, secret = self._provisions.check_reference(queue, wish.reference), wish.login or ""
        login = self._provisions.login(caller.user, first_group(caller), secret)
        if reference.startswith(f"{LOCAL_REGISTRY}/"):
            return self._add_local(wish, caller, reference)

        def work(tell: Tell) -> CatalogueImage:
            self._provisions.check_place(queue, reference)
            with self._provisions.fetched(reference, login, tell) as image:
                return self._put(wish, caller, image, reference, secret)

        return work

    def _add_local(self, wish: ImageAdd, caller: Caller, reference: str) -> Work:
        if wish.login:
            raise InvalidInputError(f"{wish.reference!r} is an image of this machine, which takes no login", "")

        def work(_tell: Tell) -> CatalogueImage:
            image = self._host.containers().images.find(reference)
            if image is None:
                raise NotFoundError(f"no image {wish.reference!r} on this machine", "name its registry")
            return self._put(wish, caller, replace(image, exact=()), reference)

        return work

    def pull(self, name: str, tag: str) -> Work:
        """Have an image of the catalogue on the machine.

        Raises:
            NotFoundError: there is none.
        """
        entry = self._catalogue.find(name, tag)

        def work(tell: Tell) -> CatalogueImage:
            self._provisions.here(entry, tell)
            return entry

        return work

    def push(self, entry: CatalogueImage, wish: ImagePush, caller: Caller, queue: str) -> Work:
        """Send an image of the catalogue to a registry.

        The registry lets in whom the secret names, else nobody: what the server's own account may is for fetching.

        Args:
            queue: whose rule about registries counts; empty: none.

        Returns:
            What ends with the image as it is there: ``exact`` is with which reference that registry gives it.

        Raises:
            InvalidInputError: it may not go there, or its secret is no login.
            NotFoundError: nobody has that secret.
        """
        reference, secret = self._provisions.check_target(queue, wish.reference), wish.login or ""
        login = self._provisions.login(caller.user, first_group(caller), secret)

        def work(tell: Tell) -> CatalogueImage:
            image = self._provisions.here(entry, tell)
            self._provisions.check_place(queue, reference)
            exact = self._host.containers().images.push(image, reference, tell, login)
            # One that came from no registry can be had again from there, where its owner's secrets let us in.
            if not entry.sources and caller.user == entry.user:
                self._catalogue.note_exact(entry, exact, secret)
            return replace(entry, exact=exact)

        return work

    def build(self, wish: ImageBuild, caller: Caller, queue: str) -> Work:
        """Build an image from a folder that was sent; ``queue`` as in ``add``.

        Raises:
            InvalidInputError: not everything of it was sent, or nothing in it says how.
        """
        paths = {entry.path for entry in complete_snapshot(self._blobs, wish.snapshot).files}
        file = wish.file or next((name for name in BUILD_FILES if name in paths), BUILD_FILES[0])
        if file not in paths:
            raise InvalidInputError(f"there is no {file} in the folder", "write one, or name it with --file")

        def work(tell: Tell) -> CatalogueImage:
            images = self._host.containers().images
            folder = Path(tempfile.mkdtemp(prefix=_BUILD_PREFIX, dir=self._state_dir))
            try:
                lay_out(self._blobs.folder, wish.snapshot, folder)
                named = bases_of((folder / file).read_text(errors="replace"))
                bases = {base: self._provisions.base(base, caller, queue, tell) for base in named}
                image = images.build(folder, file, held_as(wish.name, wish.tag), tell, bases)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return self._put(wish, caller, image, f"built by {caller.user} from {file}")

        return work

    def save(self, wish: ImageSave, job: JobInfo, caller: Caller) -> Work:
        """Make an image of what a task has become.

        Raises:
            NotFoundError: the job has no such task.
            ConflictError: it does not run in a container.
        """
        record = read_record(TaskFiles.of(self._state_dir, TaskId(job.id, job.attempt, wish.task)))
        if record is None:
            raise NotFoundError(f"task {wish.task} of job {job.id} never ran", "wait until it runs")
        if not record.container:
            raise ConflictError(f"job {job.id} does not run in a container", "give it an image first")

        def work(tell: Tell) -> CatalogueImage:
            images = self._host.containers().images
            image = images.save(record.container, held_as(wish.name, wish.tag), caller.user, tell)
            return self._put(wish, caller, image, f"saved from {job.id} by {caller.user}")

        return work

    async def steps(self, work: Work, ended: Ended) -> AsyncIterator[ImageStep]:
        """Do it, line by line; the last line has the image, or why there is none.

        Args:
            ended: hears how it came out, on another thread, once, whatever happens. The last line waits for what it
                returns.
        """
        lines: queue.SimpleQueue[ImageStep | None] = queue.SimpleQueue()
        left = threading.Event()

        def tell(line: str) -> None:
            if left.is_set():
                raise ConflictError(_LEFT, "ask again")
            lines.put(ImageStep(line=line))

        def do() -> None:
            status, words, last = 500, "a defect", None
            try:
                entry = work(tell)
                status, words, last = 200, entry.digest, ImageStep(image=self._info(entry, True))
            except MillpondError as error:
                known = refusal_of(error)
                if known is None:
                    raise
                (status, body), words = known, error.cause
                last = ImageStep(error=body)
            finally:
                if (kept := ended(status, words)) is not None:
                    wait([kept], _KEPT_WITHIN_S)
                for line in (last, None) if last is not None else (None,):
                    lines.put(line)

        begun = False
        try:
            async with self._room:
                doing, begun = asyncio.create_task(asyncio.to_thread(do)), True
                while (step := await asyncio.to_thread(lines.get)) is not None:
                    yield step
                await doing
        finally:
            left.set()
            if not begun:
                ended(409, _LEFT)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _put(self, wish: ImageEntry, caller: Caller, image: LocalImage, origin: str, login: str = "") -> CatalogueImage:
        earlier = self._catalogue.get(wish.name, wish.tag)
        seen: Visibility = wish.visibility or ("group" if earlier is None else earlier.visibility)
        words = wish.description or ("" if earlier is None else earlier.description)
        entry = CatalogueImage(
            wish.name,
            wish.tag,
            origin,
            image.digest,
            image.size,
            caller.user,
            first_group(caller) if earlier is None else earlier.group,
            seen,
            words,
            wall_clock(),
            login,
            next((each for each in image.exact if repository_of(each) == repository_of(origin)), ""),
        )
        self._host.containers().images.name(image, entry.held_as)
        return self._catalogue.put(entry)

    def _digests_here(self) -> frozenset[str]:
        try:
            return self._host.containers().images.digests()
        except MillpondError:
            return frozenset()  # nothing here runs containers, so nothing is here

    def _info(self, entry: CatalogueImage, is_here: bool) -> ImageInfo:
        return ImageInfo(
            name=entry.name,
            tag=entry.tag,
            reference=entry.reference,
            origin=entry.origin,
            login=entry.login,
            exact=entry.exact,
            digest=entry.digest,
            size=entry.size,
            user=entry.user,
            group=entry.group,
            visibility=entry.visibility,
            description=entry.description,
            created_at=entry.created_at,
            nodes=dict.fromkeys(self._nodes, "present" if is_here else "absent"),
        )


def _remove_leftovers(state_dir: Path) -> None:
    """A server that was killed leaves what it built from, and the logins that it used."""
    for prefix in (_BUILD_PREFIX, FOLDER_PREFIX):
        for folder in state_dir.glob(f"{prefix}*"):
            shutil.rmtree(folder, ignore_errors=True)
