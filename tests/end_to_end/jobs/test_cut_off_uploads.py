"""Large files on their way to a real server, through whatever may befall them there."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from real_pond import PATIENCE_S, Pond, until

from millpond.client.sdk.resources.uploads import WORTH_ASKING
from millpond.client.sdk.transport.discovery import find_server

pytestmark = pytest.mark.long
SIZE = 3 * WORTH_ASKING
MIB = 2**20


class Line:
    """A way to a server that carries a byte a second once so much has gone that way, and nothing once it is silent."""

    def __init__(self, url: str, carries: int) -> None:
        parts = urlsplit(url)
        self._there = (str(parts.hostname), int(parts.port or 0))
        self._left = carries
        self.is_stuck, self.is_silent = threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._ends = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):  # it was cut already
                end.shutdown(socket.SHUT_RDWR)  # a close would wait for who is reading
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listening.accept()
            except OSError:
                return
            there = socket.create_connection(self._there)
            self._ends += [here, there]
            for carry in ((here, there, True), (there, here, False)):
                threading.Thread(target=self._carry, args=carry, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        try:
            while data := source.recv(65_536):
                if counts:
                    self._left -= len(data)
                    if self._left < 0:
                        self.is_stuck.set()
                        for byte in data:
                            if self.is_silent.wait(1.0):
                                break
                            target.sendall(bytes((byte,)))
                        source.recv(1, socket.MSG_PEEK)  # what comes now stays where it is
                        threading.Event().wait()
                target.sendall(data)
        except OSError:
            return
        finally:
            for end in (source, target):
                end.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/large.bin").write_bytes(os.urandom(SIZE))
    return tmp_path / "data"


@pytest.fixture
def line(pond: Pond) -> Iterator[Line]:
    pond.up()
    made = Line(find_server(None, None, pond.state_dir).url, 2 * WORTH_ASKING)
    yield made
    made.close()


def received(pond: Pond) -> int:
    return sum(part.stat().st_size for part in (pond.state_dir / "blobs/partials").glob("*"))


def as_job_reads_it(pond: Pond, folder: Path) -> None:
    same = f'cmp "$MILLPOND_DATA_IT/large.bin" {folder}/large.bin && echo same'
    done = pond("run", "--data", "it=dataset/it", "sh", "-c", same)
    assert done.stdout == "same\n", done.stderr
    assert not received(pond)


@pytest.mark.parametrize("blow", ["Ctrl-C", "kill -9 of the server"])
def test_an_upload_goes_on_after(pond: Pond, line: Line, folder: Path, blow: str) -> None:
    server = find_server(None, None, pond.state_dir)
    way = {"MILLPOND_URL": line.url, "MILLPOND_TOKEN": server.token}
    pond.env |= way
    putting = pond.start("data", "put", "it", str(folder))
    assert line.is_stuck.wait(PATIENCE_S)
    until(lambda: received(pond) > WORTH_ASKING)
    if blow == "Ctrl-C":
        putting.send_signal(signal.SIGINT)
        _, told = putting.communicate(timeout=PATIENCE_S)
        assert putting.returncode == 130
        assert "the same command goes on with it" in told
        line.close()
    else:
        pond.kill_server()
        line.close()
        _, told = putting.communicate(timeout=PATIENCE_S)
        assert putting.returncode == 2, told
        assert "the same command goes on where this was" in told
        assert told.count("\n") == 1
    for name in way:
        del pond.env[name]
    if blow != "Ctrl-C":
        pond.up()
    here = received(pond)  # at least: the server may still be reading what got through
    assert here >= WORTH_ASKING
    again = pond("data", "put", "it", str(folder))
    assert again.stdout == "dataset/it@1\n", again.stderr
    told = re.search(rf"going on with large\.bin at ([\d.]+) MiB of {SIZE / MIB:.1f} MiB", again.stderr)
    assert told is not None, again.stderr
    assert float(f"{here / MIB:.1f}") <= float(told[1]) < SIZE / MIB
    as_job_reads_it(pond, folder)


def test_two_commands_that_send_the_same_file_send_it_once(pond: Pond, line: Line, folder: Path) -> None:
    server = find_server(None, None, pond.state_dir)
    pond.env |= {"MILLPOND_URL": line.url, "MILLPOND_TOKEN": server.token}
    first = pond.start("data", "put", "it", str(folder))
    assert line.is_stuck.wait(PATIENCE_S)
    del pond.env["MILLPOND_URL"], pond.env["MILLPOND_TOKEN"]
    until(lambda: received(pond) > WORTH_ASKING)
    second = pond.start("data", "put", "it", str(folder))
    assert second.stderr is not None
    assert "is being sent by another command; waiting for that" in second.stderr.readline()
    line.is_silent.set()  # before, however long the second takes to begin, it finds the first at work
    printed, told = second.communicate(timeout=PATIENCE_S)
    assert printed == "dataset/it@1\n", told
    assert "going on with large.bin" in told
    first.kill()
    first.communicate(timeout=PATIENCE_S)
    as_job_reads_it(pond, folder)
