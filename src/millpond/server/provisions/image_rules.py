"""Which registries and repositories jobs may have images from, and how one is let in there."""

from __future__ import annotations

from collections.abc import Callable

from millpond.model.errors import InvalidInputError
from millpond.node.containers.logins import Login
from millpond.server.files.mounts import MountRules
from millpond.server.vault.secrets import Vault
from millpond.specs.images import is_below
from millpond.specs.provisioning import Provisioning


class ImageRules:
    """The allow-lists of all queues and pools, as they are in force, and the logins that people keep.

    Args:
        queues: knows the lists of the queues.
        provisioning: gives those of the pools.
        vault: has the logins, as secrets.
    """

    def __init__(self, queues: MountRules, provisioning: Callable[[], Provisioning], vault: Vault) -> None:
        self._queues = queues
        self._provisioning = provisioning
        self._vault = vault

    def login(self, user: str, group: str, secret: str) -> Login | None:
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
        return Login(name, password)

    def check(self, reference: str, queue: str = "", pool: str = "") -> None:
        """Whether an image of a registry may be had by jobs of a queue in a pool; an empty name sets no bounds.

        Raises:
            InvalidInputError: not.
        """
        rules = (
            (f"of queue {queue!r}", self._queues.images(queue) if queue else None),
            (f"in pool {pool!r}", self._provisioning().images.get(pool)),
        )
        for whose, allowed in rules:
            if allowed is not None and not is_below(reference, allowed):
                raise InvalidInputError(
                    f"jobs {whose} may not have the image {reference}",
                    "they may have those of the catalogue (`pond image ls`), and from: "
                    f"{', '.join(allowed) or 'no registry'}",
                )
