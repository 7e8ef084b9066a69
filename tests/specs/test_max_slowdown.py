"""Which jobs may say that their steps may take longer."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.specs.errors import SpecError
from millpond.specs.job.job_spec import check_job


def test_it_comes_to_the_scheduler_as_a_part() -> None:
    job = check_job({"command": "work", "name": "bert", "gpus": 1, "max_slowdown": "5%"}).to_job("j", "ada")
    assert job.max_slowdown == 0.05
    assert check_job({"command": "work"}).to_job("j", "ada").max_slowdown == 0.0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "web", "kind": "service"}, "has no steps that may take longer"),
        ({}, "found to be alike by their name"),
        ({"name": "bert", "tasks": {"min": 1, "max": 4}}, "an elastic job have no power cap of their own"),
        ({"name": "bert", "max_slowdown": "80%"}, "more than a half"),
    ],
)
def test_who_can_have_no_cap_is_told_so(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_job({"command": "work", "gpus": 1, "max_slowdown": "5%", **fields})
    assert any(said in problem.message for problem in caught.value.problems)
