"""What the log tells people: every kind of event in words of theirs."""

from __future__ import annotations

import pytest

from millpond.model.confinement import Confinement
from millpond.model.decisions import Placement, Start, Stop
from millpond.model.events import (
    ClockJumped,
    Confirmed,
    Event,
    LimitChanged,
    LoadSampled,
    PolicyChanged,
    PoolChanged,
    ProgressMeasured,
    QueueChanged,
    QueueRemoved,
    Tick,
    UsageHalfLifeChanged,
)
from millpond.model.hardware.nodes import Pool, SharingPolicy
from millpond.model.reasons import Cause
from millpond.model.resources import Amount
from millpond.model.sharing import SliceHold
from millpond.model.tenancy.tenants import Limit, Queue
from millpond.model.windows import Window
from millpond.server.store.histories import DecisionEntry, LogEntry
from millpond.server.views.events import account
from millpond.specs.config.queues import UNLIMITED

LIMIT = Amount(4_000, UNLIMITED, UNLIMITED)
TOLD = [
    (
        PolicyChanged(1.0, "fair", "fgd", preempt=False, reserve=True),
        (
            "from now on ordering fair and placement fgd decide; running work is not ended for equals, "
            "room is kept for the first that waits"
        ),
    ),
    (UsageHalfLifeChanged(1.0, 86_400.0), "past usage counts half after 1 day"),
    (PoolChanged(1.0, Pool("gold")), "pool gold: cards are sliced"),
    (
        PoolChanged(1.0, Pool("gold", consolidates=True)),
        "pool gold: cards are sliced; work is moved so that whole nodes come free",
    ),
    (PoolChanged(1.0, Pool("gold", longest_boot_s=600.0)), "pool gold: cards are sliced; nodes boot within 10 minutes"),
    (
        PoolChanged(
            1.0,
            Pool("gold", SharingPolicy.EXCLUSIVE, suspends=True, cpu_factor_milli=1500, lending=(Window(0, 480),)),
        ),
        (
            "pool gold: cards are exclusive; CPUs handed out up to 1.5 times; work may be suspended, turns of 1 minute"
            "; borrowing at 00:00-08:00 UTC only"
        ),
    ),
    (QueueChanged(1.0, Queue("free")), "queue free below root: guarantee none, no limit, weight 1"),
    (QueueRemoved(1.0, "free"), "queue free was deleted"),
    (
        QueueChanged(1.0, Queue("nlp", "org", Amount(2_500, 4_000), LIMIT, 2.0, borrows=False)),
        "queue nlp below org: guarantee 2.5 GPUs, 4 CPUs, limit 4 GPUs, weight 2, borrows nothing",
    ),
    (LimitChanged(1.0, Limit("ann", jobs=1, gpu_milli=500)), "user ann may run at most 1 job, 0.5 GPUs at once"),
    (LimitChanged(1.0, Limit(queue="nlp")), "queue nlp may run as much as its queues allow"),
    (ClockJumped(1.0, 7_200.0), "the clock was set forward by 2 hours; time limits and usage do not count them"),
    (ProgressMeasured(1.0, "j", 1, 2.5, 2_000), "steps: 2.5/s, 1.25/s per card"),
    (ProgressMeasured(1.0, "j", 1, 0.002, 0), "steps: 7.2/h"),
    (
        ProgressMeasured(1.0, "j", 1, None, 2_000, "its steps run back, from 9 to 2"),
        "steps: not measured, its reports are ignored: its steps run back, from 9 to 2",
    ),
    (LoadSampled(1.0, "n1", 125), "devices of n1 used to 12.5 %"),
    (Tick(1.0), "the scheduler looked at everything"),
]


@pytest.mark.parametrize(("event", "text"), TOLD)
def test_settings_and_measurements_are_told_in_words(event: Event, text: str) -> None:
    (line,) = account([LogEntry(7, event)], [], {})
    assert (line.seq, line.text) == (7, text)


def test_a_move_says_for_whom_and_where_to() -> None:
    placement = Placement(0, "worker", "n", ())
    decided = (
        Stop(3, "j", 1, Cause.CONSOLIDATED, (), 30.0, "big"),
        Start(4, "j", 2, Cause.CONSOLIDATED, (placement,)),
        Stop(5, "j", 2, Cause.CONSOLIDATED, (), 30.0),
        Stop(6, "j", 2, Cause.BALANCED, (), 30.0),
        Start(7, "j", 3, Cause.BALANCED, (placement,), load_milli=125),
    )
    lines = account([], [DecisionEntry(7, 1.0, decision) for decision in decided], {})
    assert [line.text for line in lines] == [
        "end all tasks within 30s, to be restart-migrated so that a node comes free for big",
        "start 1 task on n (attempt 2, consolidated)",
        "end all tasks within 30s, to be restart-migrated so that a node comes free",
        "end all tasks within 30s, to be restart-migrated off a busy card",
        "start 1 task on n (attempt 3, balanced, beside load of 12.5 %)",
    ]


def test_a_start_that_nothing_keeps_to_its_part_of_a_card_is_told_so() -> None:
    unheld = Confinement(slices=SliceHold.NOTHING, slices_reason="there is no gate for amd devices")
    start = Start(3, "j", 1, Cause.FITS, (Placement(0, "worker", "n", ()),))
    (line,) = account([LogEntry(7, Confirmed(1.0, 3, unheld))], [], {3: start})
    assert line.text == "1 task running; nothing keeps it to its part of the card: there is no gate for amd devices"
