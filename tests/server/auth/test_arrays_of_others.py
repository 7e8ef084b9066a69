"""Arrays, their members and trials are seen by those who see their owner's jobs, and by nobody else."""

from __future__ import annotations

import json
import re

import pytest
from auth_world import API, AuthWorld
from portal_browser import browser_of

from millpond.node.task.records import TaskFiles, TaskId


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


def test_the_page_of_a_sweep_names_its_best_trials(world: AuthWorld) -> None:
    sweep = {"parameters": {"lr": [0.1, 0.2, 0.3], "loader": ["<b>"]}, "metric": "loss"}
    array = world.submit("max", name="tune", sweep=sweep)
    world.settled()
    page = f"/portal/jobs/{array}"
    assert "Best so far" not in browser_of(world, "max").get(page).text, "nothing is reported"
    for index, losses in ((0, (0.9, 0.5)), (2, (0.4, 0.7))):
        report = TaskFiles.of(world.service.state_dir, TaskId(f"{array}.{index}", 1, 0)).metrics
        report.parent.mkdir(parents=True, exist_ok=True)
        lines = [{"at": 1.0, "step": step, "values": {"loss": loss}} for step, loss in enumerate(losses)]
        report.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    text = browser_of(world, "vic").get(page).text
    assert re.findall(r'id="trial-(\d)"', text) == ["2", "0"]
    best = text.partition('id="trial-2"')[2].partition("</tr>")[0]
    assert "lr=0.3, loader=&lt;b&gt;" in best
    assert "<b>0.4</b>" in best
    assert "at 0, now 0.7" in best
