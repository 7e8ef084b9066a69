"""What becomes of a job whose image a registry does not give. The words are those of podman 4.3.1, of docker 28 where
it says so, in front of docker-registry 2.8.2."""

from __future__ import annotations

import pytest

from millpond.model.errors import InvalidInputError, MillpondError, NotFoundError, UnavailableError
from millpond.node.containers.pull_errors import pull_error

IMAGE = "127.0.0.1:5055/team/busy:1"
SOURCE = f"initializing source docker://{IMAGE}"
READING = f"{SOURCE}: reading manifest 1 in 127.0.0.1:5055/team/busy"
PINGING = f"{SOURCE}: pinging container registry 127.0.0.1:5055: Get"
DOCKER = "Error response from daemon"


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        (f"{READING}: manifest unknown: manifest unknown", NotFoundError, "has no image"),
        (f"{DOCKER}: manifest for {IMAGE} not found: manifest unknown: manifest unknown", NotFoundError, "no image"),
        (f"{READING}: unauthorized: authentication required", InvalidInputError, "not for everybody"),
        (f"{DOCKER}: pull access denied for busy, repository does not exist", InvalidInputError, "not for everybody"),
        ("no image found in manifest list for architecture arm64", InvalidInputError, "machines of this kind"),
        (
            f'{PINGING} "https://127.0.0.1:5055/v2/": dial tcp 127.0.0.1:5055: connect: connection refused',
            UnavailableError,
            "the registry 127.0.0.1:5055 cannot be reached (connection refused)",
        ),
        (
            f'{PINGING} "https://127.0.0.1:5055/v2/": dial tcp: lookup reg on 10.0.0.1:53: no such host',
            UnavailableError,
            "cannot be reached (no such host)",
        ),
        (
            f'{PINGING} "https://127.0.0.1:5055/v2/": http: server gave HTTP response to HTTPS client',
            UnavailableError,
            "speaks HTTP without TLS",
        ),
        ("writing blob: no space left on device", UnavailableError, "no space left on device"),
    ],
)
def test_what_another_try_would_not_change_is_told_from_what_it_may(
    said: str, kind: type[MillpondError], told: str
) -> None:
    error = pull_error(IMAGE, said)
    assert type(error) is kind
    assert told in error.cause
    assert "docker://" not in error.cause, "what the runtime calls it says nothing to the user"
    assert error.remedy
