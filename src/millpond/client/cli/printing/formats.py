"""Amounts, spans and instants as people read and write them, by this machine's clock."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Final

from millpond.model.amounts import count_text

if TYPE_CHECKING:
    from millpond.specs.api.jobs.jobs import DeadlineInfo, JobInfo
    from millpond.specs.api.pool.nodes import CordonInfo, DeviceInfo, DeviceStatus, NodeInfo

PRECISE_WIDTH: Final = 22
"""Characters of ``precise_text``."""
_WITHOUT_POWER: Final = {"off": "off", "booting": "booting", "failed": "off"}
"""What is said of cards, by the power of a node that is not there."""


def span(seconds: float) -> str:
    """A length of time in at most two units: ``5s``, ``2m10s``, ``3h05m``, ``2d04h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{second:02}s"
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minute:02}m"
    days, hour = divmod(hours, 24)
    return f"{days}d{hour:02}h"


def age(instant: float) -> str:
    """How long ago an instant was."""
    return span(time.time() - instant)


def used(instant: float | None) -> str:
    """When something was last used."""
    return "never" if instant is None else f"{age(instant)} ago"


def gib(mebibytes: int) -> str:
    """Memory in GiB, without needless zeros."""
    return f"{mebibytes / 1024:.1f}".removesuffix(".0")


def card_number(index: int, instance: int | None) -> str:
    """A card's number; of a part that the hardware cut out of it, both: ``3.1``."""
    return str(index) if instance is None else f"{index}.{instance}"


def health(device: DeviceInfo | DeviceStatus) -> str:
    """A card's health, with what is known of it."""
    return f"{device.health}: {device.health_detail}" if device.health_detail else device.health


def device_state(device: DeviceStatus) -> str:
    """A card's health, or that its node is off."""
    return _WITHOUT_POWER.get(device.power) or health(device)


def card_state(device: DeviceInfo) -> str:
    """Whether a card takes new work, its node aside, and if not, why; what an emptied one still waits for."""
    if device.closure is None:
        watched = device.probation_until
        return health(device) + (f", on probation until {instant_text(watched)}" if watched is not None else "")
    state = "closed"
    if device.closure.drain:
        state = "draining" if device.holders else "drained"
    by = f" by {device.closure.by}" if device.closure.by else ""
    reason = f": {device.closure.reason}" if device.closure.reason else ""
    sick = "" if device.health == "ok" else f"; {health(device)}"
    return f"{state}{by}{reason}{sick}"


def kept(job: JobInfo) -> str:
    """Up to when the place of a job that has failed is kept, and what can be done with it."""
    if job.kept_until is None or job.kept_task is None:
        return ""
    which = f" --task {job.kept_task.task}" if len(job.tasks) > 1 else ""
    until = instant_text(job.kept_until)
    look, release = f"pond attach{which} {job.id}", f"pond stop {job.id}"
    return f"its place is kept until {until}: `{look}` looks inside, `{release}` gives it back"


def deadline(info: DeadlineInfo, now: float) -> str:
    """A deadline, and whether it should be kept: ``2026-12-01 18:00: at risk, it should end by 17:10 to 19:30``."""
    at = instant_text(info.at)
    if info.verdict not in ("accept", "at-risk"):
        return f"{at}: {info.verdict}" if info.verdict else at
    verdict = "accepted" if info.verdict == "accept" else "at risk"
    known = [("likely end", info.likely_end_at), ("latest", info.latest_end_at)]
    facts = [f"{title} {instant_text(end)}" for title, end in known if end is not None]
    if info.unknown:
        facts.append(f"not known: {info.unknown}")
    return f"{at}, in {span(info.at - now)}: {verdict} ({', '.join(facts)})"


def seen_by(visibility: str, group: str) -> str:
    """Who sees something that belongs to a group: the group by its name, or ``private`` or ``everyone``."""
    return group if visibility == "group" and group else visibility


def machine_state(node: NodeInfo) -> str:
    """Whether a machine takes new work, and if not, why and for how long; what an emptied one still waits for."""
    planned = next((f", closes {instant_text(each.begin)}{_because(each)}" for each in node.planned), "")
    if node.closure is not None:
        return _closed(node, node.closure) + planned
    if not node.schedulable:
        return f"closed: {node.unschedulable_reason}" if node.unschedulable_reason else "closed"
    closed = sum(device.closure is not None for device in node.devices)
    unusable = sum(device.health != "ok" and device.closure is None for device in node.devices)
    parts = ((unusable, "unusable"), (closed, "closed"))
    state = ", ".join(f"{count_text(number, 'card')} {what}" for number, what in parts if number) or "open"
    if node.power == "on" and node.power_detail:
        state += f", not switched off: {node.power_detail}"
    state += planned
    return f"{state}, unsandboxed" if node.unsandboxed else state


def _closed(node: NodeInfo, closure: CordonInfo) -> str:
    state = "closed"
    if node.draining:
        state = "draining" if node.jobs else "drained"
    until = f" until {instant_text(closure.until)}" if closure.until is not None else ""
    waits = f"; waits for {', '.join(node.jobs)}" if node.draining and node.jobs else ""
    return f"{state}{until}{_because(closure)}{waits}"


def _because(closure: CordonInfo) -> str:
    return f": {closure.reason}" if closure.reason else ""


def instant_text(instant: float, *, seconds: bool = False) -> str:
    """``2026-11-22 08:00``, or with seconds."""
    local = datetime.datetime.fromtimestamp(instant, datetime.UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}" if seconds else f"{local:%Y-%m-%d %H:%M}"


def limit_end(job: JobInfo) -> str:
    """``; its time limit ends at 2026-11-22 08:00``, of a job that runs; empty where it has none."""
    return "" if job.limit_ends_at is None else f"; its time limit ends at {instant_text(job.limit_ends_at)}"


def precise_text(instant: float) -> str:
    """``2026-11-22 08:00:07.25``."""
    local = datetime.datetime.fromtimestamp(instant, datetime.UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 10_000:02d}"
