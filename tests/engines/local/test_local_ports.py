"""Programs behind task sockets: who reaches them, with a sandbox and without, as root and as anybody."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import httpcore2
import pytest
from local_bench import Bench, eventually

from millpond.engines.local.task_access import LocalTaskAccess
from millpond.engines.task_access import ForeignListenerError
from millpond.model.confinement import NetworkScope
from millpond.model.events import Confirmed, Ended
from millpond.node.host import procfs
from millpond.node.host.identities import MachineAccount, numbered
from millpond.node.sandbox import namespaces
from millpond.node.sandbox.detection import SandboxMode, find_sandbox
from millpond.node.sessions.task_socket import TASK_SOCKETS
from millpond.node.task.launch import ListenMode
from millpond.node.task.records import RunRecord, TaskFiles, TaskId, read_record
from millpond.server.sessions.task_routes import ADDRESS, TaskNetwork, TaskRoute

ON_PORT = """
import os, socket
listener = socket.create_server(("127.0.0.1", int(os.environ["MILLPOND_PORT"])))
while True:
    client, _ = listener.accept()
    client.sendall(client.recv(100).upper())
    client.close()
"""
ON_SOCKET = ON_PORT.replace(
    'socket.create_server(("127.0.0.1", int(os.environ["MILLPOND_PORT"])))', "socket.socket(socket.AF_UNIX)"
).replace("while True", 'listener.bind(os.environ["MILLPOND_SOCKET"]); listener.listen()\nwhile True')
WITHIN_S = 60.0

needs_private_networks = pytest.mark.skipif(namespaces.network_trouble() != "", reason="no private networks here")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder in which a socket's name is short enough for the kernel, as pytest's own are not under xdist."""
    with TemporaryDirectory(prefix="ports-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(params=["sandboxed", "bare"])
def bench(request: pytest.FixtureRequest, short_folder: Path) -> Iterator[Bench]:
    sandbox = None
    if request.param == "sandboxed":
        sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, (short_folder / "state",))
        if sandbox is None:
            pytest.skip(f"no sandbox here: {trouble}")
    made = Bench(short_folder, sandbox)
    yield made
    made.end_all()


def record_of(bench: Bench, job: str) -> RunRecord:
    record = read_record(TaskFiles.of(bench.state_dir, TaskId(job, 1, 0)))
    assert record is not None
    return record


def way_to(bench: Bench, job: str, port: int = 0) -> TaskRoute:
    access, task = LocalTaskAccess(bench.state_dir), TaskId(job, 1, 0)
    place = access.serving(task)
    assert place is not None
    return TaskRoute(task, port or place.port or 0, access)


def serve(
    bench: Bench, job: str, program: str, identity: MachineAccount | None = None, **settings: object
) -> TaskRoute:
    """A job whose program answers; the way to it."""
    settings = {"workdir": Path("/"), **settings}
    bench.define(job, ("python3", "-c", program), serves=True, identity=identity, **settings)
    bench.start(job)
    assert isinstance(bench.events(1)[0], Confirmed)
    way = way_to(bench, job)
    assert eventually(lambda: answer(way) == b"HELLO")
    return way


def connected(way: TaskRoute, within_s: float = WITHIN_S) -> socket.socket:
    """A blocking connection to a program."""
    connection = asyncio.run(way.connect(within_s))
    connection.setblocking(True)
    return connection


def answer(way: TaskRoute) -> bytes:
    try:
        connection = connected(way)
    except OSError:
        return b""
    with connection:
        connection.sendall(b"hello")
        return connection.recv(100)


def listens(port: int) -> bool:
    try:
        socket.create_connection((ADDRESS, port), WITHIN_S).close()
    except OSError:
        return False
    return True


@needs_private_networks
@pytest.mark.end_to_end
def test_a_program_in_a_network_of_its_own_is_reached_through_its_door_alone(bench: Bench) -> None:
    way = serve(bench, "open", ON_PORT)
    assert record_of(bench, "open").confinement.network is NetworkScope.HOST
    assert listens(way.port)
    way = serve(bench, "private", ON_PORT, private_network=True)
    assert record_of(bench, "private").confinement.network is NetworkScope.PRIVATE
    assert answer(way) == b"HELLO"
    assert not listens(way.port)


@needs_private_networks
@pytest.mark.end_to_end
def test_a_door_outlives_the_server_and_goes_with_its_task(bench: Bench) -> None:
    way = serve(bench, "private", ON_PORT, private_network=True)
    bench.restart().adopt([TaskId("private", 1, 0)], [])
    assert answer(way) == b"HELLO"
    bench.stop("private", grace_s=60.0)
    _, end = bench.events(2)  # the stop is confirmed first
    assert isinstance(end, Ended)
    record = record_of(bench, "private")
    assert not record.forced
    assert answer(way) == b""
    assert list((bench.state_dir / TASK_SOCKETS).iterdir()) == []


@needs_private_networks
@pytest.mark.end_to_end
def test_nothing_listens_behind_a_door_until_the_program_does(bench: Bench) -> None:
    bench.define("late", "sleep 1000", serves=True, private_network=True)
    bench.start("late")
    bench.events(1)
    way = way_to(bench, "late")
    with pytest.raises(ConnectionRefusedError, match="no program listens"):
        connected(way)


@pytest.mark.end_to_end
def test_a_program_on_a_socket_is_reached_and_has_no_port(bench: Bench) -> None:
    way = serve(bench, "socket", ON_SOCKET, listening=ListenMode.SOCKET)
    assert answer(way) == b"HELLO"
    assert not listens(way.port)
    (folder,) = (each for each in (bench.state_dir / TASK_SOCKETS).iterdir() if each.is_dir())
    assert folder.stat().st_mode & 0o777 == 0o700
    bench.stop("socket")
    bench.events(1)
    assert eventually(lambda: not folder.exists())


DEAF = """
import os, socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.environ["MILLPOND_SOCKET"])
listener.listen(0)
print("deaf", flush=True)
time.sleep(1000)
"""


def start_deaf(bench: Bench, program: str) -> TaskRoute:
    """A job whose program listens and takes nobody in; the way to it."""
    bench.define("deaf", ("python3", "-c", program), serves=True, listening=ListenMode.SOCKET)
    bench.start("deaf")
    bench.events(1)
    assert eventually(lambda: b"deaf" in bench.log("deaf"))
    return way_to(bench, "deaf")


@pytest.mark.end_to_end
@pytest.mark.parametrize("bench", ["bare"], indirect=True)
def test_a_program_that_takes_no_connections_holds_up_no_thread(bench: Bench) -> None:
    way = start_deaf(bench, DEAF)

    async def connect_all() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        connections = [asyncio.ensure_future(way.connect(WITHIN_S)) for _ in range(4)]
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.to_thread(int), WITHIN_S / 2)
        pool = httpcore2.AsyncConnectionPool(network_backend=TaskNetwork(LocalTaskAccess(bench.state_dir)))
        with pytest.raises(httpcore2.ConnectError):
            await pool.request("GET", way.url, extensions={"timeout": {"connect": 0.1}})
        for connection in connections:
            connection.cancel()
        for taken in await asyncio.gather(*connections, return_exceptions=True):
            if isinstance(taken, socket.socket):
                taken.close()

    asyncio.run(connect_all())


@pytest.mark.long  # as long as the kernel lets a connection wait for a program
@pytest.mark.end_to_end
@pytest.mark.parametrize("bench", ["bare"], indirect=True)
def test_clients_of_a_program_that_takes_no_connections_get_an_error(bench: Bench) -> None:
    way = start_deaf(bench, DEAF)

    async def connect_all() -> list[socket.socket | BaseException]:
        return await asyncio.gather(*(way.connect(WITHIN_S) for _ in range(4)), return_exceptions=True)

    # One has room to wait for the program; the others hear that it does not take them.
    taken = [each for each in asyncio.run(connect_all()) if not isinstance(each, ConnectionRefusedError)]
    assert len(taken) == 1
    assert isinstance(taken[0], socket.socket)
    taken[0].close()


@pytest.mark.end_to_end
@pytest.mark.parametrize("bench", ["bare"], indirect=True)
def test_a_task_socket_without_room_for_more_clients_stays_and_serves_them_later(bench: Bench) -> None:
    way = start_deaf(bench, DEAF.replace("listen(0)", "listen()"))
    connected(way).close()
    supervisor = record_of(bench, "deaf").supervisor_pid
    # Forked, and nothing else: what the task runs has another command line.
    (keeper,) = (pid for pid in procfs.descendants(supervisor) if command_line(pid) == command_line(supervisor))
    usual = resource.prlimit(keeper, resource.RLIMIT_NOFILE)
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, (1, usual[1]))
    for _ in range(2):  # the kernel has a number ready for the first one; the second one has to wait
        with pytest.raises((ConnectionError, TimeoutError)):
            connected(way, 0.1)
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, usual)
    connected(way).close()


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.end_to_end
@needs_private_networks
@pytest.mark.end_to_end
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start tasks as others")
@pytest.mark.parametrize("bench", ["sandboxed"], indirect=True)
def test_a_port_of_a_job_that_runs_as_somebody_else_is_reached_although_they_cannot_read_the_servers_python(
    bench: Bench,
) -> None:
    mia = numbered("mia", 265_001, bench.state_dir)
    way = serve(bench, "private", ON_PORT, mia, private_network=True)
    assert record_of(bench, "private").confinement.network is NetworkScope.PRIVATE
    assert answer(way) == b"HELLO"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start tasks as others")
@pytest.mark.parametrize("bench", ["sandboxed"], indirect=True)
def test_the_socket_of_a_job_that_runs_as_somebody_else_is_reached_in_a_state_directory_closed_to_them(
    bench: Bench,
) -> None:
    bench.state_dir.chmod(0o700)
    way = serve(bench, "socket", ON_SOCKET, numbered("mia", 265_001, bench.state_dir), listening=ListenMode.SOCKET)
    assert answer(way) == b"HELLO"


THIEF = """
import socket, sys, time
while True:
    try:
        listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        time.sleep(0.01)
print("mine", flush=True)
while True:
    client, _ = listener.accept()
    print("got", client.recv(100), flush=True)
"""


@pytest.mark.end_to_end
def test_a_port_that_another_job_took_leads_nowhere_and_that_job_gets_nothing(bench: Bench) -> None:
    bench.define("late", "sleep 1000", serves=True)
    bench.start("late")
    bench.events(1)
    way = way_to(bench, "late")
    bench.start("thief", ("python3", "-c", THIEF, str(way.port)))
    bench.events(1)
    assert eventually(lambda: b"mine" in bench.log("thief"))
    with pytest.raises(ForeignListenerError, match=f"not the job's own listens on port {way.port}"):
        connected(way)

    async def ask() -> None:
        async with httpcore2.AsyncConnectionPool(network_backend=TaskNetwork(LocalTaskAccess(bench.state_dir))) as pool:
            await pool.request("GET", way.url, headers={"Authorization": "Bearer key"})

    with pytest.raises(ForeignListenerError, match="not the job's own"):
        asyncio.run(ask())
    assert eventually(lambda: bench.log("thief").count(b"got b''") == 2)
    assert b"Bearer" not in bench.log("thief")


@needs_private_networks
@pytest.mark.end_to_end
def test_every_port_of_a_private_network_is_reached_by_the_task_socket(bench: Bench) -> None:
    elsewhere = ON_PORT.replace('int(os.environ["MILLPOND_PORT"])', "8080")
    bench.define("private", ("python3", "-c", elsewhere), serves=True, private_network=True)
    bench.start("private")
    bench.events(1)
    way = way_to(bench, "private", 8080)
    assert eventually(lambda: answer(way) == b"HELLO")
    assert answer(way_to(bench, "private", 8081)) == b""


MEETING = """
import os, socket, time
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    listener = socket.create_server(place)
    print("port", place[1], flush=True)
    for _ in range(2):
        print("met", listener.accept()[0].recv(100).decode(), flush=True)
else:
    while True:
        try:
            socket.create_connection(place).sendall(os.environ["RANK"].encode())
            break
        except OSError:
            time.sleep(0.01)
time.sleep(1000)
"""


@needs_private_networks
@pytest.mark.end_to_end
def test_the_tasks_of_a_gang_share_one_private_network_and_a_task_that_comes_later_joins_it(bench: Bench) -> None:
    bench.define("gang", ("python3", "-c", MEETING), private_network=True)
    bench.start("gang", tasks=(0, 1))
    bench.events(1)
    assert eventually(lambda: b"met 1" in bench.log("gang"))
    assert not listens(int(bench.log("gang").split()[1]))
    bench.start("gang", tasks=(2,))
    assert eventually(lambda: b"met 2" in bench.log("gang"))


@pytest.mark.end_to_end
def test_a_link_in_place_of_the_socket_leads_nowhere(bench: Bench, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as secret:
        path = Path(f"/dev/shm/{os.getpid()}.sock")
        secret.bind(str(path))
        secret.listen()
        try:
            bench.define(
                "link",
                f'ln -s {path} "$MILLPOND_SOCKET"; echo done; sleep 1000',
                serves=True,
                listening=ListenMode.SOCKET,
            )
            bench.start("link")
            bench.events(1)
            assert eventually(lambda: b"done" in bench.log("link"))
            way = way_to(bench, "link")
            with pytest.raises(ConnectionRefusedError):
                connected(way)
        finally:
            path.unlink()
