"""Named data with versions: each version is a snapshot, numbered from 1, and never changes."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from millpond.model.errors import NotFoundError
from millpond.server.store import schema
from millpond.server.store.store import Store
from millpond.specs.mounts import DatasetRef


@dataclass(frozen=True, slots=True)
class Dataset:
    """One version.

    Attributes:
        digest: of its snapshot; serves as its checksum.
        size: bytes of all files.
        created_at: seconds since 1970.
    """

    name: str
    version: int
    digest: str
    files: int
    size: int
    user: str
    created_at: float
    removed: bool = False

    @property
    def reference(self) -> str:
        """How a job file names it."""
        return str(DatasetRef(self.name, self.version))


class Datasets:
    """The table of datasets. A removed version leaves its number behind, so that no reference comes to mean another."""

    def __init__(self, store: Store) -> None:
        self._database = store.database

    def add(self, name: str, digest: str, files: int, size: int, user: str, now: float) -> Dataset:
        """The next version; the latest one if that has the same content."""
        table = schema.datasets
        latest = sa.select(table).where(table.c.name == name).order_by(table.c.version.desc()).limit(1)
        with self._database.begin() as connection:
            row = connection.execute(latest).first()
            if row is not None and row.digest == digest and not row.removed:
                return Dataset(**row._mapping)
            fresh = Dataset(name, 1 if row is None else row.version + 1, digest, files, size, user, now)
            connection.execute(
                table.insert().values({name: getattr(fresh, name) for name in Dataset.__dataclass_fields__})
            )
        return fresh

    def find(self, name: str, version: int | None = None) -> Dataset:
        """A version; the latest when none is named.

        Raises:
            NotFoundError: it is not here.
        """
        table = schema.datasets
        there = sa.and_(table.c.name == name, table.c.removed.is_(False))
        query = sa.select(table).where(there).order_by(table.c.version.desc()).limit(1)
        if version is not None:
            query = query.where(table.c.version == version)
        with self._database.connect() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise NotFoundError(f"no dataset {DatasetRef(name, version)}", "list them with pond data ls")
        return Dataset(**row._mapping)

    def all(self) -> list[Dataset]:
        """Every version, by name, the latest first."""
        table = schema.datasets
        query = sa.select(table).where(table.c.removed.is_(False)).order_by(table.c.name, table.c.version.desc())
        with self._database.connect() as connection:
            return [Dataset(**row._mapping) for row in connection.execute(query)]

    def remove(self, found: Dataset) -> None:
        """Forget a version; its contents go with the next collection, as far as nothing else refers to them."""
        table = schema.datasets
        with self._database.begin() as connection:
            this = sa.and_(table.c.name == found.name, table.c.version == found.version)
            connection.execute(table.update().where(this).values(removed=True))
