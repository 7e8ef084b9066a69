"""The policies that a server is started with, and the change from those that its log was decided by."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond.model.events import PolicyChanged
from millpond.scheduling.settings import Settings


@dataclass(frozen=True, slots=True)
class Policies:
    """What was asked for when the server was started; what was left open stays as the store has it.

    Attributes:
        ordering, placement: names of ``scheduling.settings``; empty: left open.
        preempt: the ordering may end running work of the same class; None: left open.
        reserve: keep room for the first job that does not fit; None: left open.
    """

    ordering: str = ""
    placement: str = ""
    preempt: bool | None = None
    reserve: bool | None = None

    def over(self, settings: Settings) -> Settings:
        """The settings with what was asked for."""
        return replace(
            settings,
            ordering=self.ordering or settings.ordering,
            placement=self.placement or settings.placement,
            preempt=settings.preempt if self.preempt is None else self.preempt,
            reserve=settings.reserve if self.reserve is None else self.reserve,
        )

    def change(self, settings: Settings, now: float) -> list[PolicyChanged]:
        """The event that leads from these settings to those asked for; none when they are the same."""
        wanted = self.over(settings)
        if wanted == settings:
            return []
        return [PolicyChanged(now, wanted.ordering, wanted.placement, wanted.preempt, wanted.reserve)]


UNCHANGED = Policies()
"""Nothing was asked for."""
