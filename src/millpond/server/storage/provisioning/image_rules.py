"""Which registries and repositories jobs may have images from, and how one is let in there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from millpond.model.errors import InvalidInputError
from millpond.node.containers.logins import RegistryLogin
from millpond.server.auth.vault.secrets import Vault
from millpond.server.http.outgoing import AddressScope, reach_of, reaches_of
from millpond.server.storage.files.mounts import MountRules
from millpond.specs.config.provisioning import ProvisioningRules
from millpond.specs.job.images import LOCAL_REGISTRY, is_below

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
