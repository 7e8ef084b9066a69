"""Supervise the gateway's process and answer its requests, on a thread of its own.

The listening socket is the server's: a gateway that dies is replaced without the port being free in between. A gateway
whose server dies sees the end of their socket and ends too.
"""

from __future__ import annotations

import logging
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

from millpond.node.host.periodic_worker import PeriodicWorker
from millpond.server.sessions.ssh.authorizer import SshAuthorizer
from millpond.server.sessions.ssh.listener import HostKey
from millpond.server.sessions.ssh.messages import GatewayRequest, receive, send

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_AFTER_TROUBLE_S: Final = 5.0
_HEARS_WITHIN_S: Final = 10
_CUT_OFF_WITHIN_S: Final = 5
"""Sessions of users who no longer may be inside a job go on for so long at most."""
_ENDS_WITHIN_S: Final = 5.0
_INTO_TASKS: Final = frozenset((GatewayRequest.SESSION, GatewayRequest.FORWARD))
_MOST_AT_ONCE: Final = 64
"""So many ways into tasks are opened at once; logins do not wait for them."""
_TIMEVAL: Final = "ll"


class Gateway:
    """The gateway of one server.

    Args:
        listener: where people connect.
        uid: the account that the process becomes; None: the server's.
    """

    def __init__(
        self, listener: socket.socket, host_key: HostKey, authorizer: SshAuthorizer, uid: int | None = None
    ) -> None:
        self._listener = listener
        self._host_key = host_key
        self._authorizer = authorizer
        self._uid = uid
        self._closing = threading.Event()
        self._pause_s = _FIRST_PAUSE_S
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._conversation: socket.socket | None = None
        self._worker = PeriodicWorker(
            "ssh-gateway", self._run_one, _AFTER_TROUBLE_S, "no SSH gateway can be kept going"
        )

    def start(self) -> None:
        """Take people in."""
        self._worker.start()

    def close(self) -> None:
        """Take no more clients; ends all sessions."""
        with self._lock:
            self._closing.set()
            if self._conversation is not None:
                self._conversation.shutdown(socket.SHUT_RDWR)
        self._worker.close()
        self._listener.close()

    def _run_one(self) -> float:
        """Have one process going, up to its end; returns the seconds until the next one."""
        with ExitStack() as stack:
            stack.callback(self._authorizer.close)
            own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(own)
            with theirs:
                process = self._spawn(theirs)
            stack.callback(_end, process)
            stack.callback(own.close)  # before: by that it ends
            with self._lock:
                self._conversation = own
            stack.callback(self._over)
            if not self._closing.is_set() and self._converse(own):
                self._pause_s = _FIRST_PAUSE_S
        pause_s = self._pause_s
        if not self._closing.is_set():
            log.error("the SSH gateway ended with exit code %s; another one in %g s", process.returncode, pause_s)
            self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s

    def _over(self) -> None:
        with self._lock:
            self._conversation = None

    def _spawn(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        descriptors = (self._listener.fileno(), theirs.fileno())
        arguments = descriptors if self._uid is None else (*descriptors, self._uid)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "millpond.server.sessions.ssh.gateway", *map(str, arguments)],
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C is for the server, which ends it in its turn
        )
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(self._host_key.private.encode())
        return process

    def _converse(self, own: socket.socket) -> bool:
        """Answer until the gateway is gone; whether it asked anything at all."""
        # What it does not take for so long, it never will.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack(_TIMEVAL, _HEARS_WITHIN_S, 0))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack(_TIMEVAL, _CUT_OFF_WITHIN_S, 0))
        asked, cut_off_at = False, time.monotonic()
        ways = ThreadPoolExecutor(_MOST_AT_ONCE, "ssh-ways")
        try:
            while True:
                if time.monotonic() >= cut_off_at:
                    self._authorizer.cut_off()
                    cut_off_at = time.monotonic() + _CUT_OFF_WITHIN_S
                try:
                    received = receive(own)
                except BlockingIOError:
                    continue
                if received is None:
                    break
                question, _ = received
                asked = True
                if question.get("ask") in _INTO_TASKS:  # a program or a supervisor may take its time to accept
                    try:
                        ways.submit(self._answer, own, question).add_done_callback(_log_failure)
                    except RuntimeError as error:  # it is taken all the same, and answered by a thread that there is
                        log.warning("a question of the SSH gateway waits for those before it (%s)", error)
                else:
                    self._answer(own, question)
        except (OSError, ValueError, KeyError) as error:
            if not self._closing.is_set():
                log.error("the SSH gateway does not understand or is not understood (%r)", error)
        finally:
            ways.shutdown(cancel_futures=True)  # no session begins after the authorizer has ended them all
        return asked

    def _answer(self, own: socket.socket, question: dict[str, Any]) -> None:
        """Answer one question, if it wants an answer."""
        answer, handed = self._authorizer.answer(question)
        with ExitStack() as stack:
            if handed is not None:
                stack.enter_context(handed)
            if "id" in question:
                with self._sending:
                    send(own, answer | {"id": question["id"]}, handed)


def _log_failure(answered: Future[None]) -> None:
    if not answered.cancelled() and (error := answered.exception()) is not None:
        log.warning("a question of the SSH gateway was not answered (%r)", error)


def _end(process: subprocess.Popen[bytes]) -> None:
    """It ends by itself when the conversation does."""
    try:
        process.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
