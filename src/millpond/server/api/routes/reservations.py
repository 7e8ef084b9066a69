"""Routes about advance reservations."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from millpond.model.workloads import LONGEST_JOB_ID
from millpond.server.api.description import api_router
from millpond.server.api.permits import ClusterReader, JobSubmitter, ServiceOf
from millpond.server.auth.roles import AccessTarget
from millpond.specs.api.pool.reservations import ReservationInfo, ReservationList, ReserveRequest
from millpond.specs.validation import PLAIN_NAME

router = api_router(tags=["cluster"])
ReservationName = Annotated[str, Path(max_length=LONGEST_JOB_ID, pattern=PLAIN_NAME)]


@router.get("/reservations")
async def list_reservations(service: ServiceOf, access: ClusterReader) -> ReservationList:
    """The reservations of the queues of one's groups, for admins all, the first to begin first."""
    return ReservationList(reservations=await service.reservations.seen_by(access.caller))


@router.put("/reservations/{name}")
async def reserve(
    name: ReservationName, body: ReserveRequest, service: ServiceOf, access: JobSubmitter
) -> ReservationInfo:
    """Reserve cards for a queue, or change the reservation of this name. What does not fit says when it does."""
    info = await service.reservations.put(name, body, access.caller)
    access.note(f"{info.cards} cards for {info.queue}", target=AccessTarget("reservation", name))
    return info


@router.delete("/reservations/{name}", status_code=204)
async def cancel_reservation(name: ReservationName, service: ServiceOf, access: JobSubmitter) -> None:
    """Give a reservation up; work on its cards goes on as any other."""
    await service.reservations.cancel(name, access.caller)
    access.note("cancelled", target=AccessTarget("reservation", name))
