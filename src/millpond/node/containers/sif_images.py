"""The images of apptainer, which keeps none itself. Blocks, as ``images`` does."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from millpond.model.errors import UnavailableError
from millpond.node.containers.images import LocalImage, present
from millpond.node.containers.logins import RegistryLogin
from millpond.node.containers.programs import Notify, follow_program
from millpond.node.containers.pull_errors import pull_error


class SifImages:
    """Images of apptainer: files in a folder, named by the hash of what is in them; references are links to them.

    Args:
        program: the path of apptainer.
        env: what it is to find in its environment.
        folder: where they are kept; made when the first one comes.
    """

    def __init__(self, program: str, env: Mapping[str, str], folder: Path) -> None:
        self._program = program
        self._env = env
        self._folder = folder

    def find(self, reference: str) -> LocalImage | None:
        """See ``RuntimeImages``."""
        path = self._file(reference) if reference.startswith("sha256:") else self._link(reference)
        try:
            found = path.resolve(strict=True)
            return LocalImage(f"sha256:{found.stem}", found.stat().st_size, str(found))
        except FileNotFoundError:
            return None

    def at(self, digest: str) -> LocalImage:
        """See ``RuntimeImages``."""
        return LocalImage(digest, 0, str(self._file(digest)))

    def digests(self) -> frozenset[str]:
        """See ``RuntimeImages``."""
        return frozenset(f"sha256:{file.stem}" for file in self._folder.glob("*.sif"))

    def pull(self, reference: str, notify: Notify, login: RegistryLogin | None = None) -> LocalImage:
        """See ``RuntimeImages``. Source of the variables: apptainer's user guide, "Docker and OCI", authentication."""
        env = dict(self._env)
        if login is not None:
            env |= {"APPTAINER_DOCKER_USERNAME": login.user, "APPTAINER_DOCKER_PASSWORD": login.password}
        with self._fresh() as fresh:
            order = [self._program, "pull", str(fresh), f"docker://{reference}"]
            follow_program(order, env, notify, partial(pull_error, reference))
            with fresh.open("rb") as file:
                digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
                os.fsync(file.fileno())  # what has such a name is used unchecked, after a power cut too
            fresh.replace(self._file(digest))
        return self._linked(reference, digest)

    def push(self, image: LocalImage, reference: str, notify: Notify, login: RegistryLogin | None) -> str:
        """See ``RuntimeImages``. What apptainer has is no image of layers any more."""
        raise UnavailableError("apptainer cannot send images to registries", "install podman")

    def name(self, image: LocalImage, name: str) -> None:
        """See ``RuntimeImages``."""
        self._linked(name, image.digest)

    def drop(self, name: str) -> None:
        """See ``RuntimeImages``."""
        image = self.find(name)
        self._link(name).unlink(missing_ok=True)
        if image is not None:
            self.discard(image.digest)

    def discard(self, digest: str) -> None:
        """See ``RuntimeImages``."""
        image = self._file(digest).resolve()
        if image not in {link.resolve() for link in self._folder.glob("*.link")}:
            image.unlink(missing_ok=True)

    def names(self, prefix: str) -> list[str]:
        """See ``RuntimeImages``. None: a name is gone as soon as it is dropped."""
        return []

    def triggers(self, image: LocalImage) -> list[str]:
        """See ``RuntimeImages``. It builds nothing."""
        return []

    def build(self, folder: Path, file: str, name: str, notify: Notify, bases: Mapping[str, LocalImage]) -> LocalImage:
        """See ``RuntimeImages``."""
        raise UnavailableError("apptainer cannot build from a Containerfile", "install podman, or add a built image")

    def save(self, container: str, name: str, author: str, notify: Notify) -> LocalImage:
        """See ``RuntimeImages``."""
        raise UnavailableError("apptainer's containers cannot be saved", "install podman, or build an image")

    def _file(self, digest: str) -> Path:
        return self._folder / f"{digest.removeprefix('sha256:')}.sif"

    def _link(self, reference: str) -> Path:
        return self._folder / f"{hashlib.sha256(reference.encode()).hexdigest()}.link"

    def _linked(self, reference: str, digest: str) -> LocalImage:
        with self._fresh() as fresh:
            fresh.symlink_to(self._file(digest).name)
            fresh.replace(self._link(reference))
        return present(self.find(reference), reference)

    @contextmanager
    def _fresh(self) -> Iterator[Path]:
        """A name that nothing has; what is still there at the end is removed."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._folder / f"incoming-{secrets.token_hex(8)}"
        try:
            yield fresh
        finally:
            fresh.unlink(missing_ok=True)
