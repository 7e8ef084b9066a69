"""Sums of usage on both databases: the largest and the rest are the whole, and members count as their array."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_databases import fresh_postgresql, fresh_sqlite

from millpond.server.store.statistics.books import (
    ALL_USAGE,
    HeldAmount,
    UsageChange,
    UsageFilter,
    UsageInterval,
    UsageSum,
)
from millpond.server.store.statistics.card_use import JobCardUse
from millpond.server.store.store import Store
from millpond.specs.job.job_ids import array_id

SINCE, UNTIL = 1_000.0, 9_000.0
JOBS = ("plain-abcde", "array-fghij.0", "array-fghij.17", "array-fghij.4", "old-000123", "n1.2", "7", "service~2", "r9")


@pytest.fixture(params=["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    is_postgresql = request.param == "PostgreSQL"
    url = fresh_postgresql(request.getfixturevalue("postgresql_url")) if is_postgresql else fresh_sqlite(tmp_path)
    store = Store(url)
    yield store
    store.close()


def fill(store: Store, seed: int) -> None:
    """Runs of these jobs, some of them over the ends of the span, some going on, on two models and on none."""
    draws, free_from = random.Random(seed), dict.fromkeys(JOBS, 0.0)
    for number in range(40):
        job, model = draws.choice(tuple(free_from)), draws.choice(("A100", "H100", ""))
        begin = free_from[job] + draws.uniform(0.0, 2_000.0)
        end = None if draws.random() < 0.1 and len(free_from) > 1 else begin + draws.uniform(1.0, 3_000.0)
        held = HeldAmount(model, draws.choice((250, 1_000, 8_000)) if model else 0, 2_000, 4_096)
        whose = (f"user-{JOBS.index(job) % 3}", "default", "train")
        store.record([], [], [UsageChange(job, begin, (UsageInterval(job, *whose, begin, held),), is_first=True)])
        if end is None:
            del free_from[job]
        else:
            free_from[job] = end
            store.record([], [], [UsageChange(job, end, ())])
            day = 86_400.0 * number
            amounts = (begin, end, end - begin, (end - begin) / 2, (end - begin) / 4)
            store.card_use.add([JobCardUse(job, model, day, whose[0], whose[1], "", whose[2], *amounts)])


def amounts(total: UsageSum) -> tuple[float, ...]:
    return total.gpu_seconds, total.cpu_seconds, total.memory_gib_seconds, float(total.jobs)


@pytest.mark.parametrize("by", ["job", "user", "model"])
def test_the_largest_and_the_rest_are_all(store: Store, by: str) -> None:
    fill(store, 0)
    whole = store.books.sums(by, SINCE, UNTIL)
    for most in (0, 1, 3, len(whole) - 1, len(whole), len(whole) + 1):
        largest, rest = store.books.largest(by, SINCE, UNTIL, ALL_USAGE, most)
        assert largest == whole[:most]
        assert len({total.model for total in rest}) == len(rest)
        for model in ("A100", "H100", ""):
            parts = [[amounts(each) for each in some if each.model == model] for some in (rest, whole[most:])]
            left, expected = ([sum(column) for column in zip(*some, strict=True)] for some in parts)
            assert left == pytest.approx(expected), (most, model)
    assert store.books.largest(by, UNTIL, UNTIL, ALL_USAGE, 3) == ([], [])


def test_members_of_an_array_count_as_the_array_whatever_the_ids_of_others_look_like(store: Store) -> None:
    fill(store, 1)
    members = Counter(array_id(job) for job in JOBS)
    sums = store.books.sums("job", 0.0, 1e9)
    assert {total.name for total in sums} == set(members)
    assert all(total.jobs <= members[total.name] for total in sums)


def test_what_was_measured_of_the_groups_that_are_not_named_is_one_sum(store: Store) -> None:
    fill(store, 2)
    everything = store.card_use.sums("job", SINCE, UNTIL)
    names = {"array-fghij", "7"}
    found = store.card_use.sums("job", SINCE, UNTIL, UsageFilter(), names)
    own = {key: value for key, value in found.items() if key[0] is not None}
    assert own == {key: value for key, value in everything.items() if key[0] in names}
    assert {name for name, _ in own} == names
    for model in ("A100", "H100", ""):
        others = [value for (name, of), value in everything.items() if of == model and name not in names]
        assert found[None, model].busy_gpu_s == pytest.approx(sum(each.busy_gpu_s for each in others))


@pytest.mark.long
def test_more_groups_can_be_named_than_a_database_takes_parameters(store: Store) -> None:
    fill(store, 3)
    names = {"array-fghij", "7"}
    beyond = {f"'gone' \\\"é{number}" for number in range(250_001)}
    sums = store.card_use.sums("job", SINCE, UNTIL, ALL_USAGE, names)
    assert None in {name for name, _ in sums}
    assert store.card_use.sums("job", SINCE, UNTIL, ALL_USAGE, names | beyond) == sums
    shown = [(name, model) for name in names for model in ("A100", "H100", "")]
    left = store.books.jobs_beside("job", SINCE, UNTIL, ALL_USAGE, shown)
    assert 0 < left < store.books.jobs(SINCE, UNTIL)
    more = [*shown, *((name, "H100") for name in beyond)]
    assert store.books.jobs_beside("job", SINCE, UNTIL, ALL_USAGE, more) == left
