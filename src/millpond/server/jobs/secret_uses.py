"""Which jobs that have not ended use which secret. Who removes a secret is shown the jobs that still need it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millpond.server.auth.vault.secrets import GROUP, USER
from millpond.server.store.settings import SecretRow
from millpond.specs.api.jobs.jobs import JobInfo

SecretKey = tuple[str, str, str]
"""Kind, owner and name of a secret."""


def jobs_by_secret(
    rows: Iterable[SecretRow], documents: Mapping[str, Mapping[str, Any]], look: Callable[[str], JobInfo | None]
) -> Mapping[SecretKey, list[str]]:
    """The ids of living jobs by the secret that they are given, as ``Vault.environment`` chooses it.

    Args:
        rows: all secrets.
        documents: the files of living jobs that name secrets, by job.
        look: finds a living job.
    """
    there = {(row.kind, row.owner, row.name) for row in rows}
    found: dict[SecretKey, list[str]] = defaultdict(list)
    for job, document in sorted(documents.items()):
        info = look(job)
        if info is None:
            continue
        for name in document["secrets"] or ():
            own, shared = (USER, info.user, name), (GROUP, info.group, name)
            found[own if own in there else shared].append(job)
    return found
