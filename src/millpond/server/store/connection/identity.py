"""Which server and state directory a database belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.tables import TableStore


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


class IdentityStore(TableStore):
    """The one row of one open database."""

    def read(self) -> DatabaseOwner | None:
        """Whose database it is; None before a server has noted that."""
        row = self._first(sa.select(schema.server_identity))
        return None if row is None else DatabaseOwner(row.server, Path(row.state_dir), tuple(row.formerly.split()))

    def write(self, owner: DatabaseOwner) -> None:
        """Note whose database it is from now on."""
        row = {
            "id": 1,
            "server": owner.server,
            "state_dir": str(owner.state_dir),
            "formerly": " ".join(owner.formerly),
        }
        self._execute(schema.server_identity.delete(), schema.server_identity.insert().values(row))
