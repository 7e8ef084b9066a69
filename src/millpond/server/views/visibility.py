"""Whose jobs a user may see, and what they read instead of the names of all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from millpond.model.events import LimitChanged, QueueChanged, QueueRemoved, ReservationCancelled, ReservationMade
from millpond.server.auth.roles import AccessTarget, Caller, Verb, allows
from millpond.server.store.jobs import Owners
from millpond.specs.api.events import EventInfo
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.api.jobs.reasons import PlanInfo, ReasonInfo
from millpond.specs.api.pool.nodes import DeviceStatus, NodeInfo, ProcessStatus, SliceStatus

VEIL: Final = "a job of another group"

Look = Callable[[str], JobInfo | None]
"""Finds a job by its id; None when there never was one, as for the name of a queue."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A user who reads about jobs.

    Attributes:
        owners: whose jobs they may see; None: all users'.
    """

    owners: Owners | None

    def sees(self, info: JobInfo | None) -> bool:
        """Whether they may see this job; what is no job, they may."""
        return self.owners is None or info is None or info.user == self.owners.user or info.group in self.owners.groups

    def reason(self, reason: ReasonInfo, look: Look) -> ReasonInfo:
        """The reason, without the name of a job in the way that is not for them."""
        other = reason.blocked_by
        if not other or self.owners is None or self.sees(look(other)):
            return reason
        remedy = reason.remedy
        if remedy is not None:
            remedy = replace(remedy, change=remedy.change.replace(other, VEIL))
        return replace(reason, summary=reason.summary.replace(other, VEIL), blocked_by="", remedy=remedy)

    def hears_of(self, event: EventInfo, look: Look) -> bool:
        """Whether they may see an entry of the log: about such a job, a limit or a reservation of their own, or no user
        at all. Reservations of their groups stand in the list of these."""
        if self.owners is None:
            return True
        if event.what in (QueueChanged.__name__, QueueRemoved.__name__):
            return False
        if event.what == LimitChanged.__name__:
            return bool(event.data["limit"].get("user") == self.owners.user)
        if event.what == ReservationMade.__name__:
            return bool(event.data["reservation"].get("by") == self.owners.user)
        if event.what == ReservationCancelled.__name__:
            return bool(event.data.get("by") == self.owners.user)
        return self.sees(look(event.about))

    def event(self, event: EventInfo, look: Look) -> EventInfo:
        """The entry of a history, without the name of a successor that is not for them."""
        other = event.data.get("for_job", "")
        if not other or self.owners is None or self.sees(look(other)):
            return event
        data = {name: value for name, value in event.data.items() if name != "for_job"}
        return replace(event, text=event.text.replace(other, VEIL), data=data)

    def plan(self, plan: PlanInfo, look: Look) -> PlanInfo:
        """The plan, without the names of jobs that are not for them and of whose they are."""
        if self.owners is None:
            return plan
        victims = [
            victim if self.sees(look(victim.job)) else replace(victim, job=VEIL, user="") for victim in plan.victims
        ]
        reason = None if plan.reason is None else self.reason(plan.reason, look)
        return replace(plan, victims=victims, reason=reason)

    def node(self, node: NodeInfo, look: Look) -> NodeInfo:
        """The machine, without the names of holders that are not for them."""
        if self.owners is None:
            return node
        named = {*node.jobs, *(part.job for device in node.devices for part in device.slices)}
        named.update(job for device in node.devices for job in device.holders)
        seen = {job for job in named if (info := look(job)) is not None and self.sees(info)}
        if seen == named:
            return node

        def shown(job: str) -> str:
            return job if job in seen else VEIL

        devices = [
            replace(
                device,
                holders=[shown(job) for job in device.holders],
                slices=[replace(each, job=shown(each.job)) for each in device.slices],
            )
            for device in node.devices
        ]
        return replace(node, devices=devices, jobs=[shown(job) for job in node.jobs])

    def device(self, device: DeviceStatus, look: Look) -> DeviceStatus:
        """The device, without the names of those who hold it and are not for them."""
        if self.owners is None:
            return device

        def is_shown(job: str) -> bool:
            info = look(job)
            return info is not None and self.sees(info)

        def shown(part: SliceStatus) -> SliceStatus:
            return part if is_shown(part.job) else replace(part, job=VEIL, user="", role="")

        def seen(process: ProcessStatus) -> ProcessStatus:
            if not process.job or is_shown(process.job):
                return process
            return replace(process, job=VEIL, name="", account="")

        slices, processes = map(shown, device.slices), map(seen, device.processes)
        return replace(device, slices=list(slices), processes=list(processes))


EVERYBODY: Final = Reader(None)
_NOBODY: Final = Reader(Owners(" ", frozenset()))
"""Sees no job: no user has such a name."""


def reader_of(caller: Caller) -> Reader:
    """What the caller may see of jobs, by their roles and by what their token is confined to."""
    if caller.verbs is not None and Verb.READ_JOBS not in caller.verbs:
        return _NOBODY
    if caller.admin:
        return EVERYBODY
    groups = {
        group
        for group in caller.groups
        if allows(caller, Verb.READ_JOBS, AccessTarget("job", "", groups=frozenset({group})))
    }
    return Reader(Owners(caller.user, frozenset(groups)))
