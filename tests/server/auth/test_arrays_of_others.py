"""Arrays, their members and trials are seen by those who see their owner's jobs, and by nobody else."""

from __future__ import annotations

import pytest
from auth_world import API, AuthWorld


@pytest.mark.parametrize("which", ["{array}", "{array}.0", "{array}.8"])
def test_an_array_and_its_members_are_absent_for_other_groups(world: AuthWorld, which: str) -> None:
    array = world.submit("max", name="plan", sweep={"parameters": {"a": list(range(9))}, "parallel": 1})
    job = which.format(array=array)
    world.settled()
    for path in ("", "/why", "/events", "/document", "/trials"):
        assert world.client("sam").get(f"{API}/jobs/{job}{path}").status_code == 404
    assert world.client("sam").post(f"{API}/jobs/{job}/stop").status_code == 404
    assert world.client("mia").post(f"{API}/jobs/{job}/stop").status_code == 403
    assert world.client("mia").get(f"{API}/jobs/{job}").json()["user"] == "max"
    assert world.client("max").post(f"{API}/jobs/{job}/stop").status_code == 202


def test_members_of_an_array_of_another_group_are_not_listed(world: AuthWorld) -> None:
    array = world.submit("max", name="plan", array=3)
    world.settled()
    answer = world.client("sam").get(f"{API}/jobs", params={"members": array})
    assert answer.status_code == 404
    assert len(world.client("mia").get(f"{API}/jobs", params={"members": array}).json()["jobs"]) == 3
    assert array not in world.client("sam").get(f"{API}/events").text
