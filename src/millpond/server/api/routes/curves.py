"""The route of training curves: what runs report, of several of them together."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from millpond.model.workloads import LONGEST_JOB_ID
from millpond.server.api.description import api_router
from millpond.server.api.long_answers import long_answer
from millpond.server.api.permits import JobLister, ServiceOf
from millpond.server.jobs.curves.service import MOST_POINTS, MOST_RUNS, MOST_SHOWN, POINTS, CurvesRequest
from millpond.server.views.visibility import reader_of
from millpond.specs.api.jobs.curves import CurvesInfo

router = api_router(tags=["files"])

_Job = Annotated[str, Query(max_length=LONGEST_JOB_ID)]
CurveJobs = Annotated[
    tuple[_Job, ...], Query(alias="job", max_length=MOST_RUNS, description="Jobs; of an array or a sweep, its members.")
]
CurveMetrics = Annotated[
    tuple[str, ...],
    Query(alias="metric", max_length=MOST_SHOWN, description="Names of metrics; left out: the first ones there are."),
]
CurveLength = Annotated[int, Query(alias="points", ge=10, le=MOST_POINTS, description="Of each curve, at the most.")]
_STEP = {"ge": -1e300, "le": 1e300, "allow_inf_nan": False}
FirstStep = Annotated[float | None, Query(alias="from", description="Only from this step on.", **_STEP)]
LastStep = Annotated[float | None, Query(alias="to", description="Only up to this step.", **_STEP)]


@router.get("/curves", response_model=CurvesInfo)
async def curves(
    http: Request,
    service: ServiceOf,
    access: JobLister,
    jobs: CurveJobs = (),
    metrics: CurveMetrics = (),
    points: CurveLength = POINTS,
    begin: FirstStep = None,
    end: LastStep = None,
) -> Response:
    """Training curves of up to 50 runs: what programs reported, and the scalars of TensorBoard files in their outputs.

    A curve with more points than asked for is sampled: the lowest and the highest of each stretch; ``count`` says how
    many it has.
    """
    request = CurvesRequest(jobs, tuple(metric[:200] for metric in metrics), points, begin=begin, end=end)
    reader = reader_of(access.caller)
    return await long_answer(service, http, access, lambda: service.curves.compare(request, reader))
