"""What a submission needs of the machine: which image it means, and whether everything is near already."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import InconsistentStateError, InvalidInputError, NotFoundError, UnavailableError
from millpond.node.containers.container import variables_text
from millpond.node.containers.container_launch import Boundary, ContainerLaunch, default_owner
from millpond.node.containers.images import LocalImage
from millpond.node.containers.logins import RegistryLogin
from millpond.node.host.file_rights import with_rights_of
from millpond.node.host.identities import MachineAccount
from millpond.server.auth.roles import Caller, Verb, allows
from millpond.server.storage.provisioning.cache import READ_IN_PLACE, CopyProgress, DataCache
from millpond.server.storage.provisioning.catalogue import Catalogue, CatalogueImage
from millpond.server.storage.provisioning.host import ContainerHost
from millpond.server.storage.provisioning.image_rules import ImageRules, require_outside
from millpond.server.storage.provisioning.staging import Item
from millpond.server.store.store import Store
from millpond.specs.job.images import LOCAL_REGISTRY, OURS, ImageRequest, Pinned, catalogued, whole
from millpond.specs.job.job_file import JobFile, RoleFile
from millpond.specs.job.mounts import dataset_ref
from millpond.specs.paths import followed

NEEDED: Final = frozenset({"image", "data"})
"""Fields of a job file that may name what is not on the machine."""
_SYSTEM_FOLDERS: Final = ("bin", "boot", "dev", "etc", "lib", "proc", "run", "sbin", "sys", "usr")
_THE_SYSTEMS: Final = tuple(Path("/", name) for name in _SYSTEM_FOLDERS)
_NOT_WHOLE: Final = tuple(map(Path, ("/", "/tmp", "/var", "/var/run")))
_CARDS_FOR_CONTAINERS: Final = (
    "an admin describes them: nvidia-ctk cdi generate --device-name-strategy uuid --output /etc/cdi/nvidia.yaml"
)


@dataclass(frozen=True, slots=True)
class Settled:
    """A submission with what was found for it.

    Attributes:
        document: as it is stored.
        warnings: what was asked for and is left out.
        waits: not everything that it needs is on the machine.
    """

    document: dict[str, Any]
    warnings: tuple[str, ...] = ()
    waits: bool = False


class Provisions:
    """What jobs are provided with on this machine.

    Args:
        rules: which registries jobs may have images from.
    """

    def __init__(
        self, store: Store, host: ContainerHost, catalogue: Catalogue, cache: DataCache, rules: ImageRules
    ) -> None:
        self._store = store
        self._host = host
        self._catalogue = catalogue
        self._cache = cache
        self._rules = rules

    async def admit(
        self, file: JobFile, document: dict[str, Any], caller: Caller, identity: MachineAccount | None = None
    ) -> Settled:
        """What a job needs; see ``settle``."""
        if file.asks_for_provisions:
            return await asyncio.to_thread(self.settle, file, document, caller, identity)
        return Settled(document)

    def settle(
        self, file: JobFile, document: Mapping[str, Any], caller: Caller, identity: MachineAccount | None = None
    ) -> Settled:
        """What a job needs; asks the container runtime, so it may take some tenths of a second.

        Args:
            identity: whom its tasks run as; None: as the server does.

        Raises:
            InvalidInputError: it asks for an image and nothing here runs containers, or not with what else it asks for;
                or its queue's jobs may not have that image.
        """
        stored = {name: value for name, value in document.items() if name != "pinned"}
        if file.image is None:
            return Settled(stored, waits=bool(self._far(file, identity)))
        try:
            self._host.containers()
        except UnavailableError as error:
            if not file.image.optional:
                raise InvalidInputError(
                    f"the job asks for the image {file.image.name!r}: {error.cause}", error.remedy
                ) from error
            del stored["image"]
            warning = f"the image {file.image.name!r} is not used: {error.cause}"
            return Settled(stored, (warning,), waits=bool(self._far(file, identity)))
        self._check_containable(file, identity)
        digest, is_here = self._resolve(file, caller)
        if digest:
            stored["pinned"] = Pinned(image=digest).model_dump(mode="json")
        elif self._rules.may_be_within(file.queue, file.pool, by_admin=caller.admin):
            stored["pinned"] = Pinned(within=True).model_dump(mode="json")
        return Settled(stored, waits=not is_here or bool(self._far(file, identity)))

    def launch(self, file: JobFile, identity: MachineAccount | None) -> ContainerLaunch | None:
        """How a job's tasks are put into containers; None when they run in the machine's own environment.

        Args:
            identity: whom they run as; None: as the server does.

        Raises:
            UnavailableError: what runs containers does not work any more, or cannot run them as somebody else.
        """
        if file.image is None:
            return None
        means = self._host.containers()
        if file.pinned is None or file.pinned.image is None:
            raise InconsistentStateError(f"a job with the image {file.image.name!r} came to start without its digest")
        image = means.images.at(file.pinned.image)
        if identity is not None and means.runtime.as_caller:
            raise UnavailableError(
                f"{means.version} cannot run containers as {identity.name}", "install podman, or have jobs run as one"
            )
        owner = default_owner(means) if identity is None else (identity.uid, identity.gid)
        boundaries = {role.name: _boundary(file, role) for role in file.all_roles()}
        return ContainerLaunch(means, image, self._host.state_dir, boundaries, owner)

    # ---- for the staging ----------------------------------------------------------------------------------------

    def items(self, document: Mapping[str, Any]) -> dict[str, Item]:
        """What a job needs, by the field that names it."""
        found: dict[str, Item] = {}
        if "image" in document:
            pinned = document.get("pinned") or {}
            name, digest = ImageRequest.model_validate(document["image"]).name, pinned.get("image") or ""
            found["image"] = Item("image", name, digest, not digest and pinned.get("within", False))
        for name, source in document.get("data", {}).items():
            try:
                path = Path(os.path.realpath(source))
            except OSError:
                continue  # it was refused when it was submitted, or is when it starts
            if dataset_ref(source) is None and self._cache.source_of(path) is not None:
                found[f"data.{name}"] = Item("data", str(path))
        return found

    def fetch(self, item: Item, progress: CopyProgress, stop: Callable[[], None]) -> str:
        """Have an item here; returns its digest, or the key of its copy."""
        if item.kind == "data":
            return self._cache.fetch(Path(item.name), progress, stop)
        return self._fetch_image(item, lambda _line: stop()).digest

    def pin(self, job: str, found: Mapping[str, str]) -> None:
        """Write down what was found for a job."""
        data = {name.partition(".")[2]: key for name, key in found.items() if name != "image"}
        pinned = Pinned(
            image=found.get("image"), data={name: key for name, key in data.items() if key != READ_IN_PLACE}
        )
        self._store.jobs.pin(job, pinned.model_dump(mode="json"))

    # ---- inside -------------------------------------------------------------------------------------------------

    def _far(self, file: JobFile, identity: MachineAccount | None) -> list[Path]:
        """The data that is read through the cache."""
        paths = [source for source in file.data.values() if dataset_ref(source) is None]
        found = with_rights_of(identity, lambda: [followed(path, "data path") for path in paths])
        return [path for path in found if self._cache.source_of(path) is not None]

    def _resolve(self, file: JobFile, caller: Caller) -> tuple[str, bool]:
        """The digest of the image that a job means, empty where that is not known yet; and whether it is here."""
        assert file.image is not None
        images, name = self._host.containers().images, file.image.name
        entry = self._entry(name)
        if entry is not None and allows(caller, Verb.READ_IMAGES, entry.seen):
            is_here = images.find(entry.digest) is not None
            if not is_here and not entry.sources:
                raise InvalidInputError(
                    f"the image {entry.reference} is not on this machine any more", "build it again, or save it again"
                )
            return entry.digest, is_here
        reference = self.check_reference(file.queue, name, file.pool, by_admin=caller.admin)
        found = images.find(reference)
        if found is None and reference.startswith("localhost/"):
            raise InvalidInputError(f"no image {name!r} on this machine", "see `pond image ls`, or name its registry")
        return ("", False) if found is None else (found.digest, True)

    def check_reference(self, queue: str, name: str, pool: str = "", *, by_admin: bool = False) -> str:
        """The whole reference of an image that need not be in the catalogue.

        Args:
            queue, pool: whose rules count; empty: none.

        Raises:
            InvalidInputError: the jobs of one of them may not have it, or it goes round the catalogue.
        """
        reference = whole(name)
        if reference.startswith(OURS):
            raise InvalidInputError(f"{name!r} goes round the catalogue", "name the image as `pond image ls` shows it")
        self._rules.check(reference, queue, pool, by_admin=by_admin)
        return reference

    def check_target(self, queue: str, name: str) -> str:
        """The whole reference as which an image may be sent to a registry; what a queue may have from, it may give to.

        Raises:
            InvalidInputError: it names no registry, or not one that the jobs of the queue may have images from.
        """
        reference = self.check_reference(queue, name)
        if not name.startswith(reference.partition("/")[0] + "/") or reference.startswith(f"{LOCAL_REGISTRY}/"):
            raise InvalidInputError(f"{name!r} names no registry", "write REGISTRY/REPOSITORY:TAG")
        if "@" in reference:
            raise InvalidInputError(f"{name!r} has a digest, which a registry works out itself", "leave it out")
        return reference

    def check_place(self, queue: str, reference: str) -> None:
        """Check, right before a registry is asked, where its name leads; see ``require_outside``.

        Args:
            queue: as in ``check_reference``, which has checked how the registry is named.
        """
        if not self._rules.may_be_within(queue):
            require_outside(reference)

    def here(self, entry: CatalogueImage, tell: Callable[[str], None]) -> LocalImage:
        """An image of the catalogue, fetched where it is not here; see ``fetch_catalogued``."""
        return self._host.containers().images.find(entry.digest) or self.fetch_catalogued(entry, tell)

    def _fetch_image(self, item: Item, tell: Callable[[str], None]) -> LocalImage:
        images = self._host.containers().images
        if item.digest:
            found, entry = images.find(item.digest), self._entry(item.name)
            if found is not None:
                return found
            if entry is None or entry.digest != item.digest:
                raise InvalidInputError(f"the image {item.name} was replaced or removed", "hand the job in again")
            return self.fetch_catalogued(entry, tell)
        reference = whole(item.name)
        here = images.find(reference)
        if here is None and not item.within:
            require_outside(reference)
        return here or images.pull(reference, tell)

    def fetch_catalogued(self, entry: CatalogueImage, tell: Callable[[str], None]) -> LocalImage:
        """Have an image of the catalogue here again.

        Raises:
            InvalidInputError: it came from no registry, or another is there now.
            NotFoundError, UnavailableError: the registry does not give it, or the secret for it is gone.
        """
        if not entry.sources:
            raise InvalidInputError(f"the image {entry.reference} is gone, and came from no registry", "build it again")
        login = self._rules.login(entry.user, entry.group, entry.login)
        for source in entry.sources[:-1]:
            try:
                return self._fetch_from(source, entry, login, tell)
            except NotFoundError:
                tell(f"{source} is there no more")  # a registry may tidy away what no tag means; the tag may be left
        return self._fetch_from(entry.sources[-1], entry, login, tell)

    def _fetch_from(
        self, source: str, entry: CatalogueImage, login: RegistryLogin | None, tell: Callable[[str], None]
    ) -> LocalImage:
        images = self._host.containers().images
        with self.fetched(source, login, tell) as found:
            if found.digest != entry.digest:
                raise InvalidInputError(
                    f"{source} is another image now than when it was put into the catalogue",
                    f"put it there again: pond image add {entry.reference} {source}",
                )
            images.name(found, entry.held_as)
        if source == entry.exact and login is None:
            images.drop(source)  # the catalogue holds it; what took a login has lost that name already
        return found

    def base(self, name: str, caller: Caller, queue: str, tell: Callable[[str], None]) -> str:
        """The reference of an image that is built upon: of the catalogue, and on the machine then, or of a registry.

        Args:
            queue: as in ``check_reference``, with its error.
        """
        entry = self._entry(name)
        if entry is None or not allows(caller, Verb.READ_IMAGES, entry.seen):
            reference = self.check_reference(queue, name)
            self.check_place(queue, reference)
            return reference
        images = self._host.containers().images
        images.name(self.here(entry, tell), entry.held_as)
        return entry.held_as

    @contextmanager
    def fetched(self, reference: str, login: RegistryLogin | None, tell: Callable[[str], None]) -> Iterator[LocalImage]:
        """An image that its registry has just given.

        What took a login stays only under the names that it is given meanwhile: somebody else who names the reference
        has to be let in by the registry, too.
        """
        images = self._host.containers().images
        found = images.pull(reference, tell, login)
        try:
            yield found
        finally:
            if login is not None:
                images.drop(reference)

    def login(self, user: str, group: str, secret: str) -> RegistryLogin | None:
        """See ``ImageRules``."""
        return self._rules.login(user, group, secret)

    def is_needed(self, digest: str) -> bool:
        """Whether a job that has not ended runs in an image, or will."""
        return digest in {document["pinned"].get("image") for document in self._store.jobs.live_pins()}

    def _entry(self, name: str) -> CatalogueImage | None:
        parts = catalogued(name)
        return None if parts is None else self._catalogue.get(*parts)

    def _check_containable(self, file: JobFile, identity: MachineAccount | None) -> None:
        """Whether a container can have everything that the job asks for.

        Raises:
            InvalidInputError: not.
        """
        variables_text(file.env)
        if any(role.gpus is not None and role.gpus.cards for role in file.all_roles()):
            trouble = self._host.card_trouble()
            if trouble:
                raise InvalidInputError(f"a container cannot be given cards here: {trouble}", _CARDS_FOR_CONTAINERS)
        paths = [source for source in file.data.values() if dataset_ref(source) is None]
        paths += [path for path in (file.output, None if file.ship else file.workdir) if path]
        for path in paths:
            if ":" in path:
                raise InvalidInputError(f"the path {path!r} has a colon, which no container can be given", "rename it")
        if file.workdir and not file.ship:
            workdir = file.workdir
            _check_workdir(with_rights_of(identity, lambda: followed(workdir, "working directory")))


def _check_workdir(folder: Path) -> None:
    """It will be writable in the container, where nothing of the machine's own may be.

    Raises:
        InvalidInputError: it is.
    """
    if folder in _NOT_WHOLE or any(folder.is_relative_to(root) for root in _THE_SYSTEMS):
        raise InvalidInputError(
            f"the working directory {folder} holds what is the machine's own, which no container is given",
            "run it elsewhere, or send the directory with the job (ship: true)",
        )


def _boundary(file: JobFile, role: RoleFile) -> Boundary:
    """What a role's tasks are kept to: the memory that they asked for by name, and a weight by their CPUs."""
    own = next((each for each in file.roles or () if each.name == role.name), None)
    said = "memory" in file.model_fields_set or (own is not None and own.memory is not None)
    return Boundary((role.memory or 0) if said else 0, role.cpus or 0)
