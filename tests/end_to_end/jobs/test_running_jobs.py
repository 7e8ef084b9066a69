"""Jobs on a real server: their output, their exit codes, their surroundings, their refusals."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from urllib.parse import urlsplit

import pytest
from real_pond import PATIENCE_S, REPOSITORY, until


def test_the_output_and_the_exit_code_are_the_commands(shared):
    done = shared("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout == "out\n"
    found = re.fullmatch(r"pond: job (sh-\w+)\nerr\n", done.stderr)
    later = shared("logs", found[1])
    assert (later.stdout, later.stderr) == ("out\n", "err\n")
    last = shared("logs", "--tail", "1", "--since", "1h", "--timestamps", found[1])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:]{8}\.\d\d (out|err)\n", last.stdout + last.stderr)


@pytest.mark.long
def test_a_signal_is_shown_as_a_shell_shows_it(shared):
    assert shared("run", "--", "sh", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV


def test_a_command_has_its_directory_the_variables_it_was_given_and_with_a_fake_card_no_real_one(shared, tmp_path):
    script = 'pwd; echo "$GREETING"; echo "cuda=[$CUDA_VISIBLE_DEVICES] fake=[$MILLPOND_FAKE_DEVICES]"'
    done = shared("run", "-e", "GREETING=grüß dich", "--gpus", "1", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}\ngrüß dich\ncuda=\[\] fake=\[\S+\]\n", done.stdout)


def test_a_program_that_does_not_exist_fails_with_its_name(shared):
    done = shared("run", "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_a_gang_gets_its_ranks_and_its_lines_carry_them(shared):
    done = shared("run", "--tasks", "3", "--", "sh", "-c", 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR"')
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] {rank} of 3 at 127.0.0.1" for rank in range(3)]


@pytest.mark.long
def test_the_example_gang_trains_and_agrees(shared):
    submitted = shared("submit", "examples/gang.yaml", cwd=REPOSITORY)
    job_id = submitted.stdout.strip()
    assert (submitted.returncode, submitted.stderr) == (0, "")
    log = shared("logs", "--follow", job_id).stdout
    assert "[0] all ranks ended with equal weights" in log
    assert float(re.search(r"result: loss=[\d.]+ accuracy=([\d.]+)", log)[1]) > 0.95
    ended = shared("wait", job_id)
    assert (ended.returncode, ended.stdout) == (0, f"{job_id}: succeeded\n")


@pytest.mark.long
def test_what_the_pool_could_never_run_is_refused_with_a_remedy(shared):
    before = shared("ps", "-a", "-o", "name").stdout
    too_much = ("--gpus 64", "--gpus 1 --tasks 9", "--gpus 1 --gpu-model V10O", "--gpus 1.5", "--gpus -1")
    for arguments in (*too_much, "--queue nobody"):
        done = shared("run", *arguments.split(), "--", "true")
        assert (done.returncode, done.stdout) == (2, ""), arguments
        cause, *remedy = done.stderr.splitlines()
        assert cause.startswith("pond: ")
        assert remedy
        assert all(line.startswith("      ") for line in remedy)
    assert shared("ps", "-a", "-o", "name").stdout == before


def test_what_is_piped_in_reaches_the_task_with_its_end(shared):
    done = shared("run", "--", "sh", "-c", "cat; echo over", given="hi\n")
    assert (done.returncode, done.stdout) == (0, "hi\nover\n")
    assert shared("run", "--no-stdin", "--", "cat", given="hi\n").stdout == ""


@pytest.mark.long
def test_what_cannot_be_passed_on_is_said(shared):
    several = shared("run", "--tasks", "2", "--", "cat", given="hi\n")
    assert (several.returncode, several.stdout) == (0, "")
    assert several.stderr.startswith("pond: standard input is not passed on: it is for one task of kind train\n")
    for wrong in ("--stdin --tasks 2", "--stdin --detach", "--stdin --retries 1"):
        done = shared("run", *wrong.split(), "--", "cat", given="hi\n")
        assert (done.returncode, done.stdout) == (2, ""), wrong
        assert "stdin" in done.stderr or "standard input" in done.stderr, wrong


@pytest.mark.long
def test_a_task_that_reads_no_further_is_not_waited_for(shared):
    done = shared("run", "--", "head", "-c", "3", given="x" * 5_000_000)
    assert (done.returncode, done.stdout) == (0, "xxx")


@pytest.mark.long
def test_ctrl_c_ends_a_job_that_lacks_the_rest_of_its_input(shared):
    process = shared.start("run", "--", "sh", "-c", "read line; echo $line; cat", stdin=subprocess.PIPE)
    process.stdin.write("begun\n")
    process.stdin.flush()
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE_S)  # with its input open
    err = process.stderr.read()
    process.stdin.close()
    job_id = re.search(r"(\S+) cannot go on without the rest of its standard input", err)[1]
    assert process.returncode == 130
    assert shared.job(job_id)["state"] == "cancelled"


def test_ctrl_c_leaves_the_job_running_and_says_how_to_return(shared):
    process = shared.start("run", "--", "sh", "-c", "echo begun; sleep 600")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    job_id = re.search(r"return to it with `pond logs -f (\S+)`", err)[1]
    assert process.returncode == 130
    assert "Traceback" not in err
    until(lambda: shared.job(job_id)["state"] == "running")  # what it writes may be here before the word that it runs
    assert shared("stop", job_id).returncode == 0
    ended = shared("wait", job_id)
    assert (ended.returncode, ended.stdout) == (143, f"{job_id}: cancelled\n")


@pytest.mark.long
def test_ctrl_c_in_the_output_of_a_job_leaves_the_job_alone_and_says_how_to_return(shared):
    job_id = shared.printed("run", "--detach", "--", "sh", "-c", "echo begun; sleep 600")
    process = shared.start("logs", "-f", job_id)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (
        130,
        f"pond: left {job_id} to itself; return to it with `pond logs -f {job_id}`\n",
    )
    until(lambda: shared.job(job_id)["state"] == "running")
    assert shared("stop", job_id).returncode == 0


@pytest.mark.long
def test_ctrl_c_ends_the_job_where_that_was_asked_for(shared):
    process = shared.start("run", "--stop-on-interrupt", "--", "sh", "-c", "echo begun; sleep 600")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    job_id = re.search(r"stopping (\S+);", err)[1]
    assert (process.returncode, out) == (130, "")
    assert shared.job(job_id)["state"] == "cancelled"


def test_a_job_that_waits_says_why_and_starts_when_there_is_room(shared):
    holder = shared.printed("run", "--detach", "--gpus", "4", "--tasks", "2", "--", "sleep", "600")
    process = shared.start("run", "--gpus", "1", "--", "echo", "my turn")
    job_line, reason = process.stderr.readline(), process.stderr.readline()
    job_id = job_line.split()[-1]
    assert reason.startswith(f"pond: {job_id} waits: ")
    follower = shared.start("logs", "-f", job_id)
    assert follower.stderr.readline().startswith(f"pond: {job_id} waits: ")
    why = shared("why", job_id)
    assert why.returncode == 0
    assert why.stdout.startswith(f"{job_id}: queued, number 1 in line\n  why     ")
    assert max(len(line) for line in why.stdout.splitlines()) <= 80
    assert shared("stop", holder[:-1]).returncode == 0
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "my turn\n")


def test_detached_work_is_listed_and_stopped(shared):
    job_id = shared.printed("run", "--detach", "--name", "nap", "--", "sleep", "600")
    until(lambda: re.search(rf"^{job_id} +running ", shared("ps").stdout, re.MULTILINE))
    until(lambda: shared("ps", "-o", "name").stdout.split() == [job_id])  # those of other tests may be ending still
    assert shared("stop", job_id).returncode == 0
    assert shared("wait", job_id).returncode == 143
    assert job_id not in shared("ps", "-o", "name").stdout
    again = shared("stop", job_id)
    assert again.returncode == 5
    assert job_id in again.stderr


@pytest.mark.long
def test_a_job_that_does_not_exist_has_its_own_exit_code(shared):
    for command in ("logs", "why", "wait", "stop"):
        done = shared(command, "no-such-job")
        assert (done.returncode, done.stdout) == (4, "")
        assert "no-such-job" in done.stderr


@pytest.mark.long
def test_nodes_are_listed_and_pretended_cards_are_called_fake(shared):
    table = shared("nodes").stdout.splitlines()
    assert len(table) == 3
    assert all("4 x V100 32GiB (fake)" in line for line in table[1:])
    cards = shared("nodes", "-o", "wide").stdout.splitlines()
    assert len(cards) == 9
    nodes = json.loads(shared.printed("nodes", "-o", "json"))["nodes"]
    assert all(device["fake"] for node in nodes for device in node["devices"])


@pytest.mark.long
def test_retried_work_shows_every_run_in_one_stream(shared, tmp_path):
    script = "if [ -e again ]; then echo second; else touch again; echo first; exit 3; fi"
    done = shared("run", "--retries", "1", "--", "sh", "-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "first\nsecond\n")
    assert "run 2" in done.stderr


@pytest.mark.long
def test_output_that_nobody_reads_on_does_not_end_the_job(shared):
    process = shared.start("run", "--", "sh", "-c", "yes | head -100000; sleep 1; echo end")
    process.stdout.read(10)
    process.stdout.close()
    process.wait(timeout=PATIENCE_S)
    assert process.returncode == 141
    job_id = process.stderr.read().split()[-1]
    assert shared("wait", job_id).returncode == 0


@pytest.mark.parametrize("head", [b"X-One: " + b"x" * 70_000, b"X-Many: x\r\n" * 7_000], ids=["one", "many"])
def test_headers_without_end_are_refused_and_the_connection_closed(shared, head):
    url = json.loads((shared.state_dir / "server.json").read_text())["url"]
    with socket.create_connection(("127.0.0.1", urlsplit(url).port)) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Some: " + b"x" * 30_000 + b"\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += line.recv(65_536)
        sent = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + head
        line.sendall(sent[:65_000])
        line.sendall(sent[65_000:])  # in one piece what is too much: no byte is unread when it is refused
        while got := line.recv(65_536):
            answer += got
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"400"]
    assert b"64 KiB" in answer
