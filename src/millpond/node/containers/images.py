"""The images of this machine: list, pull, build, and commit containers.

Blocks, often for minutes; never to be called on a thread that others wait for.
"""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from millpond.model.errors import InvalidInputError, MillpondError, NotFoundError, UnavailableError
from millpond.node.containers.container import ask
from millpond.node.containers.logins import RegistryLogin, login_file
from millpond.node.containers.programs import Notify, end_build, follow_program
from millpond.node.containers.pull_errors import pull_error, push_error
from millpond.node.containers.scratch import scratch_folder
from millpond.specs.job.images import repository_of, whole

Found = TypeVar("Found")

_QUICK_S: Final = 60.0
_LISTINGS: Final = 5
"""How often a list of images is asked for: podman prints none where one of them is removed or replaced meanwhile."""
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
        """The image of a reference or digest; None when it is not here.

        Raises:
            UnavailableError: whether it is here cannot be known now.
        """

    def at(self, digest: str) -> LocalImage:
        """What a runtime starts the image of a digest by, whether or not that is here; quick."""

    def digests(self) -> frozenset[str]:
        """Those of all images that are here.

        Raises:
            UnavailableError: they cannot be known now.
        """

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

    def triggers(self, image: LocalImage) -> list[str]:
        """The lines that an image adds to each build upon it (``ONBUILD``).

        Raises:
            UnavailableError: they cannot be known.
        """

    def build(self, folder: Path, file: str, name: str, notify: Notify, bases: Mapping[str, LocalImage]) -> LocalImage:
        """Build an image from a folder and the file in it that says how.

        Args:
            bases: what the file calls the images that it builds upon, and which of this machine are meant.

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
            self.digests()  # fails as well where it is the program that fails, and not the image that is absent
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
        listed = self._listed("--no-trunc", "--quiet")
        return frozenset(f"sha256:{line.removeprefix('sha256:')}" for line in listed)

    def pull(self, reference: str, notify: Notify, login: RegistryLogin | None = None) -> LocalImage:
        """See ``RuntimeImages``."""
        registry = reference.partition("/")[0]
        with ExitStack() as stack:
            shown = {} if login is None else stack.enter_context(login_file(login, registry, self._folder))
            env = {**self._env, **shown, **stack.enter_context(scratch_folder(self._layers, self._folder))}
            follow_program([self._program, "pull", reference], env, notify, partial(pull_error, reference))
            found = present(self.find(reference), reference)
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
        listed = self._listed("--format", "{{.Repository}}:{{.Tag}}")
        return [name for name in listed if name.startswith(prefix)]

    def triggers(self, image: LocalImage) -> list[str]:
        """See ``RuntimeImages``."""
        inspected = self._printed("image", "inspect", "--format", "{{json .Config.OnBuild}}", image.digest)
        return json.loads(present(inspected or None, image.digest)[0]) or []

    def build(self, folder: Path, file: str, name: str, notify: Notify, bases: Mapping[str, LocalImage]) -> LocalImage:
        """See ``RuntimeImages``."""
        context = ["--file", str(folder / file), "--tag", name, *self._base_options(bases), str(folder)]
        with scratch_folder(self._layers, self._folder) as scratch:
            order = [self._program, "build", *context]
            follow_program(order, {**self._env, **scratch}, notify, _build_error, end_build)
        return present(self.find(name), name)

    def save(self, container: str, name: str, author: str, notify: Notify) -> LocalImage:
        """See ``RuntimeImages``."""
        order = ["commit", "--author", author, container, name]
        self._do(order, notify, "the container cannot be saved", "it is kept for an hour after its job's end")
        return present(self.find(name), name)

    def _base_options(self, bases: Mapping[str, LocalImage]) -> list[str]:
        """Docker looks for the names that the file has, and not for those that the catalogue gives them.

        Raises:
            UnavailableError: it would not find what is meant.
        """
        for base, meant in bases.items():
            found = self.find(base)
            if found is None or found.digest != meant.digest:
                raise UnavailableError(f"docker cannot build upon {base!r} of the catalogue", "name one of a registry")
        return []

    def _do(self, order: Sequence[str], notify: Notify, cause: str, remedy: str) -> None:
        command = [self._program, *order]
        follow_program(command, self._env, notify, lambda said: UnavailableError(f"{cause}: {said}", remedy))

    def _listed(self, *options: str) -> list[str]:
        """The lines of the list of all images, which the program prints as long as it works.

        Raises:
            UnavailableError: it does not.
        """
        for _ in range(_LISTINGS):
            done = self._asked("images", *options)
            if done.returncode == 0:
                return done.stdout.splitlines()
        raise self._failing((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])

    def _printed(self, *order: str) -> list[str]:
        """The lines that the program prints; none when it fails."""
        done = self._asked(*order)
        return done.stdout.splitlines() if done.returncode == 0 else []

    def _asked(self, *order: str) -> subprocess.CompletedProcess[str]:
        try:
            return ask([self._program, *order], self._env, _QUICK_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._failing(str(error)) from error

    def _failing(self, why: str) -> UnavailableError:
        return UnavailableError(f"{Path(self._program).name} cannot be asked for images: {why}", "see `pond doctor`")


class PodmanImages(OciImages):
    """Images of podman, which looks for a short name, or the beginning of an id, among all that it has first.

    Args:
        configs: the folder in which it keeps what registries say of images; None: not known.
    """

    def __init__(
        self,
        program: str,
        env: Mapping[str, str],
        folder: Path,
        layers: Path | None = None,
        configs: Path | None = None,
    ) -> None:
        super().__init__(program, env, folder, layers)
        self._configs = configs

    def triggers(self, image: LocalImage) -> list[str]:
        """See ``RuntimeImages``. No command of podman shows them.

        Source of the place: containers/storage, ``images.go``, ``makeBigDataBaseName``.
        """
        name = f"={b64encode(image.digest.encode()).decode()}"
        try:
            if self._configs is None:
                raise FileNotFoundError("where podman keeps images is not known")
            return _triggers((self._configs / image.digest.removeprefix("sha256:") / name).read_text())
        except (OSError, TypeError, ValueError) as error:
            cause = f"what the image {image.digest[:19]} adds to a build cannot be read: {error}"
            raise UnavailableError(cause, "see `pond doctor`") from error

    def _sent(self, image: LocalImage, reference: str, env: Mapping[str, str], notify: Notify) -> str:
        """Source of the option: podman-push(1)."""
        digest = Path(env["DOCKER_CONFIG"], "digest")  # a folder of this call alone
        order = [self._program, "push", "--digestfile", str(digest), image.digest, f"docker://{reference}"]
        follow_program(order, env, notify, partial(push_error, reference))
        return digest.read_text().strip()

    def _base_options(self, bases: Mapping[str, LocalImage]) -> list[str]:
        """Each is what was checked, whatever has its name by the time that it is used.

        Source of the option: podman-build(1), from podman 4.2 on.
        """
        return [
            f"--build-context={base}=docker-image://{image.digest.removeprefix('sha256:')}"
            for base, image in bases.items()
        ]


def _exactly(reference: str) -> str:
    """A reference with a digest, without its tag, which then says nothing more."""
    return f"{repository_of(reference)}@{reference.partition('@')[2]}"


def _build_error(said: str) -> MillpondError:
    return UnavailableError(f"the image cannot be built: {said}", "see what the build says")


def _triggers(config: str) -> list[str]:
    """All that a runtime may read there: it heeds neither the case of names nor how often one is."""
    document = json.loads(config, object_pairs_hook=list)
    inner = [pair for each in _values(document, "config") for pair in each or ()]
    return [line for lines in _values(inner, "onbuild") for line in lines or ()]


def _values(pairs: Sequence[tuple[str, Any]], name: str) -> list[Any]:
    return [value for key, value in pairs if key.lower() == name]


def present(found: Found | None, reference: str) -> Found:
    """What was looked for right after it had been made.

    Raises:
        UnavailableError: another has removed it.
    """
    if found is None:
        raise UnavailableError(f"the image {reference} is gone again", "try again")
    return found


def _ignored(_line: str) -> None:
    """Progress is not shown."""
