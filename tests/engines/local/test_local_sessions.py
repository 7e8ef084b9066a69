"""Commands run beside a task: they are in its place, speak with their client, and belong to it."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_bench import Bench, eventually, state_letter

from millpond.model.decisions import Suspend
from millpond.model.events import Confirmed, Ended
from millpond.model.reasons import Cause
from millpond.node.host.files import short_name
from millpond.node.host.identities import numbered
from millpond.node.sandbox.detection import SandboxMode, find_sandbox, trouble_with_identities
from millpond.node.sessions.session import LARGEST_MESSAGE
from millpond.node.sessions.sftp_wire import text
from millpond.node.task.records import TaskFiles, TaskId, read_record

pytestmark = pytest.mark.end_to_end


class SessionClient:
    """Somebody at a task's socket."""

    def __init__(self, bench: Bench, job: str, message: str = "", **order: Any) -> None:
        path = TaskFiles.of(bench.state_dir, TaskId(job, 1, 0)).socket
        assert eventually(path.exists)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60.0)
        with short_name(path) as name:
            self.socket.connect(name)
        self.socket.send((message or json.dumps(order)).encode())

    def say(self, **message: Any) -> None:
        self.socket.send(json.dumps(message).encode())

    def type(self, data: bytes) -> None:
        self.socket.send(b"\0" + data)

    def hear_line(self) -> bytes:
        """The next output up to the end of its line, in as many pieces as it comes."""
        heard = b""
        while not heard.endswith(b"\n"):
            message = self.socket.recv(LARGEST_MESSAGE)
            assert message[:1] == b"\x01", message
            heard += message[1:]
        return heard

    def hear(self) -> tuple[dict[int, bytes], dict[str, Any]]:
        """All output by stream up to the last word, and that."""
        streams: dict[int, bytes] = {1: b"", 2: b""}
        while True:
            message = self.socket.recv(LARGEST_MESSAGE)
            if message[:1] == b"{" or not message:
                self.socket.close()
                return streams, json.loads(message or b"{}")
            streams[message[0]] += message[1:]


@pytest.fixture
def task(bench: Bench) -> Callable[..., SessionClient]:
    """A task that sleeps, and sessions beside it."""
    bench.define("host", ("sleep", "600"), env={"COLOUR": "blue"})
    bench.start("host")
    bench.events(1)
    return lambda *argv, **order: SessionClient(bench, "host", argv=argv, **order)


def test_a_command_runs_in_the_place_of_the_task_and_its_exit_code_comes_back(bench: Bench, task: Any) -> None:
    client = task("sh", "-c", 'echo "$COLOUR $MILLPOND_JOB_ID $MILLPOND_TASK"; pwd; echo bad >&2; exit 7')
    streams, end = client.hear()
    assert streams[1].decode().splitlines() == ["blue host 0", str(bench.workdir)]
    assert (streams[2], end) == (b"bad\n", {"exit": 7})


def test_input_reaches_the_command_up_to_its_end(task: Any) -> None:
    client = task("sort")
    client.type(b"b\na\n")
    client.say(eof=True)
    assert client.hear() == ({1: b"a\nb\n", 2: b""}, {"exit": 0})


def test_more_goes_both_ways_than_pipes_hold(task: Any) -> None:
    client = task("cat")
    block, heard = b"x" * 60_000, 0
    for _ in range(20):
        client.type(block)
        while heard < len(block) * 20:
            heard += len(client.socket.recv(LARGEST_MESSAGE)) - 1
            if heard % len(block) == 0:
                break
    client.say(eof=True)
    assert client.hear()[1] == {"exit": 0}
    assert heard == 20 * len(block)


def test_a_terminal_has_the_clients_window_and_follows_it(task: Any) -> None:
    client = task("sh", "-c", "stty size; read line; stty size; test -t 0 && echo tty", tty=True, rows=40, columns=100)
    first = client.hear_line()
    client.say(rows=50, columns=132)
    client.type(b"go\n")
    streams, end = client.hear()
    assert (first, end) == (b"40 100\r\n", {"exit": 0})
    assert streams[1].decode().split() == ["go", "50", "132", "tty"]


def test_an_interrupt_typed_on_the_terminal_reaches_the_command(task: Any) -> None:
    client = task("sh", "-c", "echo there; exec sleep 60", tty=True)
    assert client.hear_line() == b"there\r\n"
    client.type(b"\x03")
    assert client.hear()[1] == {"exit": 130}


def test_a_command_that_does_not_exist_says_so(task: Any) -> None:
    _, end = task("no-such-program").hear()
    assert end == {"error": "no-such-program: No such file or directory", "exit": 127}


@pytest.mark.parametrize("message", ["[]", "{}", '{"argv": []}', '{"argv": "ls"}', "[" * 9_000, "ls"])
def test_what_is_no_order_is_refused_with_the_form_of_one(bench: Bench, task: Any, message: str) -> None:
    client = task(message=message)
    assert client.hear()[1]["error"].startswith("the first message is no order: send {")


@pytest.mark.parametrize("message", ["[1]", '{"rows": "x"}', '{"rows": 1e999}', "\x07"])
def test_what_is_no_message_ends_the_command_and_says_why(task: Any, message: str) -> None:
    client = task("cat")
    client.socket.send(message.encode())
    assert client.hear()[1]["error"].startswith("a message is neither input nor")


def test_a_client_who_leaves_ends_the_command(bench: Bench, task: Any) -> None:
    client = task("sh", "-c", "echo $$ > pid; sleep 60")
    pid = bench.pid_in("pid")
    client.socket.close()
    assert bench.gone(pid)


def test_a_stopped_task_takes_its_clients_with_it(bench: Bench, task: Any) -> None:
    client = task("sh", "-c", "trap '' HUP TERM; echo $$ > pid; while :; do sleep 1; done")
    pid = bench.pid_in("pid")
    stop = bench.stop("host", grace_s=0.3)
    assert [type(event) for event in bench.events(2)] == [Confirmed, Ended]
    assert bench.gone(pid)
    end = {"exit": 137, "error": "the task ends, and what runs beside it"}
    assert client.hear()[1] in (end, {})  # the latter if it takes half a second to say so
    assert stop.job == "host"


def test_a_client_learns_that_it_was_the_tasks_end_that_ended_its_command(bench: Bench) -> None:
    bench.define("brief", ("sh", "-c", "until [ -e heard ]; do sleep 0.05; done"))
    bench.start("brief")
    bench.events(1)
    client = SessionClient(bench, "brief", argv=["sh", "-c", "echo here; exec sleep 600"])
    assert client.hear_line() == b"here\n"
    (bench.workdir / "heard").touch()
    assert client.hear()[1]["error"] == "the task ends, and what runs beside it"


def test_a_frozen_task_freezes_what_clients_run(bench: Bench, task: Any) -> None:
    client = task("sh", "-c", "echo $$ > pid; while :; do :; done")
    pid = bench.pid_in("pid")
    bench.apply(Suspend(bench.next_id(), "host", 1, Cause.SUSPEND_REQUESTED))
    bench.events(1)
    assert eventually(lambda: state_letter(pid) == "T")
    client.socket.close()


def test_a_client_of_a_sandboxed_task_is_in_the_sandbox(tmp_path: Path) -> None:
    sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (tmp_path / "state",))
    if sandbox is None:
        pytest.skip(f"no sandbox here: {trouble}")
    bench = Bench(tmp_path, sandbox)
    bench.start("apart", "echo mine > /tmp/private; sleep 600")
    bench.events(1)
    look = (
        "until grep mine /tmp/private 2>/dev/null; do :; done; "
        f"ls {bench.state_dir} | wc -l; ls /proc | grep -c '^[0-9]'; pwd; kill -0 2 && echo within reach"
    )
    streams, end = SessionClient(bench, "apart", argv=("sh", "-c", look)).hear()
    private, files, processes, where, signalled = streams[1].decode().splitlines()
    assert (private, files, where, signalled) == ("mine", "0", str(bench.workdir), "within reach")
    assert end == {"exit": 0}
    assert int(processes) < 10
    bench.end_all()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start tasks as others")
@pytest.mark.parametrize("tty", [False, True])
def test_a_client_is_whom_the_task_runs_as(tmp_path: Path, tty: bool) -> None:
    sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (tmp_path / "state",))
    if sandbox is None or trouble_with_identities(sandbox):
        pytest.skip(f"tasks cannot run as others here: {trouble}")
    bench = Bench(tmp_path, sandbox)
    look = "until test -e /tmp/mine; do :; done; id -u; id -G; stat -c %u /tmp/mine"
    mia = numbered("mia", 265_001, bench.state_dir)
    bench.define("apart", "touch /tmp/mine; sleep 600", identity=mia, workdir=Path("/"))
    bench.start("apart")
    bench.events(1)
    streams, end = SessionClient(bench, "apart", argv=("sh", "-c", look), tty=tty).hear()
    assert (streams[1].split(), end) == ([b"265001"] * 3, {"exit": 0})
    bench.end_all()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start tasks as others")
class TestSessionClientsOfATaskThatRunsAsSomebodyElse:
    @pytest.fixture
    def mine(self, tmp_path: Path) -> Iterator[Bench]:
        """A task of somebody who is not root, in the folder ``mia`` of ``/``, beside ``closed``, which is root's."""
        sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (tmp_path / "state",))
        if sandbox is None or trouble_with_identities(sandbox):
            pytest.skip(f"tasks cannot run as others here: {trouble}")
        self.place = Path("/var/lib") / f"millpond-{os.getpid()}-{tmp_path.name}"
        for folder in (self.place, self.place / "closed", self.place / "closed/inner", self.place / "mia"):
            folder.mkdir()
            folder.chmod(0o755)
        (self.place / "closed/inner/secret").write_text("of root")
        (self.place / "closed").chmod(0o700)
        for path in (self.place, self.place / "mia"):
            os.chown(path, 265_001, 265_001)
        bench = Bench(tmp_path, sandbox)
        mia = numbered("mia", 265_001, bench.state_dir)
        path = f"{self.place}/closed:{os.environ['PATH']}"
        bench.define("j", "touch up; sleep 600", identity=mia, workdir=self.place / "mia", env={"PATH": path})
        bench.start("j")
        bench.events(1)
        assert eventually((self.place / "mia/up").exists)
        yield bench
        bench.end_all()
        shutil.rmtree(self.place)

    def ask(self, client: SessionClient, *packets: bytes) -> list[bytes]:
        """What an SFTP server answers to each packet."""
        answers = []
        for packet in packets:
            client.type(len(packet).to_bytes(4, "big") + packet)
            answers.append(client.socket.recv(LARGEST_MESSAGE)[5:])
        return answers

    def test_read_and_write_files_with_its_rights_only(self, mine: Bench) -> None:
        (self.place / "of-root").write_text("of root")
        (self.place / "of-root").chmod(0o600)
        opened = [
            bytes([3]) + (7).to_bytes(4, "big") + text(os.fsencode(path)) + flags.to_bytes(4, "big") + bytes(4)
            for path, flags in ((self.place / "of-root", 1), ("/etc/x-of-mia", 0x1A), ("own", 0x1A))
        ]
        client = SessionClient(mine, "j", sftp=True)
        _, of_root, elsewhere, own = self.ask(client, bytes([1, 0, 0, 0, 3]), *opened)
        denied = (3).to_bytes(4, "big")  # SSH_FX_PERMISSION_DENIED
        assert (of_root[0], of_root[5:9]) == (101, denied)
        assert (elsewhere[0], elsewhere[5:9]) == (101, denied)
        assert own[0] == 102
        assert (self.place / "mia/own").stat().st_uid == 265_001

    @pytest.mark.parametrize("order", [{"argv": ("cat", "secret")}, {"sftp": True}])
    def test_enter_no_folder_that_it_could_not_enter_itself(self, mine: Bench, order: dict[str, Any]) -> None:
        (self.place / "mia").rename(self.place / "was-mia")
        (self.place / "mia").symlink_to(self.place / "closed/inner")
        streams, end = SessionClient(mine, "j", **order).hear()
        assert "Permission denied" in end["error"]
        assert streams[1] == b""

    def test_are_told_that_a_command_is_nowhere_though_a_folder_of_their_path_is_closed_to_them(
        self, mine: Bench
    ) -> None:
        (self.place / "closed/mine").symlink_to("/bin/true")
        _, end = SessionClient(mine, "j", argv=("mine",)).hear()
        assert end == {"error": "mine: No such file or directory", "exit": 127}


def test_tasks_that_serve_are_given_ports_of_their_own_and_the_record_tells_them(bench: Bench) -> None:
    bench.define("web", "env; echo all told; sleep 600", serves=True)
    bench.start("web", tasks=(0, 1))
    bench.events(1)
    records = [read_record(TaskFiles.of(bench.state_dir, TaskId("web", 1, task))) for task in (0, 1)]
    ports = {record.port for record in records if record}
    assert len(ports) == 2
    for number, record in enumerate(records):
        assert record is not None
        assert eventually(lambda number=number: bench.log("web", number).endswith(b"all told\n"))
        lines = bench.log("web", number).decode().splitlines()
        assert {f"MILLPOND_PORT={record.port}", f"MILLPOND_ACCESS_KEY={record.access_key}"} <= set(lines)
        assert "MILLPOND_BASE_PATH=/proxy/web/" in lines
