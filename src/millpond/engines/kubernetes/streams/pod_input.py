"""Standard input of pods, from where the server keeps it (``node.task.input``) into a pipe in the pod.

What Kubernetes calls attaching loses what is under way when its connection breaks, and does not say what arrived. So
the program reads a named pipe in a folder of its pod, and a script beside it, which is a command as any other
(``pod_session``), fills that piece by piece. It notes in the folder how much it has passed on, and answers each piece
with that number: after a cut, or a restart of the server, the next script goes on there. The job notices nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from millpond.engines.kubernetes.pods.pod_marks import INPUT_FOLDER
from millpond.engines.kubernetes.streams.channels import PodChannels, PodEntryForbiddenError
from millpond.engines.kubernetes.streams.pod_session import exec_query, messages_of
from millpond.model.errors import UnavailableError
from millpond.node.sessions.session import STDIN, STDOUT
from millpond.node.task.input import InputRing
from millpond.node.task.records import TaskFiles

log = logging.getLogger(__name__)

_PIECE: Final = 65_536
_LOOK_EVERY_S: Final = 0.05
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.3, 3.0
_ENDED, _CLOSED = b"ended", b"closed"

# The folder has: "in", the program's pipe; "end", which the holder of its other end waits for; "fed", how much went in;
# "busy", a link to the number of the script at work: one whose stream broke may still wait for the program. A script
# before there is "end" leaves: nothing reads the pipe yet. It opens the pipe as if it read itself, or it would wait for
# as long as a program runs that has closed its input.
_FEED: Final = """cd "$1" && [ -p end ] || exit 1
until ln -s $$ busy 2>/dev/null; do
  sleep 0.2
  other=$(readlink busy) && { kill -0 "$other" 2>/dev/null || rm -f busy; }
done
trap 'rm -f busy' EXIT
[ -e ended ] && echo ended && exit
fed=$(cat fed 2>/dev/null || echo 0)
exec 7<>in 8>in 7<&-
echo "$fed"
while read -r length; do
  if [ "$length" = 0 ]; then : >ended; : >end; echo ended; exit; fi
  dd bs="$length" count=1 iflag=fullblock of=piece 2>/dev/null
  [ "$(wc -c <piece)" -eq "$length" ] || exit 1
  (cat piece >&8) 2>/dev/null || { echo closed; exit; }
  fed=$((fed + length))
  echo "$fed" >fed.new && mv fed.new fed
  echo "$fed"
done
"""
_QUERY: Final = exec_query(["/bin/sh", "-c", _FEED, "sh", INPUT_FOLDER], terminal=False)


class PodInputs:
    """Feeds pods. Lives on the engine's loop.

    Args:
        tell: is told, for the job of a pod, that the cluster does not let anything in.
    """

    def __init__(self, channels: PodChannels, tell: Callable[[str, str], None]) -> None:
        self._channels = channels
        self._tell = tell

    async def feed(self, pod: str, files: TaskFiles, is_over: Callable[[], bool]) -> None:
        """Pass on what comes for a task until its end was passed on, or the task takes no more, or is over."""
        try:
            await self._feed(pod, files, is_over)
        except OSError as error:
            log.warning("the input of %s cannot be kept: %s", pod, error)

    async def _feed(self, pod: str, files: TaskFiles, is_over: Callable[[], bool]) -> None:
        if not files.input.exists():
            files.input.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            InputRing.create(files.input).close()
        wait_s, is_told = _FIRST_WAIT_S, False
        with InputRing(files.input) as ring:
            while not is_over() and not ring.closed:
                await _something_in(ring, is_over)
                fed = ring.fed
                try:
                    async with await self._channels.open(pod, "exec", _QUERY) as stream:
                        await _fill(stream, ring)
                except (UnavailableError, ConnectionClosed) as error:
                    if isinstance(error, PodEntryForbiddenError) and not is_told:
                        is_told = True
                        self._tell(pod, f"its standard input cannot be passed on, and is tried again: {error.cause}")
                    log.debug("the input of %s was cut: %s", pod, error)
                wait_s = _FIRST_WAIT_S if ring.fed > fed else min(2 * wait_s, _LONGEST_WAIT_S)
                if not ring.closed:
                    await asyncio.sleep(wait_s)
            if not ring.closed:
                ring.close_reader()


async def _something_in(ring: InputRing, is_over: Callable[[], bool]) -> None:
    while ring.received == ring.fed and not ring.ended and not is_over():
        await asyncio.sleep(_LOOK_EVERY_S)


async def _fill(stream: ClientConnection, ring: InputRing) -> None:
    """Pass on what there is, for as long as the stream lasts."""
    answers = _answers(stream)
    async for answer in answers:
        if answer in (_ENDED, _CLOSED):
            ring.close_reader()
            return
        if not answer.isdigit():
            return
        ring.take(max(0, int(answer) - ring.fed))
        await _something_in(ring, lambda: stream.state is not State.OPEN)
        if stream.state is not State.OPEN:
            return
        piece = ring.next(_PIECE)
        if not piece and ring.received > ring.fed:
            raise OSError("some of it is no longer on the disk")
        await stream.send(STDIN + (b"%d\n%s" % (len(piece), piece) if piece else b"0\n"))


async def _answers(stream: ClientConnection) -> AsyncIterator[bytes]:
    """The lines that the script says."""
    rest = b""
    async for message in messages_of(stream):
        if message[:1] == STDOUT:
            *lines, rest = (rest + message[1:]).split(b"\n")
            for line in lines:
                yield line
