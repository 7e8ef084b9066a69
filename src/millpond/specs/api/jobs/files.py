"""The bodies of the REST API about files: contents, datasets, outputs, metrics. Sizes are bytes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from millpond.model.errors import InvalidInputError
from millpond.model.folders import LARGEST_BATCHED, MOST_BATCHED, unpacked
from millpond.specs.api.models import Body, RequestBody
from millpond.specs.job.snapshots import Digest

Visibility = Literal["private", "group", "everyone"]
"""Who sees an object besides its owner and admins: no other user, its group, all."""

MOST_DIGESTS: Final = 10_000
"""Contents that one request may ask about."""


class BlobList(Body):
    """Contents by their SHA-256: asked about, or missing."""

    digests: Annotated[list[Digest], Field(max_length=MOST_DIGESTS)]


class BlobInfo(Body):
    """A content that is here now."""

    digest: str


class BlobProgress(Body):
    """How much of a content is here.

    Attributes:
        received: bytes that the caller has sent of it; all of it where it is ``whole``, from any sender.
        busy: another request of the caller's is sending more.
    """

    digest: str
    whole: bool
    received: int
    busy: bool = False


class DatasetPut(RequestBody):
    """A new version of a dataset: the snapshot that was sent for it.

    Attributes:
        visibility: left out: as it was, or ``group``.
    """

    snapshot: Digest
    visibility: Visibility | None = None


class DatasetChange(RequestBody):
    """Who sees a dataset from now on."""

    visibility: Visibility


class DatasetInfo(Body):
    """A version of a dataset.

    Attributes:
        reference: how a job file names it.
        digest: of its snapshot; the same content has the same one.
        size: bytes of all ``specs.job.snapshots``.
    """

    name: str
    version: int
    reference: str
    digest: str
    files: int
    size: int
    user: str
    created_at: float
    group: str = ""
    visibility: Visibility = "everyone"


class DatasetList(Body):
    """Every version, by name, the latest first."""

    datasets: list[DatasetInfo]


class OutputFile(Body):
    """A file that a job left; ``size`` in bytes. ``version`` is another as soon as the content is: its ``ETag``."""

    path: str
    size: int
    modified_at: float
    version: str = ""


class OutputList(Body):
    """What an attempt of a job left.

    Attributes:
        truncated: there is more.
        left_out: files whose paths cannot be printed or are too long; they are given out under other names alone.
        no_files: links, pipes, sockets and devices, none of which is given out.
    """

    job: str
    attempt: int
    files: list[OutputFile]
    truncated: bool = False
    left_out: int = 0
    no_files: int = 0


class PathList(RequestBody):
    """Files by their paths in a folder."""

    paths: Annotated[list[str], Field(max_length=MOST_BATCHED)]


class RunState(Body):
    """Whether the program of a task has ended; ``ending``: its pod is being deleted."""

    ended: bool
    ending: bool = False


class RunOutput(Body):
    """What a task in a pod has left: the snapshot of its output folder, and what its function returned, if it did."""

    snapshot: Digest
    result: Digest | Literal[""] = ""


class MetricsTaken(Body):
    """How many bytes of what a task reported of itself are here."""

    received: int


class MetricPoint(Body):
    """One value (None: it was not finite), when it was reported, and at which step of the program's own count."""

    at: float
    value: float | None
    step: float | None = None


class MetricSeries(Body):
    """The values of one metric of one task, oldest first."""

    task: int
    name: str
    points: list[MetricPoint]


class MetricsInfo(Body):
    """What an attempt's tasks reported; ``truncated`` says that older points were left out."""

    job: str
    attempt: int
    series: list[MetricSeries]
    truncated: bool = False


def read_batch(data: bytes) -> list[bytes]:
    """The contents of a batch.

    Raises:
        InvalidInputError: it is none, or has more or larger contents than one may have.
    """
    try:
        contents = unpacked(data)
    except ValueError as error:
        raise InvalidInputError("the batch of contents is cut off", "send it again") from error
    if len(contents) > MOST_BATCHED or any(len(content) > LARGEST_BATCHED for content in contents):
        raise InvalidInputError(
            f"a batch has at most {MOST_BATCHED} contents of at most {LARGEST_BATCHED // 2**10} KiB",
            "send larger contents by themselves",
        )
    return contents
