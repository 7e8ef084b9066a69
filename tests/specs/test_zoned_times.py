"""Instants with a time zone, and lengths of time from now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from millpond.specs.errors import BadValueError, SpecError
from millpond.specs.job.job_spec import JobSpec, check_job, read_jobs
from millpond.specs.zoned_times import instant, instant_text

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC).timestamp()


def utc(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-12-01 18:00 Europe/Berlin", "2026-12-01T17:00"),
        ("2026-12-01T18:00+01:00", "2026-12-01T17:00"),
        ("2026-12-01 18:00:30 -0530", "2026-12-01T23:30:30"),
        ("2026-12-01T18:00Z", "2026-12-01T18:00"),
        ("2026-12-01 18:00 UTC", "2026-12-01T18:00"),
        ("6h", "2026-11-24T18:00"),
        # The clock of Berlin goes from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on 2026-10-25.
        ("2026-03-29 02:30 Europe/Berlin", "2026-03-29T01:30"),
        ("2026-10-25 02:30 Europe/Berlin", "2026-10-25T00:30"),
    ],
)
def test_an_instant_is_read_by_the_clock_of_its_zone(text: str, at: str) -> None:
    assert instant(text, NOW) == utc(at)


def test_what_is_written_can_be_read_again() -> None:
    assert instant(instant_text(NOW), 0.0) == NOW


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("2026-12-01 18:00", "has no time zone"),
        ("2026-12-01 18:00 Mars/Olympus", "unknown time zone 'Mars/Olympus'"),
        ("2026-12-01 18:00 +25:00", "'+25:00' is no time zone"),
        ("2026-13-01 18:00 UTC", "is no day and hour"),
        ("2026-12-01 24:30 UTC", "is no day and hour"),
        ("tomorrow", "neither an instant nor a length of time"),
        (6, "6 has no unit"),
        (None, "neither an instant nor a length of time"),
        ([], "neither an instant nor a length of time"),
    ],
)
def test_what_is_wrong_with_an_instant_is_named(value: Any, cause: str) -> None:
    with pytest.raises(BadValueError) as caught:
        instant(value, NOW)
    assert cause in caught.value.cause
    assert caught.value.hint


def job(deadline: str, **fields: Any) -> JobSpec:
    return check_job({"command": "work", "deadline": deadline, **fields})


def test_a_length_of_time_counts_from_the_submission_and_is_kept_as_that_instant() -> None:
    submitted = job("6h").submitted_at(NOW)
    assert submitted.job.deadline_s == NOW + 6 * 3_600
    assert submitted.document["deadline"] == "2026-11-24 18:00:00 UTC"
    assert check_job(submitted.document).job.deadline_s == NOW + 6 * 3_600


def test_a_deadline_that_is_past_is_named_with_its_line() -> None:
    (spec,) = read_jobs("command: work\ndeadline: 2026-11-24 11:00 UTC\n", "job.yaml")
    with pytest.raises(SpecError) as caught:
        spec.submitted_at(NOW)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.loc) == (2, 11, "deadline")
    assert "2026-11-24 11:00 UTC is past" in problem.message


@pytest.mark.parametrize("kind", ["service", "dev"])
def test_what_has_no_end_of_its_own_has_no_deadline(kind: str) -> None:
    with pytest.raises(SpecError, match=f"a job of kind {kind} has no end of its own"):
        job("6h", kind=kind)
