"""Jobs that are halted, resized, or lose a task while they run; and a server that comes back with other policies."""

from __future__ import annotations

import pytest
from real_pond import until

pytestmark = pytest.mark.long

COUNTING = "echo begun $MILLPOND_TASK; trap 'exit 0' TERM; while :; do echo . >> {file}; sleep 0.02; done"


def test_a_suspended_job_stands_still_through_a_restart_and_goes_on_when_resumed(running, tmp_path):
    file = tmp_path / "beats"
    script = COUNTING.format(file=file)
    job_id = running.printed("run", "--detach", "--gpus", "1", "--", "sh", "-c", script)
    until(lambda: file.exists() and running.runs(job_id))
    other = tmp_path / "other"
    assert running("run", "--detach", "--", "sh", "-c", COUNTING.format(file=other)).returncode == 0
    until(other.exists)
    assert running("suspend", job_id).stdout == f"{job_id}: suspended\n"
    beats = still(file, other)
    running.kill_server()
    running.up()
    assert running.job(job_id)["state"] == "suspended"
    assert file.stat().st_size == beats
    assert running("suspend", job_id).returncode == 5
    assert running("resume", job_id).returncode == 0
    until(lambda: file.stat().st_size > beats)
    assert running("stop", job_id).returncode == 0
    assert running("wait", job_id).returncode == 143


def test_a_job_whose_memory_went_to_the_host_goes_on_when_its_cards_are_free_again(shared):
    swapped = shared.printed("run", "--detach", "--gpus", "4", "--", "sleep", "300")
    until(lambda: shared.job(swapped)["state"] == "running")
    assert shared("suspend", "--swap", swapped).returncode == 0
    other = shared.printed("run", "--detach", "--gpus", "4", "--tasks", "2", "--", "sleep", "300")
    until(lambda: shared.job(other)["state"] == "running")
    assert shared("resume", swapped).stdout == (
        f"{swapped}: to go on, as soon as its devices are free and its queue admits it\n"
    )
    release(shared, other)
    until(lambda: shared.job(swapped)["state"] == "running")
    release(shared, swapped)


def test_a_job_goes_on_with_another_card_of_its_node_and_starts_anew_on_another_node(shared, tmp_path):
    file = tmp_path / "beats"
    script = COUNTING.format(file=file)
    job_id = shared.printed("run", "--detach", "--gpus", "0.5", "--", "sh", "-c", script, cwd=tmp_path)
    until(lambda: file.exists() and shared.runs(job_id))
    (task,) = shared.job(job_id)["tasks"]
    node, other = task["node"], {"fake-1": "fake-2", "fake-2": "fake-1"}[task["node"]]
    assert shared("migrate", job_id, "--to", f"{node}/3").stdout == (
        f"{job_id}: being live-migrated from {node}/{task['devices'][0]['index']} to {node}/3\n"
    )
    until(lambda: shared.job(job_id)["migration"].startswith("live-migrated"))
    beats = file.stat().st_size
    until(lambda: file.stat().st_size > beats)
    assert shared.job(job_id)["attempt"] == 1
    assert f"to {node}/3" in shared("why", job_id).stdout
    assert shared("exec", job_id, "--", "printenv", "MILLPOND_FAKE_DEVICES").stdout == f"FAKE-{node}-3\n"
    assert shared("migrate", job_id, "--to", other).returncode == 5
    assert "being restart-migrated" in shared("migrate", job_id, "--to", other, "--restart").stdout
    until(lambda: shared.job(job_id)["state"] == "running" and shared.job(job_id)["attempt"] == 2)
    assert shared.job(job_id)["tasks"][0]["node"] == other
    told = shared("events", job_id).stdout
    assert "live-migrated" in told
    assert "restart-migrated" in told
    release(shared, job_id)


def test_an_elastic_job_is_made_smaller_and_larger_while_it_runs(shared, tmp_path):
    (tmp_path / "job.yaml").write_text(
        f"command: {COUNTING.format(file='$MILLPOND_TASK')!r}\ntasks: {{min: 1, max: 3}}\ngpus: 1\n"
    )
    job_id = shared.printed("submit", str(tmp_path / "job.yaml"))
    until(lambda: running_tasks(shared, job_id) == [0, 1, 2])
    assert shared("resize", job_id, "1").returncode == 0
    until(lambda: running_tasks(shared, job_id) == [0])
    assert shared("resize", job_id, "worker=2").returncode == 0
    until(lambda: len(running_tasks(shared, job_id)) == 2)
    refused = shared("resize", job_id, "4")
    assert refused.returncode == 2
    assert "(min 1, max 3)" in refused.stderr
    assert shared.job(job_id)["attempt"] == 1
    release(shared, job_id)


def test_with_restart_task_a_lost_task_runs_again_beside_the_others(shared, tmp_path):
    (tmp_path / "job.yaml").write_text(
        "command: |\n"
        "  [ $RANK = 0 ] || [ -e again ] || { touch again; exit 3; }\n"
        "  echo run\n"
        "  [ $RANK = 0 ] || touch over\n"
        "  until [ -e over ]; do sleep 0.1; done\n"
        "tasks: 2\nretries: 1\non_task_lost: restart-task\n"
    )
    job_id = shared.printed("submit", str(tmp_path / "job.yaml"))
    assert shared("wait", job_id).returncode == 0
    ended = shared.job(job_id)
    assert (ended["attempt"], ended["failures"]) == (1, 1)
    assert sorted(shared("logs", job_id).stdout.splitlines()) == ["[0] run", "[1] run"]


def test_the_same_state_directory_takes_other_policies_and_its_jobs_run_on(running):
    job_id = running.printed("run", "--detach", "--", "sleep", "300")
    until(lambda: running.job(job_id)["state"] == "running")
    assert running("down", "--keep-jobs").returncode == 0
    done = running("up", "--detach", "--fake-gpus", "2x4:V100-32GB", "--ordering", "srtf", "--preempt")
    assert done.returncode == 0, done.stderr
    assert running.job(job_id)["state"] == "running"
    assert "PolicyChanged" in (running.state_dir / "server.log").read_text()


def release(pond, job_id):
    """A job is stopped, and its cards are free for what comes next."""
    assert pond("stop", job_id).returncode == 0
    assert pond("wait", job_id).returncode == 143


def running_tasks(pond, job_id):
    return [task["task"] for task in pond.job(job_id)["tasks"] if task["state"] == "running"]


def still(file, other):
    """The size of a file once it grows no more while another does that is written in the same manner."""
    sizes = []

    def unchanged() -> bool:
        sizes[:] = [file.stat().st_size, other.stat().st_size]
        until(lambda: other.stat().st_size > sizes[1] + 100)
        return file.stat().st_size == sizes[0]

    until(unchanged)
    return sizes[0]


def test_a_job_starts_anew_on_request_also_when_its_server_dies_meanwhile_and_again_when_it_is_over(running, tmp_path):
    file = tmp_path / "runs"
    program = f"echo run >> {file}; trap 'sleep 1; exit 7' TERM; while :; do sleep 0.05; done"
    job_id = running.printed("run", "--detach", "--gpus", "1", "--", "sh", "-c", program)
    until(lambda: file.exists() and running.runs(job_id))
    assert running("requeue", job_id).stdout == f"{job_id}: stopping\n"
    running.kill_server()
    running.up()
    until(lambda: file.read_text() == "run\nrun\n")
    assert (running.job(job_id)["attempt"], running.job(job_id)["failures"]) == (2, 0)
    assert running("priority", "critical", job_id).stdout == f"{job_id}: priority critical\n"
    running.kill_server()
    running.up()
    assert running.job(job_id)["priority"] == "critical"
    assert running("stop", job_id).returncode == 0
    assert running("wait", job_id).returncode == 143
    told = running("requeue", job_id).stdout
    again = told.removeprefix(f"{job_id}: submitted again as ").strip()
    until(lambda: file.read_text().count("run") == 3)
    assert running("stop", again).returncode == 0
    refused = running("priority", "high", job_id)
    assert (refused.returncode, "has ended" in refused.stderr) == (5, True)
