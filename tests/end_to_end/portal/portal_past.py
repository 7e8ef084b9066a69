"""The last days of a server that has just been made: what ran on its cards, who waited how long, and what cards did.

It is written into the store as the server writes it, before a server is started there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millpond.model.energy import J_PER_KWH, EnergySum
from millpond.server.state_dir import DATABASE_FILE
from millpond.server.store.jobs import NewJob
from millpond.server.store.statistics.books import HeldAmount, UsageChange, UsageInterval
from millpond.server.store.statistics.card_use import JobCardUse
from millpond.server.store.statistics.time_series import SeriesRow
from millpond.server.store.store import Store
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.calendar_spans import day_begin, day_of

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
DAYS: Final = 3
_CARDS: Final = {"V100-32GB": 16, "A100-80GB": 4}
_PEOPLE: Final = {"ada": "vision", "bob": "speech", "carla": "vision"}
_WORK: Final = ("finetune", "ablation", "eval", "tokenize", "align-base")
_OUTCOMES: Final = ("succeeded", "succeeded", "succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class _Run:
    """A job that has ended."""

    id: str
    user: str
    model: str
    cards: int
    submitted_at: float
    waited_s: float
    ran_s: float
    state: str
    computed: float


def write_past(state_dir: Path, now: float) -> None:
    """Make the store of a server to be, with what happened in the days before an instant."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = Store(f"sqlite:///{state_dir / DATABASE_FILE}")
    runs = list(_runs(now))
    store.append([], [_submitted(run) for run in runs])
    for run in runs:
        store.record([], [_ended(run)], _held(run))
    store.card_use.add([use for run in runs for use in _used(run)])
    store.time_series.write(list(_looks(int(now))))
    store.close()


def _runs(now: float) -> Iterator[_Run]:
    draw = random.Random(7)
    for number in range(24 * DAYS // 2):
        user = draw.choice(list(_PEOPLE))
        submitted = now - DAYS * DAY_S + number * 2 * HOUR_S + draw.random() * HOUR_S
        ran = min(draw.choice((1, 3, 6)) * HOUR_S * (0.5 + draw.random()), now - submitted - HOUR_S)
        state = draw.choice(_OUTCOMES)
        yield _Run(
            f"{_WORK[number % len(_WORK)]}-{number:03d}",
            user,
            "A100-80GB" if number % 6 == 5 else "V100-32GB",
            draw.choice((1, 1, 2)) if number % 6 == 5 else draw.choice((1, 2, 4, 8)),
            submitted,
            draw.expovariate(1 / 900),
            max(ran, 60.0),
            state,
            0.1 if number % 7 == 0 else 0.55 + 0.4 * draw.random(),
        )


def _submitted(run: _Run) -> NewJob:
    document = {"name": run.id.rpartition("-")[0], "gpus": run.cards, "command": ["python3", "train.py"]}
    return NewJob(run.id, run.user, run.submitted_at, document, group=_PEOPLE[run.user])


def _ended(run: _Run) -> JobInfo:
    started = run.submitted_at + run.waited_s
    group = _PEOPLE[run.user]
    return JobInfo(
        id=run.id,
        name=run.id.rpartition("-")[0],
        queue=group,
        pool="default",
        user=run.user,
        group=group,
        kind="train",
        priority="normal",
        state=run.state,
        attempt=1,
        submitted_at=run.submitted_at,
        eligible_at=run.submitted_at,
        first_started_at=started,
        started_at=started,
        ended_at=started + run.ran_s,
        gpus=str(run.cards),
        gpu_milli=run.cards * 1_000,
        exit_code={"succeeded": 0, "failed": 1}.get(run.state),
    )


def _held(run: _Run) -> list[UsageChange]:
    held = HeldAmount(run.model, run.cards * 1_000, run.cards * 4_000, run.cards * 32_768)
    began = run.submitted_at + run.waited_s
    interval = UsageInterval(run.id, run.user, _PEOPLE[run.user], "train", began, held, _PEOPLE[run.user])
    return [UsageChange(run.id, began, (interval,), is_first=True), UsageChange(run.id, began + run.ran_s, ())]


def _used(run: _Run) -> Iterator[JobCardUse]:
    begin, end = run.submitted_at + run.waited_s, run.submitted_at + run.waited_s + run.ran_s
    day = day_begin(day_of(begin))
    while day < end:
        since, until = max(begin, day), min(end, day + DAY_S)
        held_s = run.cards * (until - since)
        joules = held_s * (60 + 240 * run.computed)
        kwh = joules / J_PER_KWH
        energy = EnergySum(held_s, joules, 0.0, 0.31 * kwh, joules, 380 * kwh, joules)
        idle_s = held_s * (1 - run.computed) if run.computed < 0.5 else held_s * 0.02
        group = _PEOPLE[run.user]
        measured = held_s, held_s * run.computed, idle_s
        yield JobCardUse(run.id, run.model, day, run.user, group, group, "train", since, until, *measured, energy)
        day += DAY_S


def _looks(now: int) -> Iterator[SeriesRow]:
    """Minutes of two days, of which the server makes what is coarser, with an hour in which none ran."""
    draw = random.Random(8)
    for at in range(now // MINUTE_S * MINUTE_S - 2 * DAY_S + 10 * MINUTE_S, now - 5 * MINUTE_S, MINUTE_S):
        if 20 * HOUR_S < now - at < 21 * HOUR_S:
            continue
        busy = 0.55 + 0.35 * math.sin(2 * math.pi * (at % DAY_S) / DAY_S - 1.5)
        models = {name: _cards_look(cards, busy, draw) for name, cards in _CARDS.items()}
        nodes = {
            "dgx-1": _cards_look(8, busy, draw), "dgx-2": _cards_look(8, busy * 0.8, draw),
            "box-1": _cards_look(2, busy, draw), "box-2": _cards_look(2, busy * 0.5, draw),
        }  # fmt: skip
        yield SeriesRow("models", MINUTE_S, at, 1, models)
        yield SeriesRow("nodes", MINUTE_S, at, 1, nodes)
        yield SeriesRow("queues", MINUTE_S, at, 1, _queues_look(busy))


def _cards_look(cards: int, busy: float, draw: random.Random) -> tuple[float, ...]:
    held = round(cards * busy)
    computing = round(held * (0.7 + 0.2 * draw.random()), 3)
    return (float(cards), float(held), 0.0, float(cards), computing, 40.0 * cards + 230.0 * computing, 40 + 35 * busy)


def _queues_look(busy: float) -> dict[str, tuple[float, ...]]:
    vision, speech = round(11 * busy), round(6 * busy)
    return {
        "vision": (8.0, vision, max(0, vision - 8), 0.0, round(4 * busy), round(9 * busy)),
        "speech": (4.0, speech, max(0, speech - 4), max(0, 4 - speech), round(2 * busy), round(4 * busy)),
    }
