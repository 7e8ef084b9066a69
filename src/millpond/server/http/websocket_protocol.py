"""A connection that has become a WebSocket's, over uvicorn's parser: bounded in what it holds and in what a turn costs.

The parser itself takes all that has come at once, answers pings whether or not the answers are read, and keeps
messages of which the end never comes.
"""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from millpond.server.http.connections import CountedConnection

PIECE: Final = 8 * 1024
"""Bytes that are parsed in one turn of the event loop: they may be thousands of frames, at 5 us each."""
_FRAGMENT_BYTES: Final = 64
"""What a fragment of a message takes besides its content."""
_NO_OPENING: Final = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Messages both ways.

    Args:
        counted: the connection that it was so far.
    """

    def __init__(self, counted: CountedConnection, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counted = counted
        self._unparsed = bytearray()
        self._is_next_piece_due = False
        self._fragments_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._unparsed.clear()
        self._counted.all.closed(self._counted)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        self._counted.all.stalls(self._counted, self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._counted.all.flows(self._counted)
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        self._counted.all.messages.grow(self._counted, len(data))
        self._unparsed += data
        if not self._is_next_piece_due and not self.read_paused:
            self._parse_piece()

    def handle_cont(self, event: Frame) -> None:
        """A further fragment of a message is here."""
        self._fragments_bytes += len(event.data) + _FRAGMENT_BYTES
        self._counted.all.messages.grow(self._counted, _FRAGMENT_BYTES)
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer it, unless the client does not read answers."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def send_receive_event_to_app(self) -> None:
        """A message is complete; uvicorn would log text that is none as a defect of this server."""
        self._fragments_bytes = 0
        if self.close_sent or self.curr_msg_data_type != "text" or _is_text(self.frames):
            super().send_receive_event_to_app()
        else:
            self.conn.fail(CloseCode.INVALID_DATA, "text is UTF-8")
            self.handle_parser_exception()

    async def receive(self) -> Any:
        """What the application gets next; what it got before has been passed on."""
        if self.queue.empty():
            rest = len(self._unparsed) + len(self.conn.reader.buffer) + self._fragments_bytes
            self._counted.all.messages.passed_on(self._counted, rest)
        message = await super().receive()
        self._go_on()
        return message

    async def send(self, message: Any) -> None:
        """Send what the application says; an end behind the end says nothing new."""
        if self.close_sent and message["type"] == "websocket.close":
            return
        await super().send(message)
        if self.close_sent and self.initial_response is not None:
            self.handshake_complete = True  # by an answer instead of a WebSocket; uvicorn would log an error
        self._go_on()

    def _go_on(self) -> None:
        """Have the rest of what arrived parsed, once the application has taken what is complete."""
        if self._unparsed and not self.read_paused and not self._is_next_piece_due:
            self._is_next_piece_due = True
            self.transport.pause_reading()
            self.loop.call_soon(self._parse_next_piece)

    def _parse_next_piece(self) -> None:
        self._is_next_piece_due = False
        if not self._unparsed or self.transport.is_closing():
            return
        self._parse_piece()
        if not self._unparsed and not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _parse_piece(self) -> None:
        piece = bytes(self._unparsed[:PIECE])
        del self._unparsed[:PIECE]
        super().data_received(piece)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(_NO_OPENING)  # uvicorn would leave it waiting for ever
            self.transport.close()
        if not self.transport.is_closing():
            self._go_on()


def _is_text(fragments: list[bytes]) -> bool:
    try:
        b"".join(fragments).decode()
    except UnicodeDecodeError:
        return False
    return True
