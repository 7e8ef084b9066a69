"""The images of this machine: list, pull, build, and commit containers.

Blocks, often for minutes; never to be called on a thread that others wait for.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from millpond.model.errors import InvalidInputError, MillpondError, NotFoundError, UnavailableError
from millpond.node.containers.build_end import end_build
from millpond.node.containers.container import ask
from millpond.node.containers.logins import RegistryLogin, login_file
from millpond.node.containers.programs import Notify, follow_program
from millpond.node.containers.pull_errors import pull_error, push_error
from millpond.node.containers.scratch import scratch_folder
from millpond.specs.job.images import CATALOGUE_PREFIX, DEFAULT_TAG, repository_of, whole

_QUICK_S: Final = 60.0
_PUSHED: Final = re.compile(r"\bdigest: (sha256:[0-9a-f]{64})\b")


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image that is on this machine.

    Attributes:
        digest: its content's; ``sha256:`` and 64 hexadecimal digits.
        size: bytes.
        place: by what a runtime starts it, the same as long as it is here.
        exact: references with which registries gave exactly it, or may have: ``REPOSITORY@sha256:...``. Of what has
            just been fetched the one with which its registry gives it, where that is known.
    """

    digest: str
    size: int
    place: str
    exact: tuple[str, ...] = ()


class RuntimeImages(Protocol):
    """The images that one runtime has."""

    def find(self, reference: str) -> LocalImage | None:
        """The image of a reference or digest; None when it is not here."""

    def at(self, digest: str) -> LocalImage:
        """What a runtime starts the image of a digest by, whether or not that is here; quick."""

    def digests(self) -> frozenset[str]:
        """Those of all images that are here."""

    def pull(self, reference: str, notify: Notify, login: RegistryLogin | None = None) -> LocalImage:
        """Fetch an image from its registry, also where an older one of that name is here.

        Args:
            login: how to be let in; None: as the server's own account is.

        Raises:
            NotFoundError, InvalidInputError: its registry has none, or does not give it.
            UnavailableError: it cannot be had now.
        """

    def push(self, image: LocalImage, reference: str, notify: Notify, login: RegistryLogin | None) -> str:
        """Send an image to a registry; returns with which reference that gives exactly it.

        Args:
            login: how to be let in; None: anonymously, whatever the server's own account may.

        Raises:
            InvalidInputError: the registry does not take it.
            UnavailableError: it cannot be reached, or this runtime cannot.
        """

    def name(self, image: LocalImage, name: str) -> None:
        """Hold an image under a name, so that it is not tidied away."""

    def drop(self, name: str) -> None:
        """Let go of a name; the image goes when nothing else holds it.

        One that is not there is let be, and so is one that a container is made of: ``names`` lists it later.
        """

    def discard(self, digest: str) -> None:
        """Remove an image that has no name any more; one that has, is not there, or is in use is let be."""

    def names(self, prefix: str) -> list[str]:
        """The names that begin so, under which images are held."""

    def build(self, folder: Path, file: str, name: str, notify: Notify, bases: Mapping[str, str]) -> LocalImage:
        """Build an image from a folder and the file in it that says how.

        Args:
            bases: what the file calls the images that it builds upon, and the references that are meant.

        Raises:
            UnavailableError: it fails, or this runtime cannot.
        """

    def save(self, container: str, name: str, author: str, notify: Notify) -> LocalImage:
        """Make an image of what a container has become.

        Raises:
            UnavailableError: it is gone, or this runtime cannot.
        """


class OciImages:
    """Images of docker, and what podman has alike.

    Args:
        program: the path of either.
        env: what it is to find in its environment.
        folder: where files lie that are for a moment, closed to others.
        layers: where the program puts layers that it fetches; None: it need not be known.
    """

    def __init__(self, program: str, env: Mapping[str, str], folder: Path, layers: Path | None = None) -> None:
        self._program = program
        self._env = env
        self._folder = folder
        self._layers = layers

    def find(self, reference: str) -> LocalImage | None:
        """See ``RuntimeImages``."""
        inspected = self._printed("image", "inspect", "--format", "{{.Id}} {{.Size}} {{json .RepoDigests}}", reference)
        if not inspected:
            return None
        identity, size, digests = inspected[0].split(maxsplit=2)
        digest = f"sha256:{identity.removeprefix('sha256:')}"
        exact = tuple(whole(each) for each in json.loads(digests) or ())
        # Podman finds what has that digest in whatever repository; in this one it may be absent, or something else.
        if "@" in reference and _exactly(reference) not in exact:
            return None
        return LocalImage(digest, int(size), digest, exact)

    def at(self, digest: str) -> LocalImage:
        """See ``RuntimeImages``."""
        return LocalImage(digest, 0, digest)

    def digests(self) -> frozenset[str]:
        """See ``RuntimeImages``."""
        printed = self._printed("images", "--no-trunc", "--quiet")
        return frozenset(f"sha256:{line.removeprefix('sha256:')}" for line in printed)

    def pull(self, reference: str, notify: Notify, login: RegistryLogin | None = None) -> LocalImage:
        """See ``RuntimeImages``."""
        registry = reference.partition("/")[0]
        with ExitStack() as stack:
            shown = {} if login is None else stack.enter_context(login_file(login, registry, self._folder))
            env = {**self._env, **shown, **stack.enter_context(scratch_folder(self._layers, self._folder))}
            follow_program([self._program, "pull", reference], env, notify, partial(pull_error, reference))
            found = _found(self.find(reference), reference)
            return replace(found, exact=self._exact(reference, found, env, notify))

    def _exact(self, reference: str, found: LocalImage, env: Mapping[str, str], notify: Notify) -> tuple[str, ...]:
        """With what reference its registry gives exactly what it has just given.

        Where the image was here before, by other manifests, the registry is asked which of them it has.
        """
        if "@" in reference:
            return (_exactly(reference),)
        candidates = [each for each in found.exact if each.startswith(f"{repository_of(reference)}@")]
        for each in candidates if len(candidates) > 1 else ():
            try:
                follow_program([self._program, "pull", each], env, notify, partial(pull_error, each))
            except (NotFoundError, InvalidInputError, UnavailableError):
                continue
            self.drop(each)
            return (each,)
        return tuple(candidates[:1]) if len(candidates) == 1 else ()

    def push(self, image: LocalImage, reference: str, notify: Notify, login: RegistryLogin | None) -> str:
        """See ``RuntimeImages``."""
        with login_file(login, reference.partition("/")[0], self._folder) as shown:
            digest = self._sent(image, reference, {**self._env, **shown}, notify)
        return f"{repository_of(reference)}@{digest}"

    def _sent(self, image: LocalImage, reference: str, env: Mapping[str, str], notify: Notify) -> str:
        """Docker sends what has the name on this machine too, and says the digest at last (docker-push(1))."""
        said, before = list[str](), self.find(reference)

        def hear(line: str) -> None:
            said.append(line)
            notify(line)

        self.name(image, reference)
        try:
            follow_program([self._program, "push", reference], env, hear, partial(push_error, reference))
        finally:
            if before is None:
                self.drop(reference)
            else:
                self.name(before, reference)
        digests = [found[1] for line in said if (found := _PUSHED.search(line))]
        if not digests:
            raise UnavailableError(f"the runtime does not say what it sent as {reference}", "see pond doctor")
        return digests[-1]

    def name(self, image: LocalImage, name: str) -> None:
        """See ``RuntimeImages``."""
        self._do(["tag", image.digest, name], _ignored, f"the image {image.digest[:19]} cannot be named {name}", "")

    def drop(self, name: str) -> None:
        """See ``RuntimeImages``."""
        # By a digest podman finds, and would remove, the image under whatever other name it has by now.
        if "@" not in name or self.find(name) is not None:
            self._printed("rmi", name)

    def discard(self, digest: str) -> None:
        """See ``RuntimeImages``."""
        if self._printed("image", "inspect", "--format", "{{len .RepoTags}}", digest) == ["0"]:
            self._printed("rmi", digest)

    def names(self, prefix: str) -> list[str]:
        """See ``RuntimeImages``."""
        printed = self._printed("images", "--format", "{{.Repository}}:{{.Tag}}")
        return [name for name in printed if name.startswith(prefix)]

    def build(self, folder: Path, file: str, name: str, notify: Notify, bases: Mapping[str, str]) -> LocalImage:
        """See ``RuntimeImages``."""
        context = ["--file", str(folder / file), "--tag", name, *self._base_options(bases), str(folder)]
        with scratch_folder(self._layers, self._folder) as scratch:
            order = [self._program, "build", *context]
            follow_program(order, {**self._env, **scratch}, notify, _build_error, end_build)
        return _found(self.find(name), name)

    def save(self, container: str, name: str, author: str, notify: Notify) -> LocalImage:
        """See ``RuntimeImages``."""
        order = ["commit", "--author", author, container, name]
        self._do(order, notify, "the container cannot be saved", "it is kept for an hour after its job's end")
        return _found(self.find(name), name)

    def _base_options(self, bases: Mapping[str, str]) -> list[str]:
        """Docker reads short names as we do, of the default registry; images of the machine it does not find by them.

        Raises:
            UnavailableError: the build is upon one of those.
        """
        refused = next((base for base, meant in bases.items() if meant.startswith(CATALOGUE_PREFIX)), None)
        if refused is not None:
            raise UnavailableError(f"docker cannot build upon {refused!r} of the catalogue", "name one of a registry")
        return []

    def _do(self, order: Sequence[str], notify: Notify, cause: str, remedy: str) -> None:
        command = [self._program, *order]
        follow_program(command, self._env, notify, lambda said: UnavailableError(f"{cause}: {said}", remedy))

    def _printed(self, *order: str) -> list[str]:
        """The lines that the program prints; none when it fails."""
        done = ask([self._program, *order], self._env, _QUICK_S)
        return done.stdout.splitlines() if done.returncode == 0 else []


class PodmanImages(OciImages):
    """Images of podman, which looks for a short name, or the beginning of an id, among all that it has first."""

    def _sent(self, image: LocalImage, reference: str, env: Mapping[str, str], notify: Notify) -> str:
        """Source of the option: podman-push(1)."""
        digest = Path(env["DOCKER_CONFIG"], "digest")  # a folder of this call alone
        order = [self._program, "push", "--digestfile", str(digest), image.digest, f"docker://{reference}"]
        follow_program(order, env, notify, partial(push_error, reference))
        return digest.read_text().strip()

    def _base_options(self, bases: Mapping[str, str]) -> list[str]:
        """Source of the option: podman-build(1)."""
        short = [base for base, meant in bases.items() if meant not in (base, f"{base}:{DEFAULT_TAG}")]
        return [f"--build-context={base}=docker-image://{bases[base]}" for base in short]


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

    def build(self, folder: Path, file: str, name: str, notify: Notify, bases: Mapping[str, str]) -> LocalImage:
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
        return _found(self.find(reference), reference)

    @contextmanager
    def _fresh(self) -> Iterator[Path]:
        """A name that nothing has; what is still there at the end is removed."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._folder / f"incoming-{secrets.token_hex(8)}"
        try:
            yield fresh
        finally:
            fresh.unlink(missing_ok=True)


def _exactly(reference: str) -> str:
    """A reference with a digest, without its tag, which then says nothing more."""
    return f"{repository_of(reference)}@{reference.partition('@')[2]}"


def _build_error(said: str) -> MillpondError:
    return UnavailableError(f"the image cannot be built: {said}", "see what the build says")


def _found(image: LocalImage | None, reference: str) -> LocalImage:
    if image is None:
        raise UnavailableError(f"the image {reference} is gone again", "try again")
    return image


def _ignored(_line: str) -> None:
    """Progress is not shown."""
