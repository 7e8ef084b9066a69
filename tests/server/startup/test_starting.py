"""What a server needs to start: its directory, its port, its token; each failure is one clear line."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from fresh_databases import fresh_sqlite

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.model.sharing import SliceRules
from millpond.node.host.controllers import Amounts
from millpond.node.sandbox import namespaces
from millpond.node.sandbox.detection import SandboxMode
from millpond.server import state_dir
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.isolation import Isolation, IsolationLevel
from millpond.server.auth.owner import token_in
from millpond.server.auth.records import User
from millpond.server.auth.run_tokens import RunTokens
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.secrets import Vault
from millpond.server.http.listener import listen, url_of
from millpond.server.startup import options
from millpond.server.startup.command_line import parse_options, words_of
from millpond.server.startup.kubernetes_engine import Carriage, PodLauncher, ProgramKeys
from millpond.server.startup.local_engine import Launcher, Rules, describe
from millpond.server.startup.options import ServerOptions
from millpond.server.startup.process import run
from millpond.server.state_dir import StateDir
from millpond.server.storage.files.service import FileService
from millpond.server.storage.files.volumes import VolumeRules
from millpond.server.storage.job_files import JobFiles
from millpond.server.storage.provisioning.components import Provisioning
from millpond.server.storage.provisioning.pod_jobs import PodJobs
from millpond.server.store.connection.database import password_notes
from millpond.server.store.jobs import NewJob
from millpond.server.store.store import Store
from millpond.specs.api.codec import from_json
from millpond.specs.api.server import LOCK_FILE, ServerFile
from millpond.specs.config.cluster import ClusterConfig, read_cluster
from millpond.specs.config.tasks import TasksFile
from millpond.specs.job.job_ids import member_id
from millpond.specs.job.job_spec import check_job, stored_job


def test_a_state_directory_is_made_for_its_owner_and_used_by_one_server_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state"
    with StateDir(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        with pytest.raises(UnavailableError, match="another server"):
            StateDir(path)
    with StateDir(path):
        pass


def test_a_state_directory_whose_server_was_killed_is_had_when_what_that_was_starting_has_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child between fork and exec has all files of its parent open, the lock among them, though that is dead."""
    lock = (tmp_path / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(f"{2**22 + 1}\n")  # no process has such a number
    lock.flush()
    pauses = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: lock.close())
    monkeypatch.setattr(state_dir, "time", pauses)
    with StateDir(tmp_path):
        assert lock.closed


HOLDS_LOCK = """
import ctypes, fcntl, os, sys, threading
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(os.getpid(), file=lock, flush=True)
def stay():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
    print(flush=True)
    threading.Event().wait()
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_state_directory_whose_server_is_being_killed_is_had_once_the_last_thread_of_that_has_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", HOLDS_LOCK, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server, contextlib.ExitStack() as stack:
        stack.callback(server.kill)
        assert server.stdout is not None
        server.stdout.readline()

        def end(_: float) -> None:
            server.kill()
            server.wait()

        monkeypatch.setattr(state_dir, "time", SimpleNamespace(monotonic=time.monotonic, sleep=end))
        with StateDir(tmp_path):
            assert server.returncode is not None


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_state_directory_that_others_may_enter_is_closed_to_them(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "state"
    path.mkdir()
    for _ in ("empty", "used before"):
        path.chmod(mode)
        with StateDir(path):
            assert path.stat().st_mode & 0o777 == 0o700


def test_a_folder_with_something_else_in_it_is_no_state_directory_while_others_may_enter_it(tmp_path: Path) -> None:
    (tmp_path / "shared/things").mkdir(parents=True)
    (tmp_path / "shared").chmod(0o755)
    with pytest.raises(UnavailableError, match="has mode 0755") as refused:
        StateDir(tmp_path / "shared")
    assert refused.value.remedy.startswith("chmod 700")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755
    (tmp_path / "shared").chmod(0o700)
    with StateDir(tmp_path / "shared"):
        pass


def test_a_state_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="Not a directory"):
        StateDir(tmp_path / "file" / "state")


def test_the_address_is_left_for_clients_and_taken_away(tmp_path: Path) -> None:
    with StateDir(tmp_path) as state:
        left = ServerFile(url="http://127.0.0.1:1", pid=1, token_path="t", version="1")
        state.announce(left)
        path = tmp_path / "server.json"
        assert from_json(ServerFile, path.read_bytes()) == left
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        state.withdraw()
        assert not path.exists()


def test_a_token_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    token = token_in(tmp_path)
    assert len(token) > 30
    assert token_in(tmp_path) == token
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


@pytest.mark.parametrize("left", [b"", bytes(44), b"ab\n"], ids=["emptied", "zeroed", "cut"])
def test_a_token_that_a_power_cut_damaged_opens_nothing_any_more(tmp_path: Path, left: bytes) -> None:
    token_in(tmp_path)
    (tmp_path / "token").write_bytes(left)
    token = token_in(tmp_path)
    assert len(token) > 30
    assert token_in(tmp_path) == token


def test_a_state_directory_of_another_account_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UnavailableError, match=r"belongs to user .* runs as user") as refused:
        StateDir(tmp_path)
    assert refused.value.remedy.startswith("run it as that user")


def test_a_port_in_use_is_one_clear_error() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert url_of(listener).startswith("http://127.0.0.1:")
        with pytest.raises(UnavailableError, match="in use"):
            listen("127.0.0.1", listener.getsockname()[1])


def test_an_address_that_is_not_ours_is_one_clear_error() -> None:
    with pytest.raises(UnavailableError) as refused:
        listen("192.0.2.1", 0)
    assert refused.value.remedy == "choose an address of this machine with --host and --port"


@pytest.mark.parametrize(
    ("problem", "words"),
    [("port", "in use"), ("directory", "cannot be used"), ("config", "cannot read"), ("fakes", "fake")],
)
def test_what_stops_a_start_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], problem: str, words: str
) -> None:
    (tmp_path / "file").touch()
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1]) if problem == "port" else "0"
        state = tmp_path / "file" / "x" if problem == "directory" else tmp_path / "state"
        arguments = [
            "--port",
            port,
            "--state-dir",
            str(state),
            "--fake-gpus",
            "x" if problem == "fakes" else "1:V100-1GB",
        ]
        arguments += ["--config", str(tmp_path / "none.yaml")] if problem == "config" else []
        assert run(parse_options(arguments)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("pond: ")
    assert words in lines[0]


def test_a_database_that_fails_within_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(sqlite3.connect(fresh_sqlite(tmp_path).removeprefix("sqlite:///"))) as database:
        database.execute("DROP TABLE tokens")
    tmp_path.chmod(0o700)
    (tmp_path / LOCK_FILE).touch()
    assert run(parse_options(["--port", "0", "--state-dir", str(tmp_path), "--fake-gpus", "1:V100-1GB"])) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pond: ")]
    assert len(said) == 1
    assert "cannot be read or written (no such table: tokens)" in said[0]
    assert "pond restore" in said[0]


def test_a_full_disk_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: object, durable: bool = False) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(options, "write_json", full)
    assert run(parse_options(["--port", "0", "--state-dir", str(tmp_path / "state"), "--fake-gpus", "1:V100-1GB"])) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pond: ")]
    assert said == [
        f"pond: the disk is full beside {tmp_path / 'state'}; make room there, then start again; jobs go on"
    ]


def test_options_are_read_from_a_command_line(tmp_path: Path) -> None:
    options = parse_options(["--port", "0", "--state-dir", str(tmp_path), "--ordering", "fifo", "--standby"])
    assert options == ServerOptions(tmp_path, port=0, ordering="fifo", standby=True)


def test_a_server_in_the_background_gets_every_option(tmp_path: Path) -> None:
    given = ServerOptions(
        tmp_path,
        host="::1",
        port=0,
        fake_gpus="1:V100-1GB",
        config=tmp_path / "pond.yaml",
        ordering="fifo",
        placement="fgd",
        preempt=False,
        reserve=True,
        store="none",
        sandbox="required",
        control_groups="off",
        standby=True,
        take_over=True,
        keep_jobs=1.5,
        keep_logs_gib=2.0,
        keep_free_gib=0.0,
        log_format="json",
    )
    plain = ServerOptions(tmp_path)
    assert [field.name for field in fields(plain)[1:] if getattr(given, field.name) == getattr(plain, field.name)] == []
    assert parse_options([*words_of(given)]) == given
    assert parse_options([*words_of(plain)]) == plain


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "70000"],
        ["--ordering", "luck"],
        ["--nothing"],
        ["--keep-free-gib", "1e300"],
        ["--keep-logs-gib", "1e300"],
    ],
)
def test_options_that_make_no_sense_end_with_code_2(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError) as caught:
        parse_options(arguments)
    assert caught.value.exit_code == 2


def test_pretended_nodes_of_the_configuration_stand_in_for_the_machine(tmp_path: Path) -> None:
    config = read_cluster("nodes:\n- {name: a, devices: 2}\n")
    machine = describe("3:A100-80GB", config, tmp_path)
    assert [(node.name, len(node.devices)) for node in machine.nodes] == [("a", 2), ("fake-1", 3)]
    with pytest.raises(InvalidInputError, match="two nodes") as caught:
        describe("3:A100-80GB", read_cluster("nodes:\n- {name: fake-1}\n"), tmp_path)
    assert "--fake-gpus none" in caught.value.remedy  # the last start may have asked for them
    assert describe("", ClusterConfig(), tmp_path).nodes


def test_a_member_of_an_array_is_launched_as_its_array_says_and_for_its_user(tmp_path: Path) -> None:
    store = Store(fresh_sqlite(tmp_path))
    document = {"command": "work", "array": 3, "secrets": ["TOKEN"]}
    store.append([], [NewJob("sweep", "ada", 1.0, document, group="vision")])
    submitted = store.jobs.submitted(member_id("sweep", 1))
    assert submitted is not None
    assert (submitted.user, submitted.group) == ("ada", "vision")
    assert submitted.document["secrets"] == ["TOKEN"]
    assert "array" not in submitted.document
    assert store.jobs.submitted("nobody") is None


def launcher_on(store: Store, state_dir: Path, vault: Vault | None = None, network: str = "auto") -> Launcher:
    accounts = Accounts(AccountStore(store.database), "ada", "token", lambda: 1.0)
    isolation = Isolation(IsolationLevel(SandboxMode.AUTO), accounts, "ada", state_dir)
    vault = vault or Vault(store.secrets, state_dir, lambda: Cipher.AES_256_GCM, lambda: 1.0)
    provisioning = Provisioning(store, state_dir, vault)
    files = FileService(state_dir, store, lambda _: provisioning.rules, provisioning.cache.copy_of)
    rules = Rules(lambda: TasksFile(network=network))
    return Launcher(JobFiles(store.jobs), files, isolation, vault, provisioning.provisions, state_dir, rules)


def pod_launcher_on(store: Store, state_dir: Path) -> PodLauncher:
    """Of a cluster whose pods do not reach the server."""
    vault = Vault(store.secrets, state_dir, lambda: Cipher.AES_256_GCM, lambda: 1.0)
    provisioning = Provisioning(store, state_dir, vault)
    files = FileService(state_dir, store, lambda _: provisioning.rules, provisioning.cache.copy_of)
    pods = PodJobs(provisioning.sources, VolumeRules(provisioning.rules, dict), files, lambda: "i:1", str, {})
    carriage = Carriage(RunTokens("secret"), str, str, lambda: None)
    keys = ProgramKeys("secret")
    return PodLauncher(JobFiles(store.jobs), pods, vault, files, keys, carriage, lambda _pool: SliceRules())


@pytest.mark.parametrize(
    ("document", "needs"),
    [
        ({}, "image:docker.io/library/python:3"),
        ({"array": 3}, "image:docker.io/library/python:3"),
        ({"image": "torch:2.4"}, "image:docker.io/library/torch:2.4"),
        ({"cluster": "east"}, "image:docker.io/library/python:3"),
        ({"cluster": "west"}, "image:docker.io/west/python:3"),
        ({"cluster": "any"}, ""),
        ({"pinned": {"default_image": "other:1"}}, "image:docker.io/library/python:3"),
        ({"image": "torch:2.4", "pinned": {"default_image": "other:1"}}, "image:docker.io/library/torch:2.4"),
    ],
)
def test_which_nodes_hold_the_image_counts_for_jobs_on_kubernetes_that_name_none_too(
    tmp_path: Path, document: dict[str, Any], needs: str
) -> None:
    pods = replace(
        pod_launcher_on(Store(fresh_sqlite(tmp_path)), tmp_path).pods,
        default_image=lambda: "python:3",
        cluster_images={"west": "west/python:3"},
    )
    spec = pods.with_image(check_job({"command": "true", **document}))
    needed = [content.name for content in spec.job.contents]
    assert needed == ([needs] if needs else [])
    assert stored_job(spec.document).job.contents == spec.job.contents, "the stored file says so too"


def test_where_no_image_is_configured_a_job_that_names_none_needs_none(tmp_path: Path) -> None:
    pods = replace(pod_launcher_on(Store(fresh_sqlite(tmp_path)), tmp_path).pods, default_image=str)
    spec = check_job({"command": "true"})
    assert pods.with_image(spec) is spec


@pytest.mark.parametrize(
    ("document", "rule", "alone", "among_people"),
    [
        ({}, "auto", False, True),
        ({"network": "host"}, "auto", False, False),
        ({"network": "private"}, "auto", True, True),
        ({"kind": "service", "serve": {"listen": "private"}}, "host", True, True),
        ({"kind": "service", "serve": {"listen": "socket"}}, "auto", False, True),
        ({}, "host", False, False),
        ({}, "private", True, True),
        ({"network": "host"}, "private", False, False),
    ],
)
def test_the_network_of_a_job_is_private_from_the_second_person_on_unless_file_or_configuration_says_otherwise(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    document: dict[str, Any],
    rule: str,
    alone: bool,
    among_people: bool,
) -> None:
    monkeypatch.setattr(namespaces, "network_trouble", lambda: "")
    store = Store(fresh_sqlite(tmp_path))
    store.append([], [NewJob("j", "ada", 1.0, {"command": "work", **document})])
    assert launcher_on(store, tmp_path, network=rule).launch_of("j").private_network is alone
    AccountStore(store.database).save(User("bob"))
    monkeypatch.setattr(Isolation, "hindrance", "")
    assert launcher_on(store, tmp_path, network=rule).launch_of("j").private_network is among_people


def test_a_kernel_without_private_networks_is_refused_only_where_the_configuration_demands_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "network_trouble", lambda: "no user namespaces")
    store = Store(fresh_sqlite(tmp_path))
    store.append([], [NewJob("j", "ada", 1.0, {"command": "work"})])
    AccountStore(store.database).save(User("bob"))
    monkeypatch.setattr(Isolation, "hindrance", "")
    assert not launcher_on(store, tmp_path).launch_of("j").private_network
    with pytest.raises(UnavailableError, match="no private networks here: no user namespaces"):
        launcher_on(store, tmp_path, network="private").launch_of("j")


def test_a_job_is_launched_as_its_file_says(tmp_path: Path) -> None:
    store = Store(fresh_sqlite(tmp_path))
    document = {
        "roles": [{"name": "ps", "command": "serve"}, {"name": "worker", "command": ["work", "1"], "memory": "2GiB"}],
        "cpus": 2,
        "secrets": ["TOKEN"],
        "env": {"A": "1"},
        "checkpoint": {"signal": "SIGUSR1"},
    }
    store.append([], [NewJob("j", "ada", 1.0, document)])
    vault = Vault(store.secrets, tmp_path, lambda: Cipher.AES_256_GCM, lambda: 1.0)
    vault.put("user", "ada", "TOKEN", "quiet", "ada")
    launch = launcher_on(store, tmp_path, vault).launch_of("j")
    assert launch.argv_of("ps") == ["/bin/sh", "-c", "serve"]
    assert launch.argv_of("worker") == ["work", "1"]
    assert (launch.notice_signal, launch.env) == ("SIGUSR1", {"A": "1", "TOKEN": "quiet"})
    assert launch.workdir.is_dir()
    assert launch.role_amounts == {"ps": Amounts(2_000, 1_024, 4_096), "worker": Amounts(2_000, 2_048, 4_096)}
    assert launch.said_memory == {"worker"}
    assert launch.identity is None
    assert not launch.own_shared_memory


@pytest.mark.parametrize(
    ("fields", "own"),
    [
        ({"memory": "2GiB"}, True),
        ({"memory": "2GiB", "gpus": 1}, True),
        ({"roles": [{"name": "one", "memory": "2GiB"}]}, True),
        ({"gpus": 1}, False),
        ({"memory": "2GiB", "tasks": 2}, False),
        ({"memory": "2GiB", "tasks": {"min": 1, "max": 2}}, False),
        ({"memory": "2GiB", "roles": [{"name": "a"}, {"name": "b"}]}, False),
    ],
)
def test_a_single_task_that_names_its_memory_shares_none_with_others(tmp_path: Path, fields: Any, own: bool) -> None:
    store = Store(fresh_sqlite(tmp_path))
    store.append([], [NewJob("j", "ada", 1.0, {"command": "work", **fields})])
    assert launcher_on(store, tmp_path).launch_of("j").own_shared_memory == own


@pytest.mark.parametrize(
    ("fields", "swappable"),
    [({"suspend": "swap"}, True), ({"suspend": "freeze"}, False), ({"suspend": "never"}, False), ({}, False)],
)
def test_only_a_job_that_leaves_by_swap_is_kept_from_what_cannot_be_moved(
    tmp_path: Path, fields: Any, swappable: bool
) -> None:
    store = Store(fresh_sqlite(tmp_path))
    store.append([], [NewJob("j", "ada", 1.0, {"command": "work", "gpus": 0.5, **fields})])
    assert launcher_on(store, tmp_path).launch_of("j").swappable is swappable
    assert pod_launcher_on(store, tmp_path).launch_of("j").swappable is swappable


def test_a_provider_without_the_package_that_checks_its_signatures_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    config = tmp_path / "pool.yaml"
    config.write_text(
        "listen: {public_url: 'http://pool.test'}\noidc: {issuer: 'https://login.test', client_id: pool}\n"
    )
    assert (
        run(parse_options(["--state-dir", str(tmp_path / "state"), "--port", "0", "--config", str(config)]))
        == UnavailableError.exit_code
    )
    assert "needs the package joserfc; pip install 'millpond[oidc]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("store", "is_told"),
    [
        ("", False),
        ("sqlite:///x.db", False),
        ("postgresql+psycopg://millpond@db/millpond", False),
        ("postgresql+psycopg://millpond:hush@db/millpond", True),
        ("postgresql+psycopg://millpond@db/millpond?password=hush", True),
    ],
)
def test_a_password_that_others_see_among_the_processes_is_warned_of(store: str, is_told: bool) -> None:
    notes = password_notes(store)
    assert [note.startswith("warning: other accounts of this machine see the password") for note in notes] == (
        [True] if is_told else []
    )
    assert "hush" not in str(notes)
