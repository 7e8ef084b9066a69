"""``pond apply`` and ``pond dev`` with a real server."""

from __future__ import annotations

from real_pond import Pond, until


def test_apply_shows_the_plan_first_and_submits_only_when_told_to(shared: Pond) -> None:
    path = shared.state_dir.parent / "job.yaml"
    path.write_text("name: planned\ngpus: 2\ncommand: sleep 600\n")
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
    shared("stop", name)


def test_a_template_is_applied_with_changes(shared: Pond) -> None:
    done = shared("apply", "-y", "--template", "shell", "--set", "gpus=0.25", "--set", "name=mine")
    name = done.stdout.strip()
    until(lambda: shared.job(name)["state"] == "running")
    assert (shared.job(name)["gpus"], shared.job(name)["kind"]) == ("0.25", "dev")
    shared("stop", name)
    assert shared("apply", "-y").returncode == 2


def test_a_place_to_work_is_started_entered_extended_and_left_running(shared: Pond) -> None:
    name = shared("dev", "--gpus", "0.5", "--time-limit", "1h").stdout.strip()
    assert shared.job(name)["state"] == "running"
    assert shared("exec", name, "--", "sh", "-c", "echo $MILLPOND_JOB_ID").stdout.strip() == name
    assert shared("dev", "extend", name, "2h").stdout == f"{name}: 2h00m more\n"
    wrong = shared("dev", "extend", name, "soon")
    assert (wrong.returncode, wrong.stderr.startswith("pond: ")) == (2, True)
    shared("stop", name)
    missing = shared("dev", "--template", "code-server")
    assert (missing.returncode, "coder.com/docs/code-server" in missing.stderr) == (2, True)
