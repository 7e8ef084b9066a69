"""The bodies of the REST API about images. Sizes are bytes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from millpond.specs.api.base import ErrorBody
from millpond.specs.api.jobs.files import Visibility
from millpond.specs.api.models import Body, RequestBody
from millpond.specs.job.fields import SecretName
from millpond.specs.job.images import DEFAULT_TAG, NAME_PATTERN, TAG_PATTERN, Reference
from millpond.specs.job.snapshots import Digest

ImageName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)]
ImageTag = Annotated[str, Field(pattern=TAG_PATTERN)]
_Description = Annotated[str, Field(max_length=500)]


class ImageEntry(RequestBody):
    """The description of an image for the catalogue.

    Attributes:
        visibility: left out: as it was, or ``group``.
    """

    name: ImageName
    tag: ImageTag = DEFAULT_TAG
    description: _Description = ""
    visibility: Visibility | None = None


class ImageAdd(ImageEntry):
    """An image of a registry, or of the server's machine.

    Attributes:
        login: the secret of the caller, else of their group, that has ``USER:PASSWORD`` for the registry.
    """

    reference: Reference
    login: SecretName | None = None


class ImageBuild(ImageEntry):
    """An image to be built from a folder that was sent.

    Attributes:
        snapshot: of the folder.
        file: in it, what says how.
    """

    snapshot: Digest
    file: Annotated[str, Field(min_length=1, max_length=300)] = ""


class ImageSave(ImageEntry):
    """An image to be made of what a task of a job has become."""

    job: Annotated[str, Field(min_length=1, max_length=200)]
    task: Annotated[int, Field(ge=0, le=10**9)] = 0


class ImagePush(RequestBody):
    """An image of the catalogue that is to be sent to a registry.

    Attributes:
        reference: as what: with registry and tag.
        login: as in ``ImageAdd``; without one no credentials are sent.
    """

    reference: Reference
    login: SecretName | None = None


class ImageChange(RequestBody):
    """Other words about an image; what is left out stays."""

    description: _Description | None = None
    visibility: Visibility | None = None


class ImageInfo(Body):
    """An image of the catalogue.

    Attributes:
        reference: how a job file names it.
        origin: where it came from.
        login: the secret with which its registry lets us in; empty: none.
        digest: of its content; a job keeps to it, whatever becomes of the name.
        exact: ``REPOSITORY@sha256:...``, with which a registry gives exactly it, also when its tag means something else
            by now; empty: none is known.
        nodes: by machine, ``present`` or ``absent``.
    """

    name: str
    tag: str
    reference: str
    origin: str
    login: str = ""
    digest: str
    exact: str = ""
    size: int
    user: str
    group: str
    visibility: Visibility
    description: str
    created_at: float
    nodes: dict[str, str] = Field(default={})


class ImageList(Body):
    """Images by name, the newest first."""

    images: list[ImageInfo]


class ImageStep(Body):
    """One line of what is under way; the last one has the image, or why there is none."""

    line: str = ""
    image: ImageInfo | None = None
    error: ErrorBody | None = None
