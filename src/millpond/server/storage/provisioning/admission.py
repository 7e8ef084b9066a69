"""What a submission needs of the machine: which image its containers have, and whether everything is near already."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millpond.model.errors import InconsistentStateError, InvalidInputError, UnavailableError
from millpond.node.containers.container import variables_text
from millpond.node.containers.container_launch import ContainerLaunch, default_owner
from millpond.node.host.controllers import Amounts
from millpond.node.host.file_rights import with_rights_of
from millpond.node.host.identities import MachineAccount
from millpond.server.auth.roles import Caller
from millpond.server.storage.provisioning.cache import READ_IN_PLACE, CopyProgress, DataCache
from millpond.server.storage.provisioning.host import ContainerHost
from millpond.server.storage.provisioning.image_sources import ImageRules, ImageSources
from millpond.server.storage.provisioning.staging import Item
from millpond.server.store.jobs import JobStore
from millpond.specs.job.dataset_refs import dataset_ref
from millpond.specs.job.images import ImageRequest, Pinned
from millpond.specs.job.job_file import JobFile, RoleFile
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
        sources: has the images.
        rules: which registries jobs may have images from.
    """

    def __init__(
        self, job_store: JobStore, host: ContainerHost, sources: ImageSources, cache: DataCache, rules: ImageRules
    ) -> None:
        self._job_store = job_store
        self._host = host
        self._sources = sources
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
            stored["pinned"] = Pinned(image=digest).model_dump(mode="json", exclude_none=True)
        elif self._rules.may_be_within(file.queue, file.pool, by_admin=caller.admin):
            stored["pinned"] = Pinned(within=True).model_dump(mode="json", exclude_none=True)
        return Settled(stored, waits=not is_here or bool(self._far(file, identity)))

    def launch(self, file: JobFile, identity: MachineAccount | None) -> ContainerLaunch | None:
        """How a job's tasks are put into containers; None when they run in the machine's own environment.

        Args:
            identity: whom they run as; None: as the server does.

        Raises:
            UnavailableError: what runs containers does not work any more, or cannot run them as another account.
        """
        if file.image is None:
            return None
        containers = self._host.containers()
        if file.pinned is None or file.pinned.image is None:
            raise InconsistentStateError(f"a job with the image {file.image.name!r} came to start without its digest")
        image = containers.images.at(file.pinned.image)
        if identity is not None and containers.runtime.as_caller:
            raise UnavailableError(
                f"{containers.version} cannot run containers as {identity.name}",
                "install podman, or have jobs run as one",
            )
        owner = default_owner(containers) if identity is None else (identity.uid, identity.gid)
        amounts = {role.name: _amounts(file, role) for role in file.all_roles()}
        return ContainerLaunch(containers, image, self._host.state_dir, amounts, owner)

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
        return self._sources.fetch(item, lambda _line: stop()).digest

    def pin(self, job: str, found: Mapping[str, str]) -> None:
        """Write down what was found for a job."""
        data = {name.partition(".")[2]: key for name, key in found.items() if name != "image"}
        pinned = Pinned(
            image=found.get("image"), data={name: key for name, key in data.items() if key != READ_IN_PLACE}
        )
        self._job_store.pin(job, pinned.model_dump(mode="json", exclude_none=True))

    # ---- inside -------------------------------------------------------------------------------------------------

    def _far(self, file: JobFile, identity: MachineAccount | None) -> list[Path]:
        """The data that is read through the cache."""
        paths = [source for source in file.data.values() if dataset_ref(source) is None]
        found = with_rights_of(identity, lambda: [followed(path, "data path") for path in paths])
        return [path for path in found if self._cache.source_of(path) is not None]

    def _resolve(self, file: JobFile, caller: Caller) -> tuple[str, bool]:
        """The digest of the image that a job containers, empty where that is not known yet; and whether it is here."""
        assert file.image is not None
        images, name = self._host.containers().images, file.image.name
        entry = self._sources.usable(name, caller)
        if entry is not None:
            is_here = images.find(entry.digest) is not None
            if not is_here and not entry.sources:
                raise InvalidInputError(
                    f"the image {entry.reference} is not on this machine any more", "build it again, or save it again"
                )
            return entry.digest, is_here
        reference = self._sources.check_reference(file.queue, name, file.pool, by_admin=caller.admin)
        found = images.find(reference)
        if found is None and reference.startswith("localhost/"):
            raise InvalidInputError(f"no image {name!r} on this machine", "see `pond image ls`, or name its registry")
        return ("", False) if found is None else (found.digest, True)

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


def _amounts(file: JobFile, role: RoleFile) -> Amounts:
    """What a role's tasks are kept to: the memory that they asked for by name, and a weight by their CPUs."""
    return Amounts(role.cpus or 0, (role.memory or 0) if file.names_memory(role.name) else 0)
