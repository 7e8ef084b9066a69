"""SSH into jobs: a real server, a real gateway, and OpenSSH's own client."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_pond import PATIENCE_S, Pond, alive, until
from screen import Screen

from own_address import free_port, own_address

PROGRAM = Path(__file__).with_name("serving_program.py")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's client is not installed"),
]


class Place:
    """A job, and ``ssh`` into it as ``pond dev ssh-config`` sets it up."""

    def __init__(self, pond: Pond, job: str) -> None:
        self.pond = pond
        self.job = job
        self.workdir = pond.state_dir.parent
        self.config = Path(pond.env["XDG_CONFIG_HOME"], "millpond/ssh/config")
        written = pond("dev", "ssh-config", job)
        assert written.returncode == 0, written.stderr
        assert written.stdout == f"ssh -F {self.config} millpond-{job}\n"

    def argv(self, *words: str, program: str = "ssh") -> list[str]:
        return [program, "-F", str(self.config), *words]

    def ssh(self, *words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command in the job."""
        argv = self.argv(f"millpond-{self.job}", *words)
        return subprocess.run(argv, input=data, capture_output=True, timeout=PATIENCE_S, env=self.pond.env, check=False)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program here."""
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, env=self.pond.env, check=False)

    def gateways(self) -> list[int]:
        """Those of the server; processes may come and go while they are listed."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_gateway = b"millpond.server.sessions.ssh.gateway" in (folder / "cmdline").read_bytes()
                if is_gateway and status_of(int(folder.name))["PPid"] == [str(self.pond.server_pid)]:
                    found.append(int(folder.name))
        return found


def status_of(pid: int) -> dict[str, list[str]]:
    """What the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("ssh")
    pond = Pond(folder / "state")
    pond.env |= {"XDG_CONFIG_HOME": str(folder / "config")}
    (folder / "pool.yaml").write_text("ssh: {port: 0}\n")
    pond.up("--config", str(folder / "pool.yaml"))
    program = shutil.copy(PROGRAM, folder)
    env = "env: {COLOUR: blue, SHELL: /bin/sh}"
    (folder / "job.yaml").write_text(f"kind: dev\ngpus: 1\n{env}\ncommand: [{sys.executable}, {program}]\n")
    job = pond.printed("submit", str(folder / "job.yaml"))
    until(lambda: pond.has_begun(job))
    place = Place(pond, job)
    done = place.ssh("true")  # from now on the gateway is up, without the rights that it begins with
    assert done.returncode == 0, done.stderr
    yield place
    done = pond("down")
    assert done.returncode == 0, done.stderr


def test_a_command_runs_in_the_place_of_the_task_and_its_exit_code_is_ours(place: Place) -> None:
    done = place.ssh("echo $COLOUR $MILLPOND_JOB_ID; echo bad >&2; pwd; exit 7")
    assert (done.returncode, done.stderr) == (7, b"bad\n")
    assert done.stdout.decode().splitlines() == [f"blue {place.job}", str(place.workdir)]


def test_the_gateway_has_no_rights(place: Place) -> None:
    (gateway,) = place.gateways()
    found = status_of(gateway)
    assert {tuple(found[name]) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {("0" * 16,)}
    assert found["NoNewPrivs"] == ["1"]
    if os.geteuid() == 0:
        (uid,) = set(found["Uid"])
        assert 200_000 <= int(uid) <= 265_535
        assert (set(found["Gid"]), found["Groups"], found["CapBnd"]) == ({uid}, [], ["0" * 16])


def test_standard_input_is_carried_to_its_end_and_a_shell_reads_commands_from_it(place: Place) -> None:
    data = os.urandom(2_000_000)
    assert place.ssh("cat", data=data).stdout == data
    done = place.ssh(data=b"echo from a script\nexit 4\n")
    assert (done.returncode, done.stdout) == (4, b"from a script\n")


def test_a_shell_has_this_window_and_hears_ctrl_c(place: Place) -> None:
    screen = Screen(place.argv(f"millpond-{place.job}"), place.pond.env)
    screen.shows_a_shell_of_its_own_window()
    screen.type("exit 3\n")
    assert screen.exit_code() == 3


def test_files_are_put_fetched_renamed_and_listed_by_sftp(place: Place, tmp_path: Path) -> None:
    data = os.urandom(1_500_000)
    (tmp_path / "here").write_bytes(data)
    batch = "\n".join(
        (
            f"put {tmp_path}/here there",
            "mkdir folder",
            "rename there folder/moved",
            "chmod 640 folder/moved",
            "symlink moved folder/link",
            f"get folder/link {tmp_path}/back",
            "ls -l folder",
        )
    )
    (tmp_path / "batch").write_text(batch)
    done = place.run(*place.argv("-b", f"{tmp_path}/batch", f"millpond-{place.job}", program="sftp"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back").read_bytes() == data
    assert (place.workdir / "folder/moved").stat().st_mode & 0o777 == 0o640
    assert "-rw-r-----" in done.stdout
    missing = place.run(*place.argv(f"millpond-{place.job}:none", str(tmp_path), program="scp"))
    assert (missing.returncode, "No such file or directory" in missing.stderr) == (1, True)


def test_a_port_of_the_task_is_reached_and_other_machines_are_not(place: Place) -> None:
    port = place.pond.printed("exec", place.job, "--", "printenv", "MILLPOND_PORT")
    here = (own_address(), free_port(own_address()))
    forwarded = f"{here[0]}:{here[1]}:localhost:{port}"
    argv = place.argv("-N", "-L", forwarded, "-o", "ExitOnForwardFailure=yes", f"millpond-{place.job}")
    forward = subprocess.Popen(argv, env=place.pond.env)
    answer = b""

    def answered() -> bool:
        nonlocal answer
        assert forward.poll() is None
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(here, timeout=PATIENCE_S) as connection,
        ):
            connection.sendall(b"GET /here HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while data := connection.recv(4096):
                answer += data
        return bool(answer)

    try:
        until(answered)
    finally:
        forward.terminate()
        forward.wait(PATIENCE_S)
    assert b'"path": "/here"' in answer
    nobody = place.run(*place.argv("-W", "localhost:1", f"millpond-{place.job}"))
    assert "no program listens on port 1" in nobody.stderr
    elsewhere = place.run(*place.argv("-W", "example.org:80", f"millpond-{place.job}"))
    assert "only ports at localhost" in elsewhere.stderr


def test_a_key_that_nobody_registered_is_refused_and_written_down(place: Place, tmp_path: Path) -> None:
    place.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{tmp_path}/other")
    config = tmp_path / "config"
    config.write_text(place.config.read_text().replace(str(place.config.with_name("id_ed25519")), f"{tmp_path}/other"))
    done = place.run("ssh", "-F", str(config), "-o", "BatchMode=yes", f"millpond-{place.job}", "true")
    assert (done.returncode, "Permission denied (publickey)" in done.stderr) == (255, True)
    until(lambda: " 401" in place.pond("audit", "--object", place.job).stdout)


def test_a_key_of_ones_own_is_added_listed_and_removed(place: Place, tmp_path: Path) -> None:
    place.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "mine", "-f", f"{tmp_path}/key")
    added = place.pond("ssh-key", "add", f"{tmp_path}/key.pub")
    assert added.returncode == 0, added.stderr
    name = added.stdout.partition(":")[0]
    listed = place.pond("ssh-key", "ls", "-o", "wide").stdout
    assert place.run("ssh-keygen", "-lf", f"{tmp_path}/key").stdout.split()[1] in listed
    own = place.argv("-o", f"IdentityFile={tmp_path}/key", f"millpond-{place.job}", "true")
    assert place.run(*own).returncode == 0
    keys = {key["id"]: key for key in json.loads(place.pond.printed("ssh-key", "ls", "-o", "json"))["keys"]}
    assert keys[name]["used_at"] is not None  # it was this one, not that of the entry
    assert place.pond("ssh-key", "rm", name).stdout == f"{name}: removed\n"
    assert name not in place.pond("ssh-key", "ls", "-o", "name").stdout.split()
    wrong = place.pond("ssh-key", "add", f"{tmp_path}/key")
    assert (wrong.returncode, "private key" in wrong.stderr) == (2, True)


def test_the_agent_stays_here_and_other_subsystems_are_refused(place: Place) -> None:
    assert place.run(*place.argv("-A", f"millpond-{place.job}", "echo [$SSH_AUTH_SOCK]")).stdout == "[]\n"
    done = place.run(*place.argv("-s", f"millpond-{place.job}", "netconf"))
    assert "subsystem request failed" in done.stderr


def test_a_job_that_has_ended_or_never_was_says_so(place: Place) -> None:
    ended = place.pond.printed("run", "-d", "--name", "short", "true")
    assert place.pond("wait", ended).returncode == 0
    for job, words in ((ended, "is succeeded; submit it again"), ("never-was", "no job 'never-was'")):
        done = place.run(*place.argv("-l", job, f"millpond-{place.job}", "true"))
        assert words in done.stderr
        assert done.returncode in (4, 5)
    assert "is succeeded" in place.pond("dev", "ssh-config", ended).stderr


def test_writing_the_entries_again_changes_nothing_and_they_are_ones_own(place: Place) -> None:
    folder = place.config.parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    home = folder / "home"
    for _ in range(2):
        place.pond.env["HOME"] = str(home)
        written = place.pond("dev", "ssh-config", "--include")
        assert written.stdout == f"ssh millpond-{place.job}\n", written.stderr
    link = f"in VS Code: vscode://vscode-remote/ssh-remote+millpond-{place.job}{place.workdir}"
    assert link in written.stderr
    assert link in place.pond("dev", "open", place.job).stderr
    assert (home / ".ssh/config").read_text() == f'Include "{place.config}"\n'
    shutil.rmtree(home)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    private = {path.name for path in folder.iterdir() if path.stat().st_mode & 0o077}
    assert private <= {"id_ed25519.pub"}


def test_a_gateway_that_was_killed_is_replaced_and_a_server_takes_its_gateway_along(place: Place) -> None:
    (killed,) = place.gateways()
    os.kill(killed, signal.SIGKILL)
    until(lambda: [pid for pid in place.gateways() if pid != killed])
    until(lambda: place.ssh("true").returncode == 0)
    (after,) = place.gateways()
    place.pond.kill_server()
    until(lambda: not alive(after))
    place.pond.up("--config", str(place.workdir / "pool.yaml"))
    assert place.pond("dev", "ssh-config", place.job).returncode == 0
    assert place.ssh("echo back").stdout == b"back\n"
