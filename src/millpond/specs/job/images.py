"""What people write about images: ``image:`` of a job file, names in the catalogue, references to registries.

Source of the grammar: distribution/reference, "Grammar" (Docker and OCI references).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.fields import Name
from millpond.specs.validation import Shortened, Strict, or_short

DEFAULT_REGISTRY: Final = "docker.io"
DEFAULT_TAG: Final = "latest"
LONGEST_REFERENCE: Final = 400
LOCAL_REGISTRY: Final = "localhost"
CATALOGUE_PREFIX: Final = f"{LOCAL_REGISTRY}/millpond/"
"""Under such names this machine's runtime holds the images of the catalogue."""

NAME_PATTERN: Final = r"^[a-z0-9]+(?:[._-][a-z0-9]+)*$"
TAG_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"

_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_CATALOGUED: Final = re.compile(rf"({NAME_PATTERN[1:-1]})(?::({TAG_PATTERN[1:-1]}))?")
_DIGEST_PATTERN: Final = r"^sha256:[0-9a-f]{64}$"
_SPELLING: Final = "write NAME:TAG as `pond image ls` shows it, or REGISTRY/REPOSITORY:TAG"


def is_reference(text: str) -> bool:
    """Whether a text can name an image."""
    return len(text) <= LONGEST_REFERENCE and _REFERENCE.fullmatch(text) is not None


def _reference(value: Any) -> Any:
    if not isinstance(value, str) or not is_reference(value):
        raise BadValueError(f"{as_written(value)} is not the name of an image", _SPELLING)
    return value


Reference = Annotated[
    str, BeforeValidator(_reference), WithJsonSchema({"type": "string", "examples": ["torch:2.4", "nvcr.io/a/b:1"]})
]


class ImageRequest(Shortened):
    """What a job's tasks run in.

    Attributes:
        name: an image of the catalogue, else a reference to a registry.
        optional: where no container runtime works, they run in the machine's own environment.
    """

    model_config = or_short({"type": "string", "minLength": 1})

    name: Reference
    optional: bool = False

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """``torch:2.4`` as the long form."""
        return {"name": value}


class Pinned(Strict):
    """What the server found for a job when it was submitted; a written value is replaced.

    Attributes:
        image: digest of its image.
        data: by the name of the data, which copy in the cache is read; empty: the source itself.
        within: the registry of its image may be on the server's own machine, or on its link.
        default_image: of a job that names none, what its pods run as far as it is known: what nodes may hold of it.
    """

    image: Annotated[str, Field(pattern=_DIGEST_PATTERN)] | None = None
    data: dict[Name, str] = Field(default={})
    within: bool = False
    default_image: Reference | None = None


def catalogued(text: str) -> tuple[str, str] | None:
    """Name and tag, if a text can name an image of the catalogue; None when it can only be a reference."""
    match = _CATALOGUED.fullmatch(text)
    return None if match is None else (match.group(1), match.group(2) or DEFAULT_TAG)


def whole(reference: str) -> str:
    """A reference with registry and tag, as docker reads it: ``busybox`` is ``docker.io/library/busybox:latest``."""
    head, _, rest = reference.partition("/")
    if not rest or ("." not in head and ":" not in head and head != LOCAL_REGISTRY):
        rest = reference if rest else f"library/{reference}"
        head = DEFAULT_REGISTRY
    path, _, digest = rest.partition("@")
    if ":" not in path and not digest:
        path = f"{path}:{DEFAULT_TAG}"
    return f"{head}/{path}" + (f"@{digest}" if digest else "")


def repository_of(reference: str) -> str:
    """A reference without tag and digest: ``nvcr.io/a/b`` of ``nvcr.io/a/b:1``."""
    return re.split(r"[@:](?=[^/]*$)", reference, maxsplit=1)[0]


def image_content(reference: str) -> str:
    """As what nodes report an image that they hold: by its digest where that is named, else with its tag."""
    name = whole(reference)
    _, _, digest = name.partition("@")
    return f"image:{repository_of(name)}@{digest}" if digest else f"image:{name}"


def is_below(reference: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a whole reference lies below a registry or repository such as ``nvcr.io`` or ``docker.io/pytorch``."""
    repository = repository_of(reference)
    return any(repository == prefix or repository.startswith(f"{prefix}/") for prefix in prefixes)
