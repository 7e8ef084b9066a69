"""Starting tasks on this machine: what they get, what they are told, and starts that fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from local_bench import UNSANDBOXED, Bench, eventually

from millpond.model.decisions import Grant, Placement, Start
from millpond.model.errors import InconsistentStateError
from millpond.model.events import Confirmed, Ended, Event, Refused
from millpond.model.reasons import Cause
from millpond.model.states import Outcome
from millpond.node.task.launch import LaunchSpec
from millpond.node.task.records import TaskId

pytestmark = pytest.mark.end_to_end

MEETING = """
import os, socket
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(where) as server:
        peer, _ = server.accept()
        print("heard", peer.recv(20).decode())
else:
    while True:
        try:
            peer = socket.create_connection(where)
        except ConnectionRefusedError:
            continue
        break
    peer.sendall(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}".encode())
    peer.close()
"""


def variables(bench: Bench, job: str, task: int = 0) -> dict[str, str]:
    lines = bench.log(job, task).decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_gang_of_two_meets_at_the_master_address(bench: Bench) -> None:
    start = bench.start("gang", (sys.executable, "-c", MEETING), tasks=(0, 1))
    confirmed, *ends = bench.events(3)
    assert confirmed == Confirmed(confirmed.at, start.id, UNSANDBOXED)
    assert {(end.task, end.outcome, end.exit_code) for end in ends} == {  # type: ignore[attr-defined]
        (0, Outcome.SUCCESS, 0),
        (1, Outcome.SUCCESS, 0),
    }
    assert bench.log("gang", 0) == b"heard rank 1 of 2\n"


def test_a_task_is_told_its_rank_its_cards_and_its_name(bench: Bench) -> None:
    bench.define("told", ("env",), env={"COLOUR": "blue", "RANK": "99", "CUDA_VISIBLE_DEVICES": "all"})
    bench.start("told", tasks=(0, 1, 2))
    bench.events(4)
    told = variables(bench, "told", 2)
    expected = {
        "COLOUR": "blue",
        "MASTER_ADDR": "127.0.0.1",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "NODE_RANK": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "PET_LOCAL_ADDR": "127.0.0.3",
        "CUDA_VISIBLE_DEVICES": "",
        "MILLPOND_FAKE_DEVICES": "FAKE-fake-1-1",
        "MILLPOND_JOB_ID": "told",
        "MILLPOND_TASK": "2",
        "MILLPOND_ATTEMPT": "1",
        "MILLPOND_ROLE": "worker",
        "MILLPOND_NODE": "fake-1",
    }
    assert {name: told[name] for name in expected} == expected
    assert told["MASTER_PORT"] == variables(bench, "told", 0)["MASTER_PORT"]


def test_a_task_without_cards_sees_none(bench: Bench) -> None:
    bench.define("cpu", ("env",))
    bench.apply(Start(bench.next_id(), "cpu", 1, Cause.FITS, (Placement(0, "worker", "fake-1"),)))
    bench.events(2)
    told = variables(bench, "cpu")
    assert told["CUDA_VISIBLE_DEVICES"] == ""
    assert "MILLPOND_FAKE_DEVICES" not in told


def test_a_guest_starts_on_the_cards_of_another_and_any_other_job_is_refused_there(bench: Bench) -> None:
    def start(job: str, cause: Cause) -> Event:
        bench.define(job, ("sleep", bench.own_sleep))
        grant = Grant("FAKE-fake-1-0", 1000, 1000, 32 * 1024)
        bench.apply(Start(bench.next_id(), job, 1, cause, (Placement(0, "worker", "fake-1", (grant,)),)))
        [answer] = bench.events(1)
        return answer

    assert isinstance(start("host", Cause.FITS), Confirmed)
    assert isinstance(start("intruder", Cause.FITS), Refused)
    assert isinstance(start("guest", Cause.SHARES), Confirmed)
    bench.restart().adopt([TaskId("host", 1, 0), TaskId("guest", 1, 0)], [])
    bench.stop("host")
    bench.events(2)
    assert isinstance(start("intruder", Cause.FITS), Refused)  # the guest has them for itself now
    assert bench.alive() == 1


def test_output_of_both_streams_is_kept_byte_by_byte(bench: Bench) -> None:
    bench.start("binary", r"printf '\000\377\n'; printf '\200' >&2")
    bench.events(2)
    assert bench.log("binary") == b"\x00\xff\n\x80"


def test_every_role_runs_its_own_command(bench: Bench) -> None:
    bench.define("roles", ("echo", "work"), role_commands={"ps": ("echo", "serve")})
    placements = (Placement(0, "ps", "fake-1"), Placement(1, "worker", "fake-2"))
    bench.apply(Start(bench.next_id(), "roles", 1, Cause.FITS, placements))
    bench.events(3)
    assert (bench.log("roles", 0), bench.log("roles", 1)) == (b"serve\n", b"work\n")


def test_gangs_that_run_at_the_same_time_meet_at_different_ports(bench: Bench) -> None:
    jobs = [f"job-{number}" for number in range(5)]
    for job in jobs:
        bench.start(job, "echo MASTER_PORT=$MASTER_PORT; exec sleep 60")
    bench.events(5)
    assert eventually(lambda: all(bench.log(job) for job in jobs))
    assert len({variables(bench, job)["MASTER_PORT"] for job in jobs}) == 5


def test_a_command_that_is_not_there_is_refused_with_a_remedy(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    path = f"{tmp_path}/closed:{os.environ['PATH']}"
    bench.define("lost", ("no-such-program", "--fast"), env={"PATH": path})
    start = bench.start("lost")
    (refused,) = bench.events(1)
    assert isinstance(refused, Refused)
    assert refused.decision == start.id
    assert "command 'no-such-program' was not found on node fake-1; check its spelling" in refused.reason
    assert (refused.device_fault, refused.exit_code) == (False, 127)


def test_a_working_directory_that_is_not_there_is_refused_with_a_remedy(bench: Bench, tmp_path: Path) -> None:
    bench.define("astray", ("true",), workdir=tmp_path / "nowhere")
    bench.start("astray")
    (refused,) = bench.events(1)
    assert isinstance(refused, Refused)
    assert (
        f"working directory '{tmp_path}/nowhere' on node fake-1: No such file or directory; create it" in refused.reason
    )


def test_a_file_that_is_no_program_is_refused_with_a_remedy(bench: Bench) -> None:
    script = bench.workdir / "train.py"
    script.write_text("print(1)\n")
    bench.start("script", ("./train.py",))
    script.chmod(0o755)
    bench.start("script-2", ("./train.py",))
    for refused in bench.events(2):
        assert isinstance(refused, Refused)
        assert "make it executable, or name its interpreter" in refused.reason
        assert refused.exit_code == 126


def test_a_command_that_is_longer_than_the_kernel_takes_is_refused_with_a_remedy(bench: Bench) -> None:
    bench.start("long", ("/bin/echo", "x" * 2**17))
    (refused,) = bench.events(1)
    assert isinstance(refused, Refused)
    assert "Argument list too long; one argument or variable may have 128 KiB: send" in refused.reason


def test_a_gang_of_which_one_task_cannot_start_is_undone_as_a_whole(bench: Bench) -> None:
    bench.define("half", "echo $$ > first; exec sleep 60", role_commands={"ps": ("no-such-program",)})
    placements = (Placement(0, "worker", "fake-1"), Placement(1, "ps", "fake-2"))
    start = Start(bench.next_id(), "half", 1, Cause.FITS, placements)
    bench.apply(start)
    (refused,) = bench.events(1)
    assert isinstance(refused, Refused)
    assert refused.decision == start.id
    assert not bench.alive()
    assert bench.quiet()


def test_a_job_whose_command_nobody_knows_is_refused(bench: Bench) -> None:
    bench.start("stranger")
    (refused,) = bench.events(1)
    assert isinstance(refused, Refused)
    assert refused.reason == "no job 'stranger'; submit it again"


def test_a_start_on_a_card_that_is_not_here_is_the_machines_fault(bench: Bench) -> None:
    bench.define("job", ("true",))
    placement = Placement(0, "worker", "fake-1", (Grant("GPU-elsewhere", 1000, 1000, 0),))
    bench.apply(Start(bench.next_id(), "job", 1, Cause.FITS, (placement,)))
    (refused,) = bench.events(1)
    assert isinstance(refused, Refused)
    assert refused.device_fault
    assert "GPU-elsewhere" in refused.reason


def test_the_same_start_applied_again_runs_once(bench: Bench) -> None:
    start = bench.start("once", "echo ran >> ran")
    bench.apply(start)
    assert [type(event) for event in bench.events(2)] == [Confirmed, Ended]
    bench.apply(start)
    assert bench.quiet()
    assert (bench.workdir / "ran").read_text() == "ran\n"


def test_two_engines_at_once_start_a_task_once(bench: Bench) -> None:
    start = bench.start("once", "echo ran; trap 'exit 0' TERM; while :; do sleep 0.05; done")
    first = bench.engine
    bench.new_engine().apply([start])
    assert bench.events(1) == [Confirmed(pytest.approx(0, abs=1e12), start.id, UNSANDBOXED)]  # type: ignore[arg-type]
    first.close()
    assert eventually(lambda: bool(bench.log("once")))
    bench.stop("once")
    bench.events(2)
    assert bench.log("once").count(b"ran") == 1


def test_a_task_that_is_started_again_in_the_same_run_finds_its_gang(bench: Bench) -> None:
    bench.start("again", 'echo "$RANK $WORLD_SIZE $MASTER_PORT"; test "$RANK" = 0 && exec sleep 60', tasks=(0, 1))
    bench.events(2)
    rejoin = Start(bench.next_id(), "again", 1, Cause.FITS, (Placement(1, "worker", "fake-2"),), joins=True)
    bench.apply(rejoin)
    confirmed, ended = bench.events(2)
    assert confirmed == Confirmed(confirmed.at, rejoin.id, UNSANDBOXED)
    assert isinstance(ended, Ended)
    assert ended.task == 1
    assert eventually(lambda: bench.log("again", 0).endswith(b"\n"))
    port = bench.log("again", 0).split()[2].decode()
    assert bench.log("again", 1).decode() == f"1 2 {port}\n" * 2


def test_a_defect_of_the_engine_is_told_to_the_server(bench: Bench, tmp_path: Path) -> None:
    def defective(job: str) -> LaunchSpec:
        raise RuntimeError("a defect")

    bench.engine.close()
    bench._launch_of = defective  # type: ignore[method-assign]
    bench.new_engine()
    bench.start("any")
    with pytest.raises(InconsistentStateError, match="a defect"):
        bench.events(1)
