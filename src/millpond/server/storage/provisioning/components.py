"""The components that provide images and data for jobs, put together once for each server."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.node.containers.detection import RuntimeChoice
from millpond.node.containers.images import RuntimeImages
from millpond.node.containers.removal import drop_ended, drop_lost
from millpond.server.auth.vault.secrets import Vault
from millpond.server.storage.files.collector import SPARED_S
from millpond.server.storage.files.mounts import MountRules
from millpond.server.storage.provisioning.admission import Provisions
from millpond.server.storage.provisioning.cache import DataCache
from millpond.server.storage.provisioning.catalogue import Catalogue, CatalogueImage, HeldImages
from millpond.server.storage.provisioning.host import ContainerHost
from millpond.server.storage.provisioning.image_sources import ImageRules, ImageSources
from millpond.server.storage.provisioning.images import ImageService
from millpond.server.storage.provisioning.staging import Staging
from millpond.server.store.store import Store
from millpond.specs.config.provisioning import ProvisioningRules
from millpond.specs.config.queues import QueueRules
from millpond.specs.job.images import CATALOGUE_PREFIX

log = logging.getLogger(__name__)

CACHE_FOLDER = "cache"
_HELD_FILE = "images.json"


@dataclass(frozen=True, slots=True)
class ProvisioningDependencies:
    """What it is made of.

    Attributes:
        paths: gives what queues' jobs may use.
        provisioning: gives what the configuration says; the runtime and the folder of the cache count from the start.
        wake: called when a job has become ready; must return at once.
        has_cards: there are NVIDIA cards on the machine.
        nodes: the names of its nodes.
    """

    paths: Callable[[], Mapping[str, QueueRules]] = dict
    provisioning: Callable[[], ProvisioningRules] = ProvisioningRules
    wake: Callable[[], None] = lambda: None
    has_cards: bool = False
    nodes: tuple[str, ...] = ()


class Provisioning:
    """The parts, each for its users.

    Args:
        vault: has the logins of registries.
    """

    def __init__(
        self,
        store: Store,
        state_dir: Path,
        vault: Vault,
        dependencies: ProvisioningDependencies = ProvisioningDependencies(),
    ) -> None:
        self._store = store
        config = dependencies.provisioning()
        self.rules = MountRules(dependencies.paths, state_dir)
        self.host = ContainerHost(RuntimeChoice(config.runtime), state_dir, time.monotonic, dependencies.has_cards)
        self.catalogue = Catalogue(store.database)
        self.held = HeldImages(state_dir / _HELD_FILE)
        self.cache = DataCache(
            config.cache or state_dir / CACHE_FOLDER,
            lambda: dependencies.provisioning().sources,
            lambda: self.staging.found() | store.jobs.pinned_copies(),  # in this order: what is found is pinned
        )
        rules = ImageRules(self.rules, dependencies.provisioning, vault)
        self.sources = ImageSources(store.jobs, self.host, self.catalogue, rules)
        self.provisions = Provisions(store.jobs, self.host, self.sources, self.cache, rules)
        self.staging = Staging(self.provisions, dependencies.wake)
        self.images = ImageService(self.host, self.catalogue, self.sources, self.held, state_dir, dependencies.nodes)

    def tidy(self, now: float) -> None:
        """Drop containers that ended long ago or unknown to their runtime, and images taken out of the catalogue.

        Args:
            now: seconds since 1970.
        """
        if not self.catalogue.all() and not self.held.all() and not self._store.jobs.ended_with(("image",), now):
            return  # no container ever ran here
        try:
            containers = self.host.containers()
        except UnavailableError as error:
            log.warning("containers cannot be tidied up: %s", error)
            return
        dropped = drop_ended(containers, self.host.mark, now - SPARED_S)
        dropped += drop_lost(containers, self.host.mark, self.host.state_dir)
        if dropped:
            log.info("removed %d containers of ended tasks", dropped)
        with self.catalogue.changing:
            self._drop_images(containers.images, self.catalogue.all())

    def _drop_images(self, images: RuntimeImages, entries: Sequence[CatalogueImage]) -> None:
        """Drop what left the catalogue, or was replaced there, and no job needs any more."""
        self.held.note(*(entry.digest for entry in entries))
        kept = {entry.held_as for entry in entries}
        left = self.held.all() - {entry.digest for entry in entries}
        names = [name for name in images.names(CATALOGUE_PREFIX) if name not in kept] if left else []
        found = {name: image.digest for name in names if (image := images.find(name)) is not None}
        for digest in left:
            if not self.sources.is_needed(digest):
                for name in [name for name, held in found.items() if held == digest]:
                    images.drop(name)
                images.discard(digest)
                if images.find(digest) is None:
                    self.held.forget(digest)
