"""The catalogue: images by name and tag, each with the digest that it had when it was put there."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from millpond.model.errors import ConflictError
from millpond.node.host.files import read_json, write_json
from millpond.server.auth.roles import AccessTarget, changed_target, present, seen_target
from millpond.server.store import schema
from millpond.server.store.tables import TableStore
from millpond.specs.api.jobs.files import Visibility
from millpond.specs.job.images import CATALOGUE_PREFIX, LOCAL_REGISTRY


@dataclass(frozen=True, slots=True)
class CatalogueImage:
    """One entry.

    Attributes:
        origin: a reference, or in words how it was made.
        digest: ``sha256:`` and 64 hexadecimal digits.
        size: bytes.
        visibility: ``private``, ``group`` or ``everyone``.
        created_at: seconds since 1970.
        login: the secret, of ``user`` or ``group``, with which its registry lets us in; empty: none.
        exact: ``REPOSITORY@sha256:...``, with which a registry gives exactly it, whatever its tags mean by now; empty:
            none is known.
    """

    name: str
    tag: str
    origin: str
    digest: str
    size: int
    user: str
    group: str
    visibility: Visibility
    description: str
    created_at: float
    login: str = ""
    exact: str = ""

    @property
    def reference(self) -> str:
        """How a job file names it."""
        return f"{self.name}:{self.tag}"

    @property
    def held_as(self) -> str:
        """By what name the runtime holds it."""
        return held_as(self.name, self.tag)

    @property
    def sources(self) -> tuple[str, ...]:
        """The references with which a registry may give it again, the best first; none where it came from none."""
        from_registry = " " not in self.origin and not self.origin.startswith(f"{LOCAL_REGISTRY}/")
        return tuple(each for each in (self.exact, self.origin if from_registry else "") if each)

    @property
    def target(self) -> AccessTarget:
        """It, as something to be changed."""
        return changed_target("image", self.reference, self.user, self.group, self.visibility)

    @property
    def seen(self) -> AccessTarget:
        """It, as something to be seen and used."""
        return seen_target(self.target, self.visibility)


class Catalogue(TableStore):
    """The table of images.

    Attributes:
        changing: held while entries and the names by which the runtime holds images are changed together.
    """

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine)
        self.changing = threading.Lock()

    def put(self, image: CatalogueImage) -> CatalogueImage:
        """Put an image there, in place of what has its name and tag."""
        self._save((schema.images, dataclasses.asdict(image)))
        return image

    def get(self, name: str, tag: str) -> CatalogueImage | None:
        """An entry; None when there is none."""
        table = schema.images
        row = self._first(sa.select(table).where(table.c.name == name, table.c.tag == tag))
        return None if row is None else CatalogueImage(**row._mapping)

    def find(self, name: str, tag: str) -> CatalogueImage:
        """An entry.

        Raises:
            NotFoundError: there is none.
        """
        return present(self.get(name, tag), "image", f"{name}:{tag}")

    def all(self) -> list[CatalogueImage]:
        """Every entry, by name, the newest first."""
        table = schema.images
        query = sa.select(table).order_by(table.c.name, table.c.created_at.desc(), table.c.tag)
        return [CatalogueImage(**row._mapping) for row in self._rows(query)]

    def change(self, name: str, tag: str, change: Callable[[CatalogueImage], CatalogueImage]) -> CatalogueImage:
        """Change an entry's words.

        Raises:
            NotFoundError: there is none.
            ConflictError: it was replaced meanwhile.
        """
        before = self.find(name, tag)
        changed = change(before)
        self._require_there(before, schema.images.update().values(dataclasses.asdict(changed)))
        return changed

    def note_exact(self, image: CatalogueImage, exact: str, login: str) -> None:
        """From where an entry can be had by now, and with which secret; one that was replaced meanwhile is let be."""
        self._execute(schema.images.update().where(_is(image)).values(exact=exact, login=login))

    def remove(self, image: CatalogueImage) -> None:
        """Take an entry out.

        Raises:
            ConflictError: it was replaced meanwhile.
        """
        self._require_there(image, schema.images.delete())

    def _require_there(self, image: CatalogueImage, act: sa.Update | sa.Delete) -> None:
        if self._execute(act.where(_is(image))) == 0:
            raise ConflictError(f"the image {image.reference} was replaced meanwhile", "look at it, and try again")


def _is(image: CatalogueImage) -> sa.ColumnElement[bool]:
    """Whether a row has this entry, which was not replaced."""
    columns = schema.images.c
    return sa.and_(columns.name == image.name, columns.tag == image.tag, columns.digest == image.digest)


def held_as(name: str, tag: str) -> str:
    """By what name the runtime holds an image of the catalogue."""
    return f"{CATALOGUE_PREFIX}{name}:{tag}"


class HeldImages:
    """Digests of the images that this server has put into its catalogue, until they are gone from the machine, in a
    file of the state directory. Any thread.

    Other servers of the account may have the same runtime: what they hold, and their catalogues alone name, is left
    alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def all(self) -> frozenset[str]:
        """Those that may still be there."""
        return frozenset((read_json(self._path) or {}).get("digests", ()))

    def note(self, *digests: str) -> None:
        """They are put into the catalogue."""
        self._write(frozenset(digests), frozenset())

    def forget(self, digest: str) -> None:
        """It is gone."""
        self._write(frozenset(), frozenset({digest}))

    def _write(self, added: frozenset[str], removed: frozenset[str]) -> None:
        with self._lock:
            before = self.all()
            after = (before | added) - removed
            if after != before:
                write_json(self._path, {"digests": sorted(after)})
