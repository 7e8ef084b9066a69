"""The change from the policies that a server's log was decided by to those that it is started with."""

from __future__ import annotations

from millpond.model.events import PolicyChanged
from millpond.model.policy_trials import PolicyOverrides
from millpond.scheduling.settings import Settings


def policy_change(asked: PolicyOverrides, settings: Settings, now: float) -> list[PolicyChanged]:
    """The event that leads from these settings to the policies asked for; none when they hold already."""
    wanted = asked.over(settings.policies)
    if wanted == settings.policies:
        return []
    return [PolicyChanged(now, wanted.ordering, wanted.placement, wanted.preempt, wanted.reserve)]
