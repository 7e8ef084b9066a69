"""``pond apply`` and ``pond dev`` with a real server."""

from __future__ import annotations

import pytest
from real_pond import Pond, until

from millpond.client.cli.printing.formats import instant_text

pytestmark = pytest.mark.long


def test_apply_shows_the_plan_first_and_submits_only_when_told_to(shared: Pond) -> None:
    path = shared.state_dir.parent / "job.yaml"
    path.write_text("name: planned\ngpus: 2\ncommand: sleep 600\n")
    until(shared.is_idle)
    refused = shared("apply", str(path))
    assert (refused.returncode, "add -y" in refused.stderr) == (2, True)
    shown = shared("apply", "--dry-run", "--set", "gpus=4", str(path))
    assert shown.stdout.splitlines()[0].startswith("starts now: task 0 on fake-")
    assert "queue default: 0 -> 4 cards in use" in shown.stdout
    assert shared("ps", "-o", "name").stdout == ""
    done = shared("apply", "-y", str(path))
    assert "queue default: 0 -> 2 cards in use" in done.stderr
    name = done.stdout.strip()
    assert name.startswith("planned-")
    never = shared("apply", "--dry-run", "--set", "gpus=99", str(path))
    assert (never.returncode, never.stdout) == (2, "")
    assert shared("stop", name).returncode == 0


def test_a_template_is_applied_with_changes(shared: Pond) -> None:
    done = shared("apply", "-y", "--template", "shell", "--set", "gpus=0.25", "--set", "name=mine")
    name = done.stdout.strip()
    until(lambda: shared.job(name)["state"] == "running")
    assert (shared.job(name)["gpus"], shared.job(name)["kind"]) == ("0.25", "dev")
    assert shared("stop", name).returncode == 0
    assert shared("apply", "-y").returncode == 2


def test_a_place_to_work_is_started_entered_extended_and_left_running(shared: Pond) -> None:
    name = shared.printed("dev", "--gpus", "0.5", "--time-limit", "1h")
    assert shared.job(name)["state"] == "running"
    assert shared.printed("exec", name, "--", "sh", "-c", "echo $MILLPOND_JOB_ID") == name
    extended = shared("dev", "extend", name, "2h").stdout
    ends_at = shared.job(name)["limit_ends_at"]
    assert ends_at == pytest.approx(shared.job(name)["started_at"] + 3 * 3600, abs=1)
    assert extended == f"{name}: 2h00m more; its time limit ends at {instant_text(ends_at)}\n"
    wrong = shared("dev", "extend", name, "soon")
    assert (wrong.returncode, wrong.stderr.startswith("pond: ")) == (2, True)
    assert shared("stop", name).returncode == 0
    missing = shared("dev", "--template", "code-server")
    assert (missing.returncode, "coder.com/docs/code-server" in missing.stderr) == (2, True)


def test_the_jobs_of_a_file_are_taken_together_by_submit_and_by_apply(shared: Pond) -> None:
    path = shared.state_dir.parent / "pipeline.yaml"
    good = "name: Fetch_It\ncommand: echo fetched\n---\nname: fit-it\nafter: Fetch_It\ncommand: echo fitted\n"
    path.write_text(good + "---\nname: never\ncommand: x\ngpus: 999\n")
    before = shared("ps", "--all", "-o", "name").stdout
    for way in (("submit",), ("apply", "-y")):
        refused = shared(*way, str(path))
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "999 GPUs" in refused.stderr
        assert shared("ps", "--all", "-o", "name").stdout == before
    path.write_text(good)
    for way in (("submit",), ("apply", "-y")):
        first, second = shared(*way, str(path)).stdout.split()
        assert shared("wait", second).returncode == 0
        assert shared("logs", first).stdout == "fetched\n"
    assert shared("logs", "fit-").returncode == 5, "two begin so"
    path.write_text("name: Only_One\ncommand: echo here\n")
    assert shared("submit", str(path)).returncode == 0
    assert shared("wait", "Only_One").returncode == 0
    assert shared("logs", "Only_O").stdout == "here\n"
