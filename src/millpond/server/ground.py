"""What a server stands on: made before anything can be asked of it, and shared by all that answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millpond.server.auth.accounts import Accounts
from millpond.server.files.service import Files
from millpond.server.isolation import Isolation
from millpond.server.job_files import JobFiles
from millpond.server.loop import Loop
from millpond.server.provisions.outfit import Outfit
from millpond.server.store.store import Store
from millpond.server.vault.secrets import Vault


@dataclass(frozen=True, slots=True)
class Ground:
    """The parts that live as long as the server.

    Attributes:
        state_dir: where tasks leave their records and logs.
        accounts: who may use which queue.
        isolation: whether jobs are kept apart.
        vault: the secrets that jobs can have.
        files: what can be asked about files.
        job_files: the files that jobs were submitted with.
        outfit: what provides for jobs on the machine.
    """

    state_dir: Path
    store: Store
    loop: Loop
    accounts: Accounts
    isolation: Isolation
    vault: Vault
    files: Files
    job_files: JobFiles
    outfit: Outfit
