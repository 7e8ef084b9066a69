"""The program that carries files into pods: standard library alone, on old releases of Python, on bad networks."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import signal
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from millpond.model.folders import DEEPEST, batch_of, digest_of
from millpond.node.carrier import connection as carrier_connection
from millpond.node.carrier.archive import carrier_archive
from millpond.node.carrier.connection import Connection, NotCarriedError
from millpond.node.carrier.incoming import BringingIn, bring_in
from millpond.node.carrier.order import CarryOrder
from millpond.node.carrier.outgoing import Outgoing
from millpond.node.carrier.program import REFUSED, main
from nested_folders import nested

PATH = "/runs/train/1/0"


@pytest.fixture(autouse=True)
def _usual_termination() -> Iterator[None]:
    """The program takes SIGTERM for itself, as it is alone in its process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class CuttingServer(ThreadingHTTPServer):
    """A server of contents that cuts every answer off after so many bytes, and takes no more than that at once.

    Attributes:
        kept: what came whole, by digest.
        refuses: a status in place of every answer.
    """

    daemon_threads = True

    def __init__(self, contents: dict[str, bytes], piece: int = 2**62) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.contents, self.piece, self.refuses = contents, piece, 0
        self.kept: dict[str, bytes] = {}
        self.parts: dict[str, bytearray] = {}
        self.told: list[Any] = []
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: CuttingServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._begin()
        digest = self.path.rpartition("/")[2]
        if "/blobs/" in self.path:
            part = len(self.server.parts.get(digest, b""))
            self._answer(json.dumps({"whole": digest in self.server.kept, "received": part, "busy": False}).encode())
            return
        content = self.server.contents[digest]
        first = int(self.headers.get("Range", "bytes=0-")[6:-1])
        if first >= len(content) > 0:
            self._answer(b"{}", 416)
            return
        self._answer(content[first:])

    def do_PUT(self) -> None:
        self._begin()
        digest = self.path.rpartition("/")[2]
        first = int(self.headers.get("Content-Range", "bytes 0-").split()[1].split("-")[0])
        part = self.server.parts.setdefault(digest, bytearray())
        del part[first:]
        size = int(self.headers["Content-Length"])
        part += self.rfile.read(min(size, self.server.piece))
        if size > self.server.piece:
            self.close_connection = True
            self.connection.close()
            return
        assert digest_of(bytes(part)) == digest
        self.server.kept[digest] = bytes(part)
        self._answer(b"{}", 201)

    def do_POST(self) -> None:
        self._begin()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/contents"):
            self._answer(batch_of(self.server.contents[each] for each in json.loads(body)["digests"]))
        elif self.path.endswith("/missing"):
            self._answer(json.dumps({"digests": json.loads(body)["digests"]}).encode())
        elif self.path.endswith("/output"):
            self.server.told.append(json.loads(body))
            self._answer(b"{}")
        else:
            self._answer(json.dumps({"digests": []}).encode())

    def _begin(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")

    def _answer(self, body: bytes, status: int = 200) -> None:
        status = self.server.refuses or status
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.piece])
        if len(body) > self.server.piece:
            self.close_connection = True


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier_connection, "_FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(carrier_connection, "_LONGEST_WAIT_S", 0.0)


@pytest.fixture
def serve() -> Iterator[Any]:
    servers: list[CuttingServer] = []

    def served(contents: dict[str, bytes], piece: int = 2**62) -> CuttingServer:
        server = CuttingServer(contents, piece)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield served
    for server in servers:
        server.shutdown()
        server.server_close()


def snapshot_of(files: dict[str, bytes], links: dict[str, str] | None = None) -> tuple[str, dict[str, bytes]]:
    """A snapshot, and all contents that it takes."""
    entries = [
        {"path": path, "digest": digest_of(data), "size": len(data), "executable": False}
        for path, data in files.items()
    ]
    linked = [{"path": path, "target": target} for path, target in (links or {}).items()]
    text = json.dumps({"files": entries, "links": linked}).encode()
    return digest_of(text), {digest_of(data): data for data in (text, *files.values())}


def order(server: CuttingServer, **more: Any) -> CarryOrder:
    return CarryOrder(server.url, "token", "train", 1, **more)


def test_the_program_understands_python_3_8_and_imports_nothing_else() -> None:
    archive = zipfile.ZipFile(io.BytesIO(carrier_archive()))
    names = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in archive.namelist()}
    for name in archive.namelist():
        for node in ast.walk(ast.parse(archive.read(name), feature_version=(3, 8))):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert module in names or module.split(".")[0] in sys.stdlib_module_names, f"{name}: {module}"


def test_the_program_is_the_same_file_each_time_it_is_made() -> None:
    before = carrier_archive()
    carrier_archive.cache_clear()
    assert carrier_archive() == before


def test_a_large_file_that_is_cut_off_goes_on_where_it_was(serve: Any, tmp_path: Path) -> None:
    large = os.urandom(1_000_000)
    digest, contents = snapshot_of({"large": large, "below/small": b"small"}, {"below/link": "small"})
    server = serve(contents, piece=300_000)
    bring_in(order(server, snapshot=digest), Connection(order(server)), PATH, tmp_path)
    assert (tmp_path / "work" / "large").read_bytes() == large
    assert (tmp_path / "work" / "below" / "link").read_text() == "small"
    assert len([each for each in server.asked if digest_of(large) in each]) == 4


def test_many_small_files_come_in_few_requests_and_equal_ones_once(serve: Any, tmp_path: Path) -> None:
    files = {f"{number}": f"{number % 1_100}".encode() for number in range(2_200)}
    digest, contents = snapshot_of(files)
    server = serve(contents)
    BringingIn(Connection(order(server)), PATH).lay_out(digest, tmp_path / "work", lambda _: None)
    assert {path.name: path.read_bytes() for path in (tmp_path / "work").iterdir()} == files
    assert len(server.asked) == 3, "the snapshot, and two of a thousand contents"


@pytest.mark.parametrize("path", ["../up", "/up", "a/../../up"])
def test_no_path_leads_out_of_the_folder(serve: Any, tmp_path: Path, path: str) -> None:
    digest, contents = snapshot_of({path: b"x"})
    server = serve(contents)
    with pytest.raises(OSError, match="the snapshot has the path"):
        BringingIn(Connection(order(server)), PATH).lay_out(digest, tmp_path / "work", lambda _: None)
    assert not (tmp_path / "up").exists()


def test_another_content_than_was_asked_for_is_not_taken(serve: Any, tmp_path: Path) -> None:
    digest, contents = snapshot_of({"small": b"small", "large": bytes(300_000)})
    for name, size in (("small", 5), ("large", 300_000)):
        data = {"small": b"small", "large": bytes(300_000)}[name]
        server = serve({**contents, digest_of(data): b"x" * size})
        with pytest.raises(NotCarriedError, match="is not the content"):
            BringingIn(Connection(order(server)), PATH).lay_out(digest, tmp_path / name, lambda _: None)


def test_a_refusal_ends_the_program_with_the_servers_words(serve: Any, tmp_path: Path) -> None:
    server = serve({})
    server.refuses = 403
    given, message = tmp_path / "order", tmp_path / "message"
    given.write_text(order(server, snapshot="0" * 64).text())
    (tmp_path / "files").mkdir()
    server.contents["0" * 64] = json.dumps({"error": {"cause": "run 1 has ended"}}).encode()
    assert main(["in", str(given), "0", str(tmp_path / "files"), str(message)]) == REFUSED
    assert message.read_text() == "run 1 has ended"


@pytest.mark.parametrize(
    ("depth", "kept", "lost"),
    [(DEEPEST, 1, []), (1_200, 0, [f"{'d/' * 20}… lies below more than 200 folders"]), (2_500, 0, ["f lies too deep"])],
)
def test_what_lies_in_folders_that_are_nested_deep_is_sent_or_named(
    serve: Any, tmp_path: Path, depth: int, kept: int, lost: list[str]
) -> None:
    server = serve({})
    with nested(tmp_path / "output", depth):
        outgoing = Outgoing(Connection(order(server)), PATH, tmp_path)
        outgoing.send()
    assert outgoing.lost == lost
    assert len(json.loads(server.kept[server.told[-1]["snapshot"]])["files"]) == kept


def test_a_task_that_has_removed_its_output_folder_has_left_nothing(serve: Any, tmp_path: Path) -> None:
    server = serve({})
    outgoing = Outgoing(Connection(order(server)), PATH, tmp_path)
    outgoing.send()
    assert outgoing.lost == []
    assert json.loads(server.kept[server.told[-1]["snapshot"]])["files"] == []


def test_a_large_output_that_is_cut_off_goes_on_and_unreadable_things_are_named(serve: Any, tmp_path: Path) -> None:
    large = os.urandom(1_000_000)
    output = tmp_path / "output"
    output.mkdir()
    (output / "large").write_bytes(large)
    (output / "link").symlink_to("/etc/passwd")
    os.mkfifo(output / "pipe")
    server = serve({}, piece=700_000)
    outgoing = Outgoing(Connection(order(server)), PATH, tmp_path)
    outgoing.send()
    assert outgoing.lost == []
    assert hashlib.sha256(server.kept[digest_of(large)]).hexdigest() == digest_of(large)
    listed = json.loads(server.kept[server.told[-1]["snapshot"]])
    assert [entry["path"] for entry in listed["files"]] == ["large"]
    asked = len(server.asked)
    outgoing.send()
    assert len(server.asked) == asked, "what has not changed is not sent again"
