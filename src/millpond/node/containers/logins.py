"""Logins of registries, passed to podman and docker in a file that exists only while they need it.

Neither command lines nor variables will do: others of the machine can read the first, and only apptainer knows the
second. Source of the file: containers-auth.json(5), which is docker's ``config.json``.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FOLDER_PREFIX: Final = "login-"
"""So begin the names of the folders that the files lie in."""

_DEFAULT_REGISTRY: Final = "docker.io"
_DEFAULT_KEY: Final = "https://index.docker.io/v1/"
"""What the login of ``docker.io`` is called in the file."""


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """Who we are to a registry."""

    user: str
    password: str = field(repr=False)


@contextmanager
def login_file(login: RegistryLogin | None, registry: str, parent: Path) -> Iterator[dict[str, str]]:
    """The variables by which podman and docker find a login, for one registry and no other, while this lasts.

    Args:
        login: None: they find none, not even that of the account they run as.
        parent: where the folder of the file is made; only its maker may read that.
    """
    auths = {}
    if login is not None:
        key = _DEFAULT_KEY if registry == _DEFAULT_REGISTRY else registry
        auths[key] = {"auth": base64.b64encode(f"{login.user}:{login.password}".encode()).decode()}
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir=parent) as folder:
        file = Path(folder, "config.json")
        file.write_text(json.dumps({"auths": auths}))
        yield {"REGISTRY_AUTH_FILE": str(file), "DOCKER_CONFIG": folder}
