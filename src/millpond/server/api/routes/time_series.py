"""The route of the pool's own history, from which charts are drawn."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Query

from millpond.server.api.description import api_router
from millpond.server.api.permits import ClusterReader, ServiceOf, job_in_path, may
from millpond.server.auth.roles import Verb
from millpond.server.monitoring.telemetry.job_cards import cards_of
from millpond.server.monitoring.time_series.fairness import fairness_of
from millpond.server.monitoring.time_series.figures import Subject
from millpond.server.monitoring.time_series.reader import TimeSpan
from millpond.specs.api.base import LATEST
from millpond.specs.api.reports.fairness import FairnessInfo
from millpond.specs.api.reports.time_series import TimeSeriesInfo

router = api_router(tags=["cluster"])

MOST_NAMES: Final = 16

Begin = Annotated[
    float | None, Query(alias="from", ge=0, le=LATEST, description="Seconds since 1970; left out: a day before `to`.")
]
End = Annotated[float | None, Query(alias="to", ge=0, le=LATEST, description="Seconds since 1970; left out: now.")]
Names = Annotated[
    tuple[Annotated[str, Query(max_length=253)], ...],
    Query(alias="name", max_length=MOST_NAMES, description="Of which models, queues or nodes; left out: of all."),
]
Step = Annotated[float, Query(ge=0, le=30 * 86_400, description="Seconds of one point, at least.")]


@router.get("/time-series")
async def time_series(
    service: ServiceOf,
    access: ClusterReader,
    subject: Subject = Subject.MODELS,
    begin: Begin = None,
    end: End = None,
    step: Step = 0.0,
    names: Names = (),
) -> TimeSeriesInfo:
    """How the pool was used: cards held and computing by model or node, or queues with what they were promised and had.

    The server keeps minutes for two days, ten minutes for eight days, and hours for 30 days. Nodes of a pool of more
    than 128 are told by `name` alone; of these it keeps minutes for two hours and ten minutes for two days.
    """
    seen = service.queues.names_for(access.caller) if subject is Subject.QUEUES else None
    chosen = seen if not names else names if seen is None else seen.intersection(names)
    return await asyncio.to_thread(service.time_series.of, subject, TimeSpan(begin, end, step), chosen)


@router.get("/time-series/fairness")
async def fairness(
    service: ServiceOf, access: ClusterReader, begin: Begin = None, end: End = None, step: Step = 0.0
) -> FairnessInfo:
    """How fair cards were divided between the queues below the same queue: what each got and was due, and Jain's index.

    Only queues whose jobs the caller may read are counted, as if there were no others. Guarantees, use and demand are
    those of each interval, from the server's history; weights, limits and places in the tree are those of today.
    """
    names = service.queues.names_for(access.caller)
    queues = await service.queues.seen_by(access.caller)

    def divided() -> FairnessInfo:
        history = service.time_series.of(Subject.QUEUES, TimeSpan(begin, end, step), names)
        return fairness_of(history, queues, whole=names is None)

    return await asyncio.to_thread(divided)


@router.get("/jobs/{job}/cards", dependencies=[may(Verb.READ_JOBS, job_in_path)])
def cards_of_job(job: str, service: ServiceOf) -> TimeSeriesInfo:
    """What the cards of a job did over its life, as far as their driver measures it.

    ``engine`` is the part of the time in which anything ran on a card, ``own`` that in which work of the job did;
    ``memory_mib`` the memory that the job has there; ``power_w`` and ``temperature_c`` those of the whole card;
    ``sm`` and ``tensor`` the parts of the time in which its multiprocessors and its tensor cores worked.
    """
    return cards_of(service.state_dir, service.lookup.look_at_one(job))
