"""What job files say about failures, and about roles that do not keep a job running."""

from __future__ import annotations

import pytest

from millpond.model.workloads import FailureRule, RetryDelay
from millpond.specs.errors import SpecError
from millpond.specs.job.job_spec import read_jobs


def test_exit_codes_signals_and_classes_are_read() -> None:
    (spec,) = read_jobs("command: x\nretries: 3\nretry_on: [75, SIGKILL, out-of-memory, '8']\nfail_on: [sigsegv, 2]\n")
    job = spec.to_job("j")
    assert job.failures == FailureRule(("75", "137", "out-of-memory", "8"), ("139", "2"))
    assert job.roles[0].failures is None


def test_a_role_takes_the_rules_of_its_job_unless_it_has_its_own() -> None:
    text = (
        "command: x\nretries: 1\nfail_on: [2]\nroles: [{name: a}, {name: b, fail_on: []}, {name: c, retry_on: [9]}]\n"
    )
    (spec,) = read_jobs(text)
    job = spec.to_job("j")
    rules = [job.failure_rule(index) for index in range(3)]
    assert rules == [FailureRule((), ("2",)), FailureRule(), FailureRule(("9",), ("2",))]


@pytest.mark.parametrize(
    ("written", "delay"),
    [
        ("30s", RetryDelay(30.0)),
        ("{first: 1m, factor: 3, longest: 10m}", RetryDelay(60.0, 3.0, 600.0)),
        ("0", RetryDelay()),
    ],
)
def test_a_delay_is_a_length_of_time_or_says_how_it_grows(written: str, delay: RetryDelay) -> None:
    (spec,) = read_jobs(f"command: x\nretries: 3\nretry_delay: {written}\n")
    assert spec.to_job("j").retry_delay == delay


def test_how_long_the_place_of_a_failed_task_is_kept_is_a_length_of_time() -> None:
    (spec,) = read_jobs("command: x\nkeep: 30m\n")
    assert spec.to_job("j").keep_s == 1_800.0


def test_daemons_are_roles_like_others() -> None:
    (spec,) = read_jobs("command: x\nroles: [{name: worker, tasks: 4}, {name: ps, tasks: 2, daemon: true}]\n")
    assert [role.daemon for role in spec.to_job("j").roles] == [False, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("retry_on: [75]", "retry_on without retries"),
        ("retries: 1\nretry_on: [0]", "0 is no failure"),
        ("retries: 1\nretry_on: [256]", "256 is no failure"),
        ("retries: 1\nretry_on: [true]", "true is no failure"),
        ("retries: 1\nretry_on: [out-of-memroy]", "did you mean 'out-of-memory'?"),
        ("retries: 1\nfail_on: [SIGNOPE]", "'SIGNOPE' is no failure"),
        ("retries: 1\nfail_on: [time-limit]", "'time-limit' is no failure"),
        ("retries: 1\nretry_delay: 30", "30 has no unit"),
        ("retries: 1\nretry_delay: {first: 30s, factor: 0.5}", "use at least 1"),
        ("roles: [{name: ps, daemon: true}]", "all roles are daemons"),
        ("keep: 30", "30 has no unit"),
        ("keep: 0s", "use more than 0s"),
        ("keep: 25h", "use at most 1d"),
        ("kind: service\nkeep: 1h", "a single job of kind train"),
        ("array: 10\nkeep: 1h", "run the member that fails by itself"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_jobs(f"{text}\ncommand: x\n")
    assert words in str(caught.value)
