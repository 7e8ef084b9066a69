"""What the API can be asked about images. What takes long is returned as work, to be done step by step."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from millpond.model.errors import ConflictError, InvalidInputError, MillpondError, NotFoundError
from millpond.node.containers.images import LocalImage
from millpond.node.containers.logins import FOLDER_PREFIX
from millpond.node.containers.programs import Notify, end_builds_from
from millpond.node.containers.scratch import left_folders, remove_left
from millpond.node.task.records import TaskFiles, TaskId, read_record
from millpond.node.task.workspace import lay_out
from millpond.server.auth.roles import AccessTarget, Caller, Verb, demand, first_group, own_target
from millpond.server.storage.files.admission import complete_snapshot
from millpond.server.storage.files.blobs import BlobStore
from millpond.server.storage.provisioning.catalogue import Catalogue, CatalogueImage, HeldImages, held_as
from millpond.server.storage.provisioning.containerfile import bases_of
from millpond.server.storage.provisioning.host import ContainerHost
from millpond.server.storage.provisioning.image_sources import ImageSources
from millpond.server.storage.provisioning.image_steps import ImageSteps, Work
from millpond.specs.api.jobs.files import Visibility
from millpond.specs.api.jobs.images import (
    ImageAdd,
    ImageBuild,
    ImageChange,
    ImageEntry,
    ImageInfo,
    ImagePush,
    ImageSave,
)
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.images import LOCAL_REGISTRY, repository_of

BUILD_FILES: Final = ("Containerfile", "Dockerfile")
_BUILD_PREFIX: Final = "build-"


class ImageService:
    """The catalogue, and what fills it.

    Args:
        held: hears what is put into the catalogue.
        state_dir: the server's.
        nodes: the names of the machines.

    Attributes:
        entry: an entry of the catalogue, as ``Catalogue.find``.
        steps: does work that a method returned, as ``ImageSteps.run``.
        close: as ``ImageSteps.close``.
    """

    def __init__(
        self,
        host: ContainerHost,
        catalogue: Catalogue,
        sources: ImageSources,
        held: HeldImages,
        state_dir: Path,
        nodes: Sequence[str],
    ) -> None:
        self._host = host
        self._catalogue = catalogue
        self._sources = sources
        self._held = held
        self._state_dir = state_dir.resolve()
        self._nodes = nodes
        self.entry = catalogue.find
        self._blobs = BlobStore(self._state_dir)
        _remove_leftovers(self._state_dir)
        steps = ImageSteps(lambda entry: self._info(entry, is_here=True))
        self.steps, self.close = steps.run, steps.close

    def list(self, sees: Callable[[AccessTarget], bool]) -> list[ImageInfo]:
        """The images that a user may use, with where they are."""
        shown = [entry for entry in self._catalogue.all() if sees(entry.seen)]
        here = self._digests_here() if shown else frozenset()
        return [self._info(entry, entry.digest in here) for entry in shown]

    def target(self, name: str, tag: str, caller: Caller) -> AccessTarget:
        """An image as something to be changed; the caller's own where there is none yet."""
        entry = self._catalogue.get(name, tag)
        return own_target("image", f"{name}:{tag}", caller) if entry is None else entry.target

    def seen(self, name: str, tag: str) -> AccessTarget:
        """An image as something to be used; of no owner where there is none."""
        entry = self._catalogue.get(name, tag)
        return AccessTarget("image", f"{name}:{tag}") if entry is None else entry.seen

    def change(self, name: str, tag: str, request: ImageChange) -> ImageInfo:
        """Other words about an image.

        Raises:
            NotFoundError: there is none.
            ConflictError: it was replaced meanwhile.
        """
        given = {field: value for field, value in request.model_dump().items() if value is not None}
        return self._info(self._catalogue.change(name, tag, lambda old: replace(old, **given)), is_here=True)

    def remove(self, name: str, tag: str) -> ImageInfo:
        """Take an image out of the catalogue; jobs that were submitted with it keep it as long as they need it.

        Raises:
            NotFoundError: there is none.
        """
        with self._catalogue.changing:
            entry = self._catalogue.find(name, tag)
            self._catalogue.remove(entry)
            if self._host.found is not None and not self._sources.is_needed(entry.digest):
                self._host.found.images.drop(entry.held_as)
        return self._info(entry, is_here=False)

    def add(self, request: ImageAdd, caller: Caller, queue: str) -> Work:
        """Put an image of a registry, or of this machine, into the catalogue.

        Args:
            queue: whose rule about registries counts; empty: none.

        Raises:
            InvalidInputError: it may not come from there, or its secret is no login.
            NotFoundError: there is no such secret.
        """
        reference, secret = self._sources.check_reference(queue, request.reference), request.login or ""
        login = self._sources.login(caller.user, first_group(caller), secret)
        if reference.startswith(f"{LOCAL_REGISTRY}/"):
            return self._add_local(request, caller, reference)

        def work(notify: Notify) -> CatalogueImage:
            self._sources.check_place(queue, reference)
            with self._sources.fetched(reference, login, notify) as image:
                return self._put(request, caller, image, reference, secret)

        return work

    def _add_local(self, request: ImageAdd, caller: Caller, reference: str) -> Work:
        if request.login:
            raise InvalidInputError(f"{request.reference!r} is an image of this machine, which takes no login", "")

        def work(_notify: Notify) -> CatalogueImage:
            image = self._host.containers().images.find(reference)
            if image is None:
                raise NotFoundError(f"no image {request.reference!r} on this machine", "name its registry")
            return self._put(request, caller, replace(image, exact=()), reference)

        return work

    def pull(self, name: str, tag: str) -> Work:
        """Have an image of the catalogue on the machine.

        Raises:
            NotFoundError: there is none.
        """
        entry = self._catalogue.find(name, tag)

        def work(notify: Notify) -> CatalogueImage:
            self._sources.here(entry, notify)
            return entry

        return work

    def push(self, entry: CatalogueImage, request: ImagePush, caller: Caller, queue: str) -> Work:
        """Send an image of the catalogue to a registry.

        The registry lets in the account that the secret names, else none: the server's own account is for fetching.

        Args:
            queue: whose rule about registries counts; empty: none.

        Returns:
            What ends with the image as it is there: ``exact`` is with which reference that registry gives it.

        Raises:
            InvalidInputError: it may not go there, or its secret is no login.
            NotFoundError: there is no such secret.
        """
        reference, secret = self._sources.check_target(queue, request.reference), request.login or ""
        login = self._sources.login(caller.user, first_group(caller), secret)

        def work(notify: Notify) -> CatalogueImage:
            image = self._sources.here(entry, notify)
            self._sources.check_place(queue, reference)
            exact = self._host.containers().images.push(image, reference, notify, login)
            # One that came from no registry can be had again from there, where its owner's secrets let us in.
            if not entry.sources and caller.user == entry.user:
                self._catalogue.note_exact(entry, exact, secret)
            return replace(entry, exact=exact)

        return work

    def build(self, request: ImageBuild, caller: Caller, queue: str) -> Work:
        """Build an image from a folder that was sent; ``queue`` as in ``add``.

        Raises:
            InvalidInputError: not everything of it was sent, or nothing in it says how.
        """
        paths = {entry.path for entry in complete_snapshot(self._blobs, request.snapshot).files}
        file = request.file or next((name for name in BUILD_FILES if name in paths), BUILD_FILES[0])
        if file not in paths:
            raise InvalidInputError(f"there is no {file} in the folder", "write one, or name it with --file")

        def work(notify: Notify) -> CatalogueImage:
            images = self._host.containers().images
            folder = Path(tempfile.mkdtemp(prefix=_BUILD_PREFIX, dir=self._state_dir))
            try:
                lay_out(self._blobs.folder, request.snapshot, folder)
                named = bases_of((folder / file).read_text(errors="replace"))
                bases = {base: self._sources.base(base, caller, queue, notify) for base in named}
                image = images.build(folder, file, held_as(request.name, request.tag), notify, bases)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return self._put(request, caller, image, f"built by {caller.user} from {file}")

        return work

    def save(self, request: ImageSave, job: JobInfo, caller: Caller) -> Work:
        """Make an image of what a task has become.

        Raises:
            NotFoundError: the job has no such task.
            ConflictError: it does not run in a container.
        """
        record = read_record(TaskFiles.of(self._state_dir, TaskId(job.id, job.attempt, request.task)))
        if record is None:
            raise NotFoundError(f"task {request.task} of job {job.id} never ran", "wait until it runs")
        if not record.container:
            raise ConflictError(f"job {job.id} does not run in a container", "give it an image first")

        def work(notify: Notify) -> CatalogueImage:
            images = self._host.containers().images
            image = images.save(record.container, held_as(request.name, request.tag), caller.user, notify)
            return self._put(request, caller, image, f"saved from {job.id} by {caller.user}")

        return work

    def _put(
        self, request: ImageEntry, caller: Caller, image: LocalImage, origin: str, login: str = ""
    ) -> CatalogueImage:
        with self._catalogue.changing:
            earlier = self._catalogue.get(request.name, request.tag)
            if earlier is not None:  # perhaps another user's, since this began
                demand(caller, Verb.CHANGE_IMAGES, earlier.target)
            seen: Visibility = request.visibility or ("group" if earlier is None else earlier.visibility)
            words = request.description or ("" if earlier is None else earlier.description)
            entry = CatalogueImage(
                request.name,
                request.tag,
                origin,
                image.digest,
                image.size,
                caller.user,
                first_group(caller) if earlier is None else earlier.group,
                seen,
                words,
                time.time(),
                login,
                next((each for each in image.exact if repository_of(each) == repository_of(origin)), ""),
            )
            self._held.note(*{image.digest, *([] if earlier is None else [earlier.digest])})
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
    """A server that was killed leaves the logins that it used, what it built from and fetched, and programs at that."""
    for folder in state_dir.glob(f"{FOLDER_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)
    builds, scratch = [*state_dir.glob(f"{_BUILD_PREFIX}*")], left_folders(state_dir)  # before this server makes any
    if builds or scratch:
        threading.Thread(target=_end_left, args=(builds, scratch), name="builds", daemon=True).start()


def _end_left(builds: Sequence[Path], scratch: Sequence[Path]) -> None:
    for folder in builds:
        end_builds_from(folder)
        shutil.rmtree(folder, ignore_errors=True)
    for link in scratch:
        remove_left(link)
