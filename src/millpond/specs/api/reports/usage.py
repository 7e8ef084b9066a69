"""The bodies of the REST API about what was used, and what it cost; units and instants as in ``specs.api.base``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

Grouping = Literal["user", "group", "queue", "model", "kind", "job", "month"]
"""What usage can be added up by."""
WaitGrouping = Literal["group", "queue", "user"]
"""What waits can be told apart by, besides the number of cards."""
_KNOWN_PART: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one group (see ``Grouping``) held of devices of one model.

    Attributes:
        model: empty for work without devices.
        jobs: how many different ones; a job may be in several rows.
        gpu_hours: of whole cards; a quarter card for four hours is one.
        cost: by the price list; None where it has no price for the model.
        measured_gpu_hours: of these, those of which it is known whether the cards computed.
        busy_gpu_hours: of the measured ones, those in which they did.
        idle_gpu_hours: of the measured ones, those in which they did for at most one part in twenty.
        energy_gpu_hours: of the hours, those of which it is known what the cards drew.
        energy_kwh: what they drew in these; None: it is known of none.
        declared_kwh: the part of it that follows from a declared power.
        energy_cost: by the prices of the time at which it was drawn, and as far as there was one (``priced_kwh``);
            None: there never was.
        co2_kg: the same of its emissions (``carbon_kwh``).
    """

    name: str
    model: str
    jobs: int
    gpu_hours: float
    cpu_hours: float
    memory_gib_hours: float
    cost: float | None = None
    busy_gpu_hours: float = 0.0
    idle_gpu_hours: float = 0.0
    measured_gpu_hours: float = 0.0
    energy_gpu_hours: float = 0.0
    energy_kwh: float | None = None
    declared_kwh: float = 0.0
    energy_cost: float | None = None
    priced_kwh: float = 0.0
    co2_kg: float | None = None
    carbon_kwh: float = 0.0

    @property
    def busy_percent(self) -> float | None:
        """How much of the measured time the cards computed; None where nothing was measured."""
        if not self.measured_gpu_hours:
            return None
        return min(100 * self.busy_gpu_hours / self.measured_gpu_hours, 100.0)  # each is rounded by itself

    @property
    def unmeasured_gpu_hours(self) -> float:
        """Of how many hours it is not known whether the cards computed."""
        return max(round(self.gpu_hours - self.measured_gpu_hours, 3), 0.0)

    @property
    def is_energy_partial(self) -> bool:
        """Whether much was drawn of which nothing is known; the seconds at the end of a job are no such part."""
        return self.energy_gpu_hours < _KNOWN_PART * self.gpu_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class RateGap:
    """A span in which energy was drawn and no price, or no carbon intensity, is known."""

    of: Literal["price", "carbon"]
    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskInfo:
    """What a user or a group holds on the server's disk: what jobs wrote, with their logs, and datasets.

    Attributes:
        kind: ``user`` or ``group``.
        limit_bytes: what may be held; None without a limit.
    """

    kind: str
    name: str
    used_bytes: int
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageList:
    """Usage between two instants, the largest first; what is still held counts up to ``until``.

    Amounts are rounded to thousandths, costs to hundredths, so that those of all rows and of ``rest`` add up to those
    of ``total``, by whatever they are grouped.

    Attributes:
        currency: of the costs; empty without a price list.
        energy_currency: of the costs of energy; empty if no price of energy is configured.
        gaps: where the configured series of prices and carbon intensities have none.
        rest: the rows beyond those that were asked for, as one; None: there are none.
        disk: by user, and by queue for the groups that own them: what is held on the server's disk now.
    """

    by: str
    since: float
    until: float
    currency: str = ""
    energy_currency: str = ""
    gaps: list[RateGap] = field(default_factory=list)
    rows: list[UsageRow]
    rest: UsageRow | None = None
    total: UsageRow | None = None
    disk: list[DiskInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFigure:
    """A percentile of waits.

    Attributes:
        at_least: the job at this place has not started, or never did: it would have waited longer.
    """

    seconds: float
    at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRow:
    """How long jobs of one group waited for their first start, those of one size.

    Attributes:
        cards: ``0``, ``part`` (of a card), ``1``, ``2``, ``3-4``, ``5-8`` and so on; empty: of any size.
        jobs: all of them.
        started: those that have started.
        gave_up: those that ended before they started: they count with the time until then.
        waiting: those that wait still: they count with the time so far.
        unknown: those of which it is not known whether they started; they are in no percentile.
        p50, p95: None where nothing is known of any.
    """

    name: str
    cards: str
    jobs: int
    started: int
    gave_up: int
    waiting: int
    unknown: int
    p50: WaitFigure | None = None
    p95: WaitFigure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReport:
    """The waits of jobs that could start from an instant between two."""

    by: str
    since: float
    until: float
    rows: list[WaitRow]
    total: WaitRow


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """The wait of one job.

    Attributes:
        eligible_at: since when it could start; the wait counts from here.
        waited_s: None where it is not known.
        outcome: ``started``, ``gave up``, ``waiting`` or ``unknown``.
    """

    job: str
    user: str
    queue: str
    group: str
    gpu_milli: int
    eligible_at: float
    waited_s: float | None
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJobList:
    """Jobs that make up a row of a report, those that waited longest first; ``truncated``: there are more."""

    jobs: list[WaitingJob]
    truncated: bool = False
