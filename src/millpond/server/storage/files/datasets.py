"""Named data with versions: each version is a snapshot, numbered from 1, and never changes."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa

from millpond.model.errors import NotFoundError
from millpond.server.auth.roles import AccessTarget, Caller, Verb, allows, changed_target, seen_target
from millpond.server.store import schema
from millpond.server.store.tables import TableStore
from millpond.specs.api.jobs.files import Visibility
from millpond.specs.job.dataset_refs import DatasetRef

_TABLE: Final = schema.datasets


@dataclass(frozen=True, slots=True)
class Dataset:
    """One version.

    Attributes:
        digest: of its snapshot; serves as its checksum.
        size: bytes of all files.
        created_at: seconds since 1970.
        group: for which it was put; empty: for none.
        visibility: ``private``, ``group`` or ``everyone``.
    """

    name: str
    version: int
    digest: str
    files: int
    size: int
    user: str
    created_at: float
    removed: bool = False
    group: str = ""
    visibility: Visibility = "everyone"

    @property
    def reference(self) -> str:
        """How a job file names it."""
        return str(DatasetRef(self.name, self.version))

    @property
    def target(self) -> AccessTarget:
        """It, as something to be changed."""
        return changed_target("dataset", self.name, self.user, self.group, self.visibility)

    @property
    def seen(self) -> AccessTarget:
        """It, as something to be seen and used."""
        return seen_target(self.target, self.visibility)


class Datasets(TableStore):
    """The table of datasets. A removed version leaves its number behind, so that no reference comes to mean another.

    Attributes:
        changing: held while versions are numbered, and while what a dataset is decides about a change of it.
    """

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine)
        self.changing = threading.RLock()

    def add(self, put: Dataset) -> Dataset:
        """The next version, whatever number it says; the latest one if that has the same content."""
        latest = sa.select(_TABLE).where(_TABLE.c.name == put.name).order_by(_TABLE.c.version.desc()).limit(1)
        with self.changing, self._engine.begin() as connection:
            row = connection.execute(latest).first()
            if row is not None and row.digest == put.digest and not row.removed:
                return Dataset(**row._mapping)
            fresh = replace(put, version=1 if row is None else row.version + 1)
            connection.execute(_TABLE.insert().values(dataclasses.asdict(fresh)))
        return fresh

    def find(self, name: str, version: int | None = None) -> Dataset:
        """A version; the latest when none is named.

        Raises:
            NotFoundError: it is not here.
        """
        there = sa.and_(_TABLE.c.name == name, _TABLE.c.removed.is_(False))
        query = sa.select(_TABLE).where(there).order_by(_TABLE.c.version.desc()).limit(1)
        if version is not None:
            query = query.where(_TABLE.c.version == version)
        row = self._first(query)
        if row is None:
            raise _no_dataset(DatasetRef(name, version))
        return Dataset(**row._mapping)

    def seen_by(self, caller: Caller, ref: DatasetRef) -> Dataset:
        """A version that the caller may read.

        Raises:
            NotFoundError: it is not here, or not for them, in the same words.
        """
        found = self.find(ref.name, ref.version)
        if not allows(caller, Verb.READ_DATA, found.seen):
            raise _no_dataset(ref)
        return found

    def all(self) -> list[Dataset]:
        """Every version, by name, the latest first."""
        query = sa.select(_TABLE).where(_TABLE.c.removed.is_(False)).order_by(_TABLE.c.name, _TABLE.c.version.desc())
        return [Dataset(**row._mapping) for row in self._rows(query)]

    def share(self, name: str, visibility: Visibility) -> None:
        """Let others see all versions, or no more."""
        self._execute(_TABLE.update().where(_TABLE.c.name == name).values(visibility=visibility))

    def remove(self, found: Dataset) -> None:
        """Forget a version; its contents go (``collector``) as far as nothing else refers to them."""
        this = sa.and_(_TABLE.c.name == found.name, _TABLE.c.version == found.version)
        self._execute(_TABLE.update().where(this).values(removed=True))


def _no_dataset(ref: DatasetRef) -> NotFoundError:
    return NotFoundError(f"no dataset {ref}", "list them with `pond data ls`")
