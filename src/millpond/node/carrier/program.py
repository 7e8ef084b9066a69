"""Runs in a pod beside a task: ``in`` before its program starts, ``out`` from then on until its files are in.

It has nothing but what an image with Python 3.8 has. The server sends it along as one file, of its own release, in a
secret of the run (``archive``).

How it knows that the program has ended: the program is started with the write end of a named pipe, which it need not
know of; when the last process that has it is gone, nobody can write there. A program may close what it did not open, so
the server, which knows it from the cluster, is asked whether that is so. While a pod is being deleted a kubelet reports
nothing of it: then what has changed is carried again and again until the pipe is closed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from millpond.node.carrier.connection import Connection, NotCarriedError
from millpond.node.carrier.incoming import bring_in
from millpond.node.carrier.order import ALIVE, BEGAN, CarryOrder, read_order
from millpond.node.carrier.outgoing import Outgoing, lost_text

METRICS_EVERY_S = 5.0
_LOOK_S = 0.1
_AGAIN_S = 1.0
_LONGEST_WAIT_S = 10.0
_LONGEST_MESSAGE = 2_000
REFUSED, NO_ROOM = 3, 4
"""Exit codes: it will not come about; it may on another node."""


def main(arguments: list[str]) -> int:
    """Carry; returns the exit code.

    Args:
        arguments: ``in`` or ``out``, the file with the order, the number of the task, the folder of its files, and the
            file for the reason of a failure.
    """
    way, order_file, task, folder, message = arguments
    order = read_order(Path(order_file))
    connection = Connection(order)
    path = f"/runs/{quote(order.job, safe='')}/{order.attempt}/{task}"
    try:
        if way == "in":
            signal.signal(signal.SIGTERM, lambda *_: os._exit(REFUSED))
            bring_in(order, connection, path, Path(folder))
            return 0
        return _carry_out(order, connection, path, Path(folder), Path(message))
    except NotCarriedError as refusal:
        return _failed(Path(message), str(refusal), REFUSED)
    except OSError as error:
        return _failed(Path(message), f"{error.strerror or error} ({error.filename or folder})", NO_ROOM)


def _carry_out(order: CarryOrder, connection: Connection, path: str, folder: Path, message: Path) -> int:
    outgoing, end = Outgoing(connection, path, folder), _TaskEnd(path, folder)
    signal.signal(signal.SIGTERM, end.notice)
    threading.Thread(target=end.tell, args=(Connection(order),), daemon=True).start()
    end.wait(outgoing.send_metrics)
    while not end.is_certain:
        _try(outgoing.send)
        end.look(connection)
    outgoing.send()
    return _failed(message, lost_text(outgoing.lost), REFUSED) if outgoing.lost else 0


class _TaskEnd:
    """Whether the program has ended.

    Attributes:
        is_certain: it has.
    """

    def __init__(self, path: str, folder: Path) -> None:
        self._path = f"{path}/state"
        self._began = folder / BEGAN
        self._pipe = os.open(folder / ALIVE, os.O_RDONLY | os.O_NONBLOCK)
        self._waking, self._wake = os.pipe()
        self._is_noticed = False
        self._closes_early = False
        self._wait_s = _LOOK_S
        self.is_certain = False

    def notice(self, *_: Any) -> None:
        """The pod is about to end."""
        self._is_noticed = True
        os.write(self._wake, b".")

    def wait(self, meanwhile: Any) -> None:
        """Until it may have ended, or the pod is about to."""
        while not self._is_noticed and not self._is_closed():
            if not self._rest(METRICS_EVERY_S, self._waking):
                _try(meanwhile)

    def tell(self, connection: Connection) -> None:
        """Tell the server as soon as it may have ended, however long something else is being sent.

        By this the server knows that a task has left within its grace, and lets its pod be for what is to be sent.
        """
        while not self._is_closed():
            self._rest(METRICS_EVERY_S)
        _try(lambda: connection.ask("POST", self._path, {"ended": True}))

    def look(self, connection: Connection) -> None:
        """Ask again, a while after the last time."""
        if self._is_noticed:
            # While a pod ends, nobody else can tell.
            self.is_certain = not self._began.exists() or (self._is_closed() and not self._closes_early)
            if not self.is_certain:
                time.sleep(_AGAIN_S)
            return
        answer = connection.ask("POST", self._path, {"ended": True})
        self.is_certain = bool(answer["ended"])
        if answer["ending"]:  # the notice came before this could hear it
            self._is_noticed = True
        elif not self.is_certain:
            self._closes_early = self._wait_s >= _LONGEST_WAIT_S
            self._sleep(self._wait_s)
            self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)

    def _rest(self, seconds: float, *others: int) -> bool:
        """Wait until it may have ended, or one of the others can be read; false when neither came in time."""
        if not self._began.exists():
            time.sleep(_LOOK_S)
            return True
        watched = select.poll()
        watched.register(self._pipe, 0)
        for other in others:
            watched.register(other, select.POLLIN)
        return bool(watched.poll(seconds * 1000))

    def _is_closed(self) -> bool:
        """Whether the program began, and nothing has the pipe any more."""
        if not self._began.exists():
            return False
        try:
            return os.read(self._pipe, 1) == b""
        except BlockingIOError:
            return False

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._is_noticed and time.monotonic() < until:
            time.sleep(_LOOK_S)


def _try(work: Any) -> None:
    """What is done before the end may fail: it is done again."""
    try:
        work()
    except (NotCarriedError, OSError) as error:
        print(f"carrier: {error}", file=sys.stderr, flush=True)


def _failed(message: Path, reason: str, code: int) -> int:
    text = reason[:_LONGEST_MESSAGE]
    print(f"carrier: {text}", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):  # it is in the log
        message.write_text(text)
    return code


def run(arguments: list[str] | None = None) -> None:
    """The program."""
    sys.exit(main(sys.argv[1:] if arguments is None else arguments))
