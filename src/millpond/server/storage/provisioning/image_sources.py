"""Images of registries and of the catalogue: which jobs may have, how one is let in there, and how they come here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.node.containers.images import LocalImage
from millpond.node.containers.logins import RegistryLogin
from millpond.server.auth.roles import Caller, Verb, allows
from millpond.server.auth.vault.secrets import Vault
from millpond.server.http.outgoing import AddressScope, reach_of, reaches_of
from millpond.server.storage.files.mounts import MountRules
from millpond.server.storage.provisioning.catalogue import Catalogue, CatalogueImage
from millpond.server.storage.provisioning.containerfile import bases_of
from millpond.server.storage.provisioning.host import ContainerHost
from millpond.server.storage.provisioning.staging import Item
from millpond.server.store.jobs import JobStore
from millpond.specs.config.provisioning import ProvisioningRules
from millpond.specs.job.images import CATALOGUE_PREFIX, LOCAL_REGISTRY, catalogued, is_below, whole

_INNER: Final = frozenset({AddressScope.MACHINE, AddressScope.LINK})


class ImageRules:
    """The allow-lists of all queues and pools, as they are in force, and the logins that people keep.

    Args:
        queues: knows the lists of the queues.
        provisioning: gives those of the pools.
        vault: has the logins, as secrets.
    """

    def __init__(self, queues: MountRules, provisioning: Callable[[], ProvisioningRules], vault: Vault) -> None:
        self._queues = queues
        self._provisioning = provisioning
        self._vault = vault

    def login(self, user: str, group: str, secret: str) -> RegistryLogin | None:
        """The login that a secret of a user, else of their group, says; None when no secret is named.

        Raises:
            NotFoundError, UnavailableError: neither has it, or it cannot be opened.
            InvalidInputError: it is no login.
        """
        if not secret:
            return None
        name, colon, password = self._vault.environment(user, group, (secret,))[secret].partition(":")
        if not colon or not name:
            raise InvalidInputError(
                f"the secret {secret!r} is no login", f"have it say USER:PASSWORD: pond secret set {secret}"
            )
        return RegistryLogin(name, password)

    def check(self, reference: str, queue: str = "", pool: str = "", *, by_admin: bool = False) -> None:
        """Whether an image of a registry may be had by jobs of a queue in a pool; an empty name sets no bounds.

        Args:
            by_admin: who may have the server's machine and its link asked, without a list that says so.

        Raises:
            InvalidInputError: not.
        """
        for whose, allowed in self._lists(queue, pool):
            if allowed is not None and not is_below(reference, allowed):
                raise InvalidInputError(
                    f"jobs {whose} may not have the image {reference}",
                    "they may have those of the catalogue (`pond image ls`), and from: "
                    f"{', '.join(allowed) or 'no registry'}",
                )
        if _is_named_within(reference) and not self.may_be_within(queue, pool, by_admin=by_admin):
            raise _within(reference)

    def may_be_within(self, queue: str, pool: str = "", *, by_admin: bool = False) -> bool:
        """Whether a registry that ``check`` allows may be on the server's own machine, or on its link."""
        return not queue or by_admin or any(allowed is not None for _, allowed in self._lists(queue, pool))

    def _lists(self, queue: str, pool: str) -> tuple[tuple[str, tuple[str, ...] | None], ...]:
        return (
            (f"of queue {queue!r}", self._queues.images(queue) if queue else None),
            (f"in pool {pool!r}", self._provisioning().images.get(pool)),
        )


def require_outside(reference: str) -> None:
    """Check, right before a registry is asked, where its name leads. It waits for the machine's resolver.

    What fetches images looks the name up once more, so a name that changes at that very moment is not noticed.

    Raises:
        InvalidInputError: to the server's own machine, or to its link.
    """
    if not _INNER.isdisjoint(reaches_of(_host_of(reference))):
        raise _within(reference)


def _within(reference: str) -> InvalidInputError:
    return InvalidInputError(
        f"the registry of {reference} is at an address of the server's own machine or of its link",
        "an admin adds the image to the catalogue, or lists the registry in `images` of the queue",
    )


def _is_named_within(reference: str) -> bool:
    """Whether a registry is named by an address that others than the server's machine cannot reach."""
    host = _host_of(reference)
    if host == LOCAL_REGISTRY:
        return ":" in reference.partition("/")[0]  # without a port these are the images that are there already
    try:
        return reach_of(host) in _INNER
    except ValueError:
        return False


def _host_of(reference: str) -> str:
    return urlsplit(f"//{reference.partition('/')[0]}").hostname or ""


class ImageSources:
    """Where images come from.

    Args:
        rules: which registries jobs may have images from.

    Attributes:
        login: as ``ImageRules.login``.
    """

    def __init__(self, job_store: JobStore, host: ContainerHost, catalogue: Catalogue, rules: ImageRules) -> None:
        self._job_store = job_store
        self._host = host
        self._catalogue = catalogue
        self._rules = rules
        self.login = rules.login

    def entry(self, name: str) -> CatalogueImage | None:
        """The entry of the catalogue that a name means; None when none."""
        parts = catalogued(name)
        return None if parts is None else self._catalogue.get(*parts)

    def usable(self, name: str, caller: Caller) -> CatalogueImage | None:
        """The same, if the caller may use it."""
        entry = self.entry(name)
        return entry if entry is not None and allows(caller, Verb.READ_IMAGES, entry.seen) else None

    def check_reference(self, queue: str, name: str, pool: str = "", *, by_admin: bool = False) -> str:
        """The whole reference of an image that need not be in the catalogue.

        Args:
            queue, pool: whose rules count; empty: none.

        Raises:
            InvalidInputError: the jobs of one of them may not have it, or it goes round the catalogue.
        """
        reference = whole(name)
        if reference.startswith(CATALOGUE_PREFIX):
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

    def here(self, entry: CatalogueImage, notify: Callable[[str], None]) -> LocalImage:
        """An image of the catalogue, fetched where it is not here; see ``fetch_catalogued``."""
        return self._host.containers().images.find(entry.digest) or self.fetch_catalogued(entry, notify)

    def fetch_catalogued(self, entry: CatalogueImage, notify: Callable[[str], None]) -> LocalImage:
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
                return self._fetch_from(source, entry, login, notify)
            except NotFoundError:
                notify(f"{source} is there no more")  # a registry may tidy away what no tag means; the tag may be left
        return self._fetch_from(entry.sources[-1], entry, login, notify)

    def _fetch_from(
        self, source: str, entry: CatalogueImage, login: RegistryLogin | None, notify: Callable[[str], None]
    ) -> LocalImage:
        images = self._host.containers().images
        with self.fetched(source, login, notify) as found:
            if found.digest != entry.digest:
                raise InvalidInputError(
                    f"{source} is another image now than when it was put into the catalogue",
                    f"put it there again: pond image add {entry.reference} {source}",
                )
            images.name(found, entry.held_as)
        return found

    def base(self, name: str, caller: Caller, queue: str, notify: Callable[[str], None]) -> LocalImage:
        """An image that is built upon, of the catalogue or of a registry; on the machine then.

        Args:
            queue: as in ``check_reference``, with its error.

        Raises:
            InvalidInputError: it would have builds use further images, which are not checked.
        """
        entry, images = self.usable(name, caller), self._host.containers().images
        if entry is None:
            reference = self.check_reference(queue, name)
            self.check_place(queue, reference)
            image = images.find(reference) or images.pull(reference, notify)
        else:
            image = self.here(entry, notify)
            images.name(image, entry.held_as)
        if any(map(bases_of, images.triggers(image))):
            raise InvalidInputError(f"what is built upon {name!r} uses other images (ONBUILD)", "build upon another")
        return image

    @contextmanager
    def fetched(
        self, reference: str, login: RegistryLogin | None, notify: Callable[[str], None]
    ) -> Iterator[LocalImage]:
        """An image that its registry has just given; it stays only under the names that it is given meanwhile.

        One that was here under its reference keeps that, as somebody may have fetched it for themselves. What took a
        login does not: another user who names the reference has to be let in by the registry, too.
        """
        images = self._host.containers().images
        was_here = login is None and images.find(reference) is not None
        found = images.pull(reference, notify, login)
        try:
            yield found
        finally:
            if not was_here:
                images.drop(reference)

    def fetch(self, item: Item, notify: Callable[[str], None]) -> LocalImage:
        """An image that jobs wait for, fetched where it is not here.

        Raises:
            InvalidInputError, NotFoundError: it can never be had.
            UnavailableError: not now.
        """
        images = self._host.containers().images
        if item.digest:
            found, entry = images.find(item.digest), self.entry(item.name)
            if found is not None:
                return found
            if entry is None or entry.digest != item.digest:
                raise InvalidInputError(f"the image {item.name} was replaced or removed", "submit the job again")
            return self.fetch_catalogued(entry, notify)
        reference = whole(item.name)
        here = images.find(reference)
        if here is None and not item.within:
            require_outside(reference)
        return here or images.pull(reference, notify)

    def is_needed(self, digest: str) -> bool:
        """Whether a job that has not ended runs in an image, or will."""
        return digest in {document["pinned"].get("image") for document in self._job_store.live_pins()}
