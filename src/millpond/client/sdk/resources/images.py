"""The server's catalogue of images. Long requests report each line of progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from millpond.client.sdk.resources.files import FilesClient
from millpond.client.sdk.transport.connection import Requests, ServerConnection, given, segment
from millpond.client.sdk.transport.failures import from_body
from millpond.model.errors import UnavailableError
from millpond.specs.api.jobs.images import ImageInfo, ImageList, ImageStep

SILENCE_S = 60.0
"""The server gives a sign of life more often."""

Notify = Callable[[str], None]


class ImagesClient(Requests):
    """What a client can do with images.

    Args:
        files: to send folders with.
    """

    def __init__(self, connection: ServerConnection, files: FilesClient) -> None:
        super().__init__(connection)
        self._files = files

    def list(self) -> list[ImageInfo]:
        """The images that one may use, by name, the newest first."""
        return self._ask(ImageList, "GET", "/images").images

    def add(self, name: str, tag: str, reference: str, notify: Notify, **words: Any) -> ImageInfo:
        """Put an image of a registry, or of the server's machine, into the catalogue.

        Args:
            words: ``description`` and ``visibility``, where they are to be other than before; ``login``, the name of
                the secret that says ``USER:PASSWORD`` for the registry.

        Raises:
            NotFoundError, InvalidInputError: the registry has none, or does not let us in.
            UnavailableError: the registry does not give it, or nothing there runs containers.
        """
        return self._last("/images", {"name": name, "tag": tag, "reference": reference, **words}, notify)

    def build(self, name: str, tag: str, folder: Path, notify: Notify, **words: Any) -> ImageInfo:
        """Send a folder and have an image built from it; ``words`` as in ``add``, and ``file``.

        Raises:
            InvalidInputError: nothing in it says how.
            UnavailableError: it cannot be built.
        """
        snapshot = self._files.ship(folder)
        return self._last("/images/build", {"name": name, "tag": tag, "snapshot": snapshot, **words}, notify)

    def save(self, name: str, tag: str, job_id: str, notify: Notify, *, task: int = 0, **words: Any) -> ImageInfo:
        """Make an image of what a task of a job has become; ``words`` as in ``add``.

        Raises:
            ConflictError: it does not run in a container.
        """
        return self._last("/images/save", {"name": name, "tag": tag, "job": job_id, "task": task, **words}, notify)

    def pull(self, name: str, tag: str, notify: Notify) -> ImageInfo:
        """Have an image of the catalogue on the machines before a job needs it."""
        return self._last(f"{_place(name, tag)}/pull", {}, notify)

    def push(self, name: str, tag: str, reference: str, notify: Notify, login: str | None = None) -> ImageInfo:
        """Send an image of the catalogue to a registry; ``exact`` of what returns is as what that has it now.

        Args:
            login: the name of the secret that says ``USER:PASSWORD`` for the registry.

        Raises:
            InvalidInputError: it may not go there, or the registry does not take it.
            UnavailableError: the registry cannot be reached, or nothing there runs containers.
        """
        return self._last(f"{_place(name, tag)}/push", given(reference=reference, login=login), notify)

    def change(self, name: str, tag: str, **words: Any) -> ImageInfo:
        """Say other words about an image, or let others see it."""
        return self._ask(ImageInfo, "PATCH", _place(name, tag), json=words)

    def remove(self, name: str, tag: str) -> ImageInfo:
        """Take an image out of the catalogue."""
        return self._ask(ImageInfo, "DELETE", _place(name, tag))

    def _last(self, path: str, body: Any, notify: Notify) -> ImageInfo:
        """The result of the last step."""
        rest = b""
        for data in self._connection.post(path, body, SILENCE_S):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                try:
                    step = ImageStep.model_validate_json(line)
                except ValidationError as error:
                    raise UnavailableError(
                        "a step is not understood", "client and server should be of one version"
                    ) from error
                if step.error is not None:
                    raise from_body(step.error)
                if step.image is not None:
                    return step.image
                if step.line:
                    notify(step.line)
        raise UnavailableError("the server ended before the image was there", "ask again")


def _place(name: str, tag: str) -> str:
    return f"/images/{segment(name)}/{segment(tag)}"
