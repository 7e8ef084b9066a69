"""Apply one action to several jobs. A failure is reported for its job and does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from millpond.model.errors import MillpondError
from millpond.server.catalogues import ENGLISH
from millpond.server.http.error_responses import in_language, refusal_of
from millpond.specs.api.jobs.jobs import JobActed, JobInfo

_AT_ONCE: Final = 100
"""So many stand before the scheduler together, which answers them in one turn."""


async def act_on_each(
    jobs: Sequence[str], act: Callable[[str], Awaitable[JobInfo]], language: str = ENGLISH
) -> list[JobActed]:
    """Do something to each job.

    Args:
        jobs: ids; one that is there twice counts once.
        language: in which it is said why one is refused.

    Returns:
        what came of it for each, in their order.
    """

    async def answer(job: str) -> JobActed:
        try:
            info = await act(job)
            return JobActed(job=job, state=info.state, successor="" if info.id == job else info.id)
        except MillpondError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            return JobActed(job=job, error=in_language(language, refusal[1]))

    each_once, found = list(dict.fromkeys(jobs)), list[JobActed]()
    for begin in range(0, len(each_once), _AT_ONCE):
        found += await asyncio.gather(*map(answer, each_once[begin : begin + _AT_ONCE]))
    return found
