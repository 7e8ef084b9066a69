"""Whether a server stays reachable while clients hold connections open and send bodies without end.

Some clients open connections and never finish a request (2,000 at a time, opened anew when the server closes them),
others send bodies of 400 MB to routes that take a few bytes, with their length and in chunks. Meanwhile ``/healthz`` is
asked on new connections, and the server's memory is read. With ``--tls`` the first kind never ends its handshake.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import selectors
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.calibration import calibration_rate
from benchmarks.reporting import Table, command_line, emit, note, program, verdict
from benchmarks.server.served import ServedPond
from millpond.specs.api.base import API_PREFIX

HALF_OPEN = 2_000
BODY_BYTES = 400 * 10**6
SENDERS = 2
TARGET_P99_MS = 100.0
TARGET_GROWTH_MIB = 50.0
_PROBE_EVERY_S = 0.02
_MEMORY_EVERY_S = 0.1
_PIECE = b"x" * 65_536
_HEAD = b"GET / HTTP/1.1\r\n"
_HELLO = b"\x16\x03\x01\x02\x00\x01"
"""How a TLS handshake begins."""
_ROUTES = ("POST /login", "POST /tokens", "PUT /secrets/user/anybody/BIG")


@dataclass(frozen=True, slots=True)
class Target:
    """The server under attack."""

    port: int
    token: str
    is_encrypted: bool

    def connect(self, within_s: float = 10.0) -> socket.socket:
        """A new connection, encrypted where the server wants it."""
        plain = socket.create_connection(("127.0.0.1", self.port), within_s)
        if not self.is_encrypted:
            return plain
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(plain)


@dataclass(frozen=True, slots=True)
class Result:
    """What one attack did.

    Attributes:
        failed: probes that were not answered with 200.
        growth_mib: of the server's own memory, at its peak.
    """

    attack: str
    probes: int
    failed: int
    p50_ms: float
    p99_ms: float
    growth_mib: float

    @property
    def met(self) -> bool:
        """Whether both targets were met, and every probe answered."""
        return not self.failed and self.p99_ms < TARGET_P99_MS and self.growth_mib <= TARGET_GROWTH_MIB


@program
def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, print, and return 1 if a target was missed."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each attack lasts (default: 15)")
    parser.add_argument("--half-open", type=int, default=HALF_OPEN, help=f"connections held (default: {HALF_OPEN:,})")
    parser.add_argument("--tls", action="store_true", help="the server encrypts; needs openssl")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        results = _attacked(Path(folder), options)
    table = Table("attack", "probes", "failed", "p50 ms", "p99 ms", "memory MiB", "met", texts=1)
    for row in results:
        figures = (f"{row.p50_ms:.1f}", f"{row.p99_ms:.1f}", f"+{row.growth_mib:.1f}")
        table.add(row.attack, f"{row.probes:,}", str(row.failed), *figures, verdict(row.met))
    rows = [{**asdict(row), "met": row.met} for row in results]
    emit({"additions_per_s": calibration_rate(), "rows": rows}, options.json, [table])
    return int(not all(row.met for row in results))


def _attacked(folder: Path, options: Any) -> list[Result]:
    arguments = ["--fake-gpus", "1x1:V100-32GB"]
    if options.tls:
        arguments += ["--config", str(_encrypting(folder))]
    with ServedPond(folder / "state", arguments) as pond:
        pond.up()
        left = json.loads((pond.state_dir / "server.json").read_text())
        token = Path(left["token_path"]).read_text().strip()
        target = Target(int(left["url"].rpartition(":")[2]), token, options.tls)
        half_open = (_hold_half_open, (target.port, options.half_open, _HELLO if options.tls else _HEAD))
        bodies = [(_send_bodies, (target, chunked)) for chunked in (False, True) for _ in range(SENDERS // 2)]
        name = f"{options.half_open:,} half-open connections"
        attacks: dict[str, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {
            name: [half_open],
            "bodies of 400 MB": bodies,
            "both": [half_open, *bodies],
        }
        _probed(target, pond, "nothing", [], 2.0)  # what is loaded with the first request is no growth
        return [_probed(target, pond, what, kinds, options.seconds) for what, kinds in attacks.items()]


def _encrypting(folder: Path) -> Path:
    certificate, key, config = (folder / name for name in ("cert.pem", "key.pem", "pool.yaml"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    key.chmod(0o600)
    config.write_text(f"listen: {{certificate: {certificate}, key: {key}}}\n")
    return config


def _probed(
    target: Target,
    pond: ServedPond,
    attack: str,
    kinds: Sequence[tuple[Callable[..., None], tuple[Any, ...]]],
    for_s: float,
) -> Result:
    """Ask for ``/healthz`` during one attack."""
    note(f"{attack} …")
    before = peak = pond.memory_mib()
    attackers = [multiprocessing.Process(target=kind, args=given, daemon=True) for kind, given in kinds]
    for attacker in attackers:
        attacker.start()
    over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(_MEMORY_EVERY_S):
            peak = max(peak, pond.memory_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    times: list[float] = []
    failed = 0
    until = time.monotonic() + for_s
    try:
        while time.monotonic() < until:
            began = time.monotonic()
            failed += not _is_healthy(target)
            times.append(time.monotonic() - began)
            time.sleep(_PROBE_EVERY_S)
    finally:
        over.set()
        watcher.join()
        for attacker in attackers:
            attacker.kill()
            attacker.join()
    times.sort()
    p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
    return Result(attack, len(times), failed, p50, p99, peak - before)


def _is_healthy(target: Target) -> bool:
    with contextlib.suppress(OSError), target.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return connection.recv(100).startswith(b"HTTP/1.1 200")
    return False


def _hold_half_open(port: int, count: int, beginning: bytes) -> None:
    """Keep connections open on which a request has only begun."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    job_views = selectors.DefaultSelector()
    while True:
        while len(job_views.get_map()) < count:
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            job_views.register(connection, selectors.EVENT_WRITE)
        for key, _ in job_views.select(1.0):
            connection = key.fileobj  # type: ignore[assignment]
            is_open = key.data is None
            with contextlib.suppress(OSError):
                is_open = is_open and connection.send(beginning) == len(beginning)
            if is_open:
                job_views.modify(connection, selectors.EVENT_READ, "begun")
            else:
                job_views.unregister(connection)
                connection.close()
        time.sleep(0.01)


def _send_bodies(target: Target, chunked: bool) -> None:
    """Send bodies of 400 MB, one after the other, as fast as the server takes them."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {BODY_BYTES}"
    piece = f"{len(_PIECE):x}\r\n".encode() + _PIECE + b"\r\n" if chunked else _PIECE
    for number in range(10**9):
        method, _, route = _ROUTES[number % len(_ROUTES)].partition(" ")
        authorization = "" if route == "/login" else f"Authorization: Bearer {target.token}\r\n"
        head = f"{method} {API_PREFIX}{route} HTTP/1.1\r\nHost: 127.0.0.1\r\n{authorization}{length}\r\n"
        with contextlib.suppress(OSError), target.connect() as connection:
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
            for _ in range(BODY_BYTES // len(_PIECE)):
                connection.sendall(piece)


if __name__ == "__main__":
    raise SystemExit(main())
