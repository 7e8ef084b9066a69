"""Running a server for others: check of the machine, configuration, backup and restore, with the real programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from real_pond import FAKE_GPUS, PATIENCE_S, POND, Pond, complaints, until

from own_address import own_address

pytestmark = pytest.mark.long

GOOD = "queues:\n  - name: vision\n  - name: speech\n"


def test_the_check_of_this_machine_finds_that_a_server_can_run_here(pond):
    done = pond("doctor", "-o", "json")
    assert done.returncode == 0, done.stdout
    assert {"kernel", "sandbox", "GPUs"} <= {finding["what"] for finding in json.loads(done.stdout)}
    assert "Linux" in pond("doctor").stdout


def test_a_wrong_configuration_is_told_with_line_and_column(pond, tmp_path):
    (tmp_path / "pond.yaml").write_text("queues:\n  - name: vision\n    wieght: 2\n")
    done = pond("config", "check", "pond.yaml")
    assert done.returncode == 2
    assert "pond.yaml:3:5" in done.stderr
    assert "weight" in done.stderr


def test_a_configuration_that_names_no_pool_is_said_to_have_the_default_one(pond, tmp_path):
    (tmp_path / "pond.yaml").write_text(GOOD)
    assert pond("config", "check", "pond.yaml").stdout == "pond.yaml is good: 1 pool, 2 queues, 0 pretended nodes\n"


@pytest.mark.parametrize("way", [("--detach",), ()])
def test_a_server_that_cannot_start_by_its_configuration_tells_all_faults(pond, tmp_path, way):
    faults = "dev: {idle_after: 5s}\npools: [{name: a, turn: 2d}]\nqueues: [{name: a, weight: 0}]\n"
    (tmp_path / "pond.yaml").write_text(faults)
    done = pond("up", "--port", "0", "--config", "pond.yaml", *way)
    checked = pond("config", "check", str(tmp_path / "pond.yaml"))
    assert done.returncode == checked.returncode == 2
    said = [line.strip() for line in complaints(done)]
    assert said == [line.strip() for line in checked.stderr.splitlines()]
    assert len(said) == 3


def test_queues_are_added_to_a_running_server_by_its_configuration(pond, tmp_path):
    config = tmp_path / "pond.yaml"
    config.write_text("queues: []\n")
    assert pond("up", "--detach", "--fake-gpus", FAKE_GPUS, "--config", str(config)).returncode == 0
    assert pond("run", "--queue", "vision", "--", "true").returncode == 2
    config.write_text("queues: nonsense\n")
    os.kill(pond.server_pid, signal.SIGHUP)
    until(lambda: "the configuration stays as it was" in (pond.state_dir / "server.log").read_text())
    config.write_text(GOOD)
    os.kill(pond.server_pid, signal.SIGHUP)
    until(lambda: pond("run", "--queue", "vision", "--", "true").returncode == 0)


def test_a_pool_goes_on_from_its_backup(running, tmp_path):
    done = running("run", "--name", "precious", "--", "echo result")
    assert done.returncode == 0, done.stderr
    assert running("backup", "pond.tar.gz").returncode == 0
    elsewhere = Pond(tmp_path / "elsewhere")
    restored = elsewhere("restore", "pond.tar.gz", "--state-dir", str(elsewhere.state_dir))
    assert restored.returncode == 0, restored.stderr
    elsewhere.up()
    try:
        job = elsewhere.printed("ps", "-a", "-o", "name")
        assert job.startswith("precious")
        assert elsewhere("logs", job).stdout == "result\n"
    finally:
        assert elsewhere("down").returncode == 0


def test_usage_is_told_with_its_price(pond, tmp_path):
    (tmp_path / "pond.yaml").write_text("prices: {currency: EUR, gpu_hour: {default: 3600}}\n")
    assert pond("up", "--detach", "--fake-gpus", FAKE_GPUS, "--config", "pond.yaml").returncode == 0
    assert pond("run", "--gpus", "1", "--", "sleep 1").returncode == 0
    (row,) = json.loads(pond.printed("usage", "--by", "queue", "-o", "json"))["rows"]
    assert (row["name"], row["jobs"]) == ("default", 1)
    assert row["cost"] >= 1.0
    assert row["gpu_hours"] == pytest.approx(row["cost"] / 3600, abs=0.0005)  # three digits are told
    assert "EUR" in pond("usage").stdout


def test_a_webhook_can_be_tried_and_hears_of_a_failure(pond, tmp_path):
    told = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer((own_address(), 0), Receiver) as receiver:
        Thread(target=receiver.serve_forever, daemon=True).start()
        hook = {"name": "team", "url": f"http://{own_address()}:{receiver.server_port}/", "on": ["job.failed"]}
        (tmp_path / "pond.yaml").write_text(json.dumps({"webhooks": [hook]}))
        assert pond("up", "--detach", "--fake-gpus", FAKE_GPUS, "--config", "pond.yaml").returncode == 0
        tried = pond("webhooks", "test", "team")
        assert (tried.returncode, tried.stdout) == (0, "delivered to team\n"), tried.stderr
        assert told.pop()["topic"] == "trial"
        assert pond("run", "--name", "fragile", "--", "exit 3").returncode == 3
        until(lambda: told)
        receiver.shutdown()
    refused = pond("webhooks", "test", "room")
    assert refused.returncode != 0
    assert "there are team" in refused.stderr
    tried = pond("webhooks", "test", "team")
    assert tried.returncode == 1
    assert "team did not take it" in tried.stderr
    assert told[0]["text"].startswith("fragile-")
    assert told[0]["exit_code"] == 3
    until(lambda: "delivered" in pond("webhooks").stdout)


def test_a_drained_machine_is_left_by_its_work_and_stays_closed_when_the_server_is_killed(running):
    job = running.printed("run", "-d", "--gpus", "4", "--", "sleep 600")

    def place():
        (info,) = json.loads(running.printed("ps", "-o", "json"))["jobs"]
        return info["tasks"][0]["node"] if info["state"] == "running" else ""

    until(place)
    first = place()
    done = running("nodes", "drain", first, "--reason", "new disks", "--until", "1h")
    assert done.returncode == 0, done.stderr
    until(lambda: place() not in ("", first))
    running.kill_server()
    running.up()
    (closed,) = [line for line in running("nodes").stdout.splitlines() if line.startswith(first)]
    assert "drained until" in closed
    assert "new disks" in closed
    until(lambda: place() not in ("", first))
    assert running("nodes", "uncordon", first).stdout == f"{first}: open\n"
    assert running("stop", job).returncode == 0


def test_a_secret_reaches_its_job_and_nobody_else_and_an_encrypted_backup_asks_for_its_passphrase(running, tmp_path):
    def told(stdin, *arguments):
        command = [POND, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=running.env, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S
        )

    assert told("hush-hush\n", "secret", "set", "TOKEN", "--stdin").returncode == 0
    job = tmp_path / "job.yaml"
    job.write_text("command: echo $TOKEN | rev; cat /proc/*/cmdline 2>/dev/null; true\nsecrets: [TOKEN]\n")
    submitted = running.printed("submit", str(job))
    assert running("wait", submitted).returncode == 0
    log = running("logs", submitted).stdout
    assert log.startswith("hsuh-hsuh\n")
    assert "hush-hush" not in log
    assert "hush-hush" not in running("get", submitted, "-o", "json").stdout
    assert running("secret", "ls", "-o", "name").stdout == "TOKEN\n"
    assert running("secret", "rm", "TOKEN").returncode == 0
    assert running("submit", str(job)).returncode == 4
    passphrase = "correct horse battery\n"
    made = told(passphrase, "backup", "sealed", "--encrypt", "--cipher", "sm4-gcm", "--stdin")
    assert made.returncode == 0, made.stderr
    wrong = told("wrong horse battery\n", "restore", "sealed", "--stdin", "--state-dir", str(tmp_path / "new"))
    assert wrong.returncode == 2
    assert "the passphrase is wrong" in wrong.stderr
    assert not (tmp_path / "new").exists()
    restored = told(passphrase, "restore", "sealed", "--stdin", "--state-dir", str(tmp_path / "new"))
    assert restored.returncode == 0, restored.stderr
    assert (tmp_path / "new" / "token").exists()
