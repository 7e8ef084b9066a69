"""Whose database this is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from millpond.server.store import schema


@dataclass(frozen=True, slots=True)
class DatabaseOwner:
    """The server that a database belongs to.

    Attributes:
        server: its identity.
        state_dir: where it keeps records and output of jobs; absolute, without links.
        formerly: identities of the servers that it took over from, the latest first.
    """

    server: str
    state_dir: Path
    formerly: tuple[str, ...] = ()


class IdentityStore:
    """The one row of one open database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def read(self) -> DatabaseOwner | None:
        """Whose database it is; None before a server has noted that."""
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(schema.server_identity)).one_or_none()
        return None if row is None else DatabaseOwner(row.server, Path(row.state_dir), tuple(row.formerly.split()))

    def write(self, owner: DatabaseOwner) -> None:
        """Note whose database it is from now on."""
        row = {
            "id": 1,
            "server": owner.server,
            "state_dir": str(owner.state_dir),
            "formerly": " ".join(owner.formerly),
        }
        with self._engine.begin() as connection:
            connection.execute(schema.server_identity.delete())
            connection.execute(schema.server_identity.insert().values(row))
