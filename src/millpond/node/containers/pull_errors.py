"""Why an image could not be fetched from a registry, or not sent to one: it has none, lets others only, or is not to be
reached now.

Runtimes report this in words alone. They pass on those of registries (OCI Distribution Specification 1.1, "Error
codes", whose messages each registry writes itself) and those of Go's network library, seen with podman 4.3.1 and
docker-registry 2.8.2. What is not among the words below counts as a trouble of now: it is tried again, and named.
"""

from __future__ import annotations

from typing import Final

from millpond.model.errors import InvalidInputError, MillpondError, NotFoundError, UnavailableError

_ABSENT: Final = ("manifest unknown", "name unknown", "repository name not known", "not found: manifest")
_REFUSED: Final = ("unauthorized", "authentication required", "denied", "no basic auth credentials", "forbidden")
_OTHER_MACHINES: Final = ("no image found in", "no matching manifest for")
_WITHOUT_TLS: Final = ("server gave http response to https client",)
_UNREACHED: Final = (
    "connection refused",
    "no such host",
    "server misbehaving",
    "i/o timeout",
    "tls handshake timeout",
    "deadline exceeded",
    "network is unreachable",
    "no route to host",
    "connection reset by peer",
)


def pull_error(reference: str, said: str) -> MillpondError:
    """The error that stands for what a runtime said at last when it should fetch an image.

    Args:
        reference: of the image, with its registry.

    Returns:
        ``NotFoundError``, ``InvalidInputError``: another try would end in the same way.
        ``UnavailableError``: it need not.
    """
    registry = reference.partition("/")[0]
    if _means(said, _ABSENT):
        return NotFoundError(f"the registry {registry} has no image {reference}", "check its name and its tag")
    if _means(said, _REFUSED):
        return InvalidInputError(
            f"the registry {registry} does not give {reference}: it has none of this name, or not for everybody",
            "check the name; a login is kept with `pond secret set`, and used by `pond image add --login`",
        )
    if _means(said, _OTHER_MACHINES):
        return InvalidInputError(f"the image {reference} is not made for machines of this kind", "choose another")
    return _unreached(registry, said) or UnavailableError(
        f"the image {reference} cannot be fetched: {said}", "check its name and registry"
    )


def push_error(reference: str, said: str) -> MillpondError:
    """The same for what was said when an image should be sent to its registry."""
    registry = reference.partition("/")[0]
    if _means(said, _REFUSED):
        return InvalidInputError(
            f"the registry {registry} does not take {reference}, or not from everybody",
            "check the name; a login is kept with pond secret set, and used by pond image push --login",
        )
    return _unreached(registry, said) or UnavailableError(
        f"the image cannot be sent as {reference}: {said}", "check the name and the registry"
    )


def _unreached(registry: str, said: str) -> UnavailableError | None:
    if _means(said, _WITHOUT_TLS):
        return UnavailableError(
            f"the registry {registry} speaks HTTP without TLS, which the container runtime does not trust",
            "an admin can allow it: insecure = true in podman's registries.conf, insecure-registries in docker's "
            "daemon.json",
        )
    if _means(said, _UNREACHED):
        return UnavailableError(
            f"the registry {registry} cannot be reached ({said.rpartition(': ')[2]})", "try again when it can"
        )
    return None


def _means(said: str, known: tuple[str, ...]) -> bool:
    words = said.lower()
    return any(each in words for each in known)
