"""What a configuration says about containers, and about places whose data is read through a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Annotated, Literal

from pydantic import Field

from millpond.model.units import MIB
from millpond.specs.job.fields import Memory, Name
from millpond.specs.job.mounts import HostPath
from millpond.specs.validation import Strict


class ContainersFile(Strict):
    """How jobs with an ``image`` are run.

    Attributes:
        runtime: ``auto`` takes the first that works of podman, docker and apptainer.
    """

    runtime: Literal["auto", "podman", "docker", "apptainer", "none"] = "auto"


class SourceFile(Strict):
    """A place that is slow to read, such as a mounted server: what jobs read there is copied to a near disk first.

    Attributes:
        name: of the place.
        path: of the machine; everything below it is read so.
        cache: the most that copies of it may take.
    """

    name: Name
    path: HostPath
    cache: Annotated[Memory, Field(ge=1)]

    def source(self) -> DataSource:
        """The checked form."""
        return DataSource(self.name, FilePath(self.path), self.cache * MIB)


@dataclass(frozen=True, slots=True)
class DataSource:
    """A place whose data is read through a cache of ``limit`` bytes."""

    name: str
    path: FilePath
    limit: int


@dataclass(frozen=True, slots=True)
class ProvisioningRules:
    """What jobs are provided with, and how.

    Attributes:
        runtime: for containers.
        sources: none of them within another.
        cache: folder for copies of their data; None: in the state directory.
        images: by pool, registries and repositories that the images of its jobs may come from, beside the catalogue; a
            pool that is not among them sets no bounds.
    """

    runtime: str = "auto"
    sources: tuple[DataSource, ...] = ()
    cache: FilePath | None = None
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
