"""What of an open page's traffic is a person's doing: with what JupyterLab and VS Code were recorded to send."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from server_world import Clock
from starlette.types import Message

from millpond.server.monitoring.activity import Activity
from millpond.server.serving.proxy.presence import POLLS_WITHIN_S, Conversation, Doing, Polls, doing_of

RECORDED = Path(__file__).parent / "recorded"
VS_CODE = b"/stable-53c2f32?reconnectionToken=527ec2c1&reconnection=false&skipWebSocketFrames=false"
CHANNELS = b"/api/kernels/d701d3a7/channels?session_id=1"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) Chrome/150"


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / name).read_text().splitlines()]


def request(method: str, target: str = "/", **headers: str) -> dict[str, Any]:
    path, _, query = target.partition("?")
    told = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": told}


class Pages:
    """Pages of one job behind the proxy.

    Attributes:
        uses: how often something that was said was taken for somebody's doing.
    """

    def __init__(self) -> None:
        self.clock = Clock(0.0)
        self.polls = Polls(self.clock)
        self.uses = 0

    def note(self) -> None:
        self.uses += 1

    def fetch(
        self, method: str, target: str, parts: Iterable[bytes] = (b"",), job: str = "lab", **headers: str
    ) -> bool:
        """Whether a request of a page was taken for somebody's doing."""
        scope = request(method, target, **{"sec_fetch_dest": "empty", **headers})
        match doing_of(scope):
            case Doing.SOMEBODYS:
                return True
            case Doing.THE_PAGES:
                return False
            case Doing.EITHERS:
                return self._written(job, scope, list(parts))

    def _written(self, job: str, scope: dict[str, Any], parts: list[bytes]) -> bool:
        messages: list[Message] = [
            {"type": "http.request", "body": part, "more_body": number < len(parts) - 1}
            for number, part in enumerate(parts)
        ]
        unread = iter([*messages, {"type": "http.disconnect"}])

        async def receive() -> Message:
            return next(unread)

        before = self.uses
        watched = self.polls.watch(job, scope, receive, self.note)

        async def read() -> list[Message]:
            return [await watched() for _ in range(len(parts) + 1)]

        assert asyncio.run(read())[:-1] == messages, "the program gets all of it"
        return self.uses > before


# ---- recorded ----------------------------------------------------------------------------------------------------


def test_jupyterlab_that_nobody_touches_is_not_in_use_and_what_people_do_there_is() -> None:
    pages, doings = Pages(), defaultdict(set)
    talks: dict[str, Conversation] = {}
    for line in recorded("jupyterlab.jsonl"):
        pages.clock.now = line["at"]
        if "method" in line:
            told = pages.fetch(line["method"], line["target"], (line["body"].encode(),), sec_fetch_dest=line["dest"])
        else:
            said = line["text"] if "text" in line else base64.b64decode(line["said"])
            talk = talks.setdefault(line["target"], Conversation(line["target"].encode()))
            told = talk.is_persons(said)
        if told:
            doings[line["phase"]].add(line.get("method", "said"))
    assert not doings.keys() & {"untouched", "scroll"}
    assert doings["load"] >= {"GET"}, "the page was opened"
    assert doings["terminal-type"] == {"said"}
    assert "said" not in doings["open-notebook"], "that is the page, which asks the kernel what it is"
    assert "POST" in doings["open-notebook"]
    assert "said" in doings["run"]


def test_vs_code_that_nobody_touches_is_not_in_use_and_a_key_or_a_click_there_is() -> None:
    windows = [Conversation(VS_CODE), Conversation(VS_CODE)]
    doings: dict[str, list[float]] = defaultdict(list)
    for line in recorded("code-server.jsonl"):
        if windows[line["socket"]].is_persons(base64.b64decode(line["said"])):
            doings[line["phase"]].append(line["at"])
    assert doings.keys() == {"type", "terminal", "untouched", "mouse"}
    lines = [line["at"] for line in recorded("code-server.jsonl") if line["phase"] == "untouched"]
    (told,) = doings["untouched"]
    assert told < lines[0] + 4, "half a minute after the last key it tells that nobody is there, and that is all"
    assert lines[-1] > told + 15


# ---- made up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "headers", "doing"),
    [
        ("GET", {"sec_fetch_dest": "document"}, Doing.SOMEBODYS),
        ("GET", {"sec_fetch_dest": "iframe"}, Doing.SOMEBODYS),
        ("GET", {"sec_fetch_dest": "empty"}, Doing.THE_PAGES),
        ("GET", {"sec_fetch_dest": "image"}, Doing.THE_PAGES),
        ("POST", {"sec_fetch_dest": "empty"}, Doing.EITHERS),
        ("POST", {"sec_fetch_dest": "document"}, Doing.SOMEBODYS),
        ("GET", {"user_agent": BROWSER, "accept": "text/html,*/*"}, Doing.SOMEBODYS),
        ("GET", {"user_agent": BROWSER, "accept": "*/*"}, Doing.THE_PAGES),
        ("PUT", {"user_agent": BROWSER, "accept": "*/*"}, Doing.EITHERS),
        ("GET", {"user_agent": "curl/8.5", "accept": "*/*"}, Doing.SOMEBODYS),
        ("PUT", {}, Doing.SOMEBODYS),
    ],
)
def test_the_head_of_a_request_tells_whose_doing_it_may_be(method: str, headers: dict[str, str], doing: Doing) -> None:
    assert doing_of(request(method, **headers)) is doing


def test_what_a_page_writes_again_and_again_is_a_poll_and_counts_once_as_long_as_it_goes_on() -> None:
    pages = Pages()
    assert pages.fetch("POST", "/data?t=1", (b"runs=", b"a"))
    for minute in range(1, 40):
        pages.clock.now = 60.0 * minute
        assert not pages.fetch("POST", f"/data?t={minute}", (b"runs=a",))
    assert pages.fetch("POST", "/data", (b"runs=b",)), "something else"
    assert pages.fetch("PUT", "/data", (b"runs=a",)), "something else with it"
    assert pages.fetch("POST", "/other", (b"runs=a",)), "elsewhere"
    assert pages.fetch("POST", "/data", (b"runs=a",), job="other"), "to another job"
    pages.clock.now += POLLS_WITHIN_S
    assert pages.fetch("POST", "/data", (b"runs=a",)), "after a long while"


def test_forms_that_differ_in_their_boundary_alone_are_the_same() -> None:
    pages = Pages()

    def send(boundary: str, run: str) -> bool:
        body = f'--{boundary}\r\nContent-Disposition: form-data; name="run"\r\n\r\n{run}\r\n--{boundary}--\r\n'
        return pages.fetch("POST", "/", (body.encode(),), content_type=f"multipart/form-data; boundary={boundary}")

    assert [send("----a1", "x"), send("----b2", "x"), send("----b2", "y")] == [True, False, True]


def test_a_large_body_is_somebodys_and_one_that_breaks_off_is_nobodys() -> None:
    pages = Pages()
    large = (b"x" * 50_000, b"y" * 50_000)
    assert [pages.fetch("POST", "/", large), pages.fetch("POST", "/", large)] == [True, True]
    broken: list[Message] = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]
    unread = iter(broken)

    async def receive() -> Message:
        return next(unread)

    async def read(watched: Callable[[], Any]) -> list[Message]:
        return [await watched(), await watched()]

    watched = pages.polls.watch("lab", request("POST"), receive, pages.note)
    before = pages.uses
    assert asyncio.run(read(watched)) == broken
    assert pages.uses == before


@pytest.mark.parametrize(
    ("target", "message", "is_persons"),
    [
        (b"/ws", "hello", True),
        (b"/ws", b"\x00\xff", True),
        (b"/ws", "ping", False),
        (b"/ws", "", False),
        (b"/ws", "2", True),
        (b"/socket.io/?EIO=4&transport=websocket", "2", False),
        (b"/socket.io/?EIO=4&transport=websocket", "3", False),
        (b"/socket.io/?EIO=4&transport=websocket", '42["run"]', True),
        (b"/terminals/websocket/1", '["stdin","x"]', True),
        (b"/terminals/websocket/1", '["set_size",24,80,600,900]', False),
        (b"/terminals/websocket/1", "[", True),
        (b"/terminals/websocket/1", b"\xff", True),
        (CHANNELS, '{"header":{"msg_type": "execute_request"}}', True),
        (CHANNELS, '{"header":{"msg_type":"comm_msg"}}', True),
        (CHANNELS, '{"header":{"msg_type":"comm_info_request"}}', False),
        (CHANNELS, b"\x00nothing known", True),
        (VS_CODE, b"\x09" + b"\0" * 12, False),
        (VS_CODE, b"\x01\0\0$acceptEditorPropertiesChanged\0\0[1]", True),
    ],
)
def test_what_a_message_tells_depends_on_who_is_spoken_to(
    target: bytes, message: str | bytes, is_persons: bool
) -> None:
    assert Conversation(target).is_persons(message) is is_persons


def test_a_window_of_vs_code_in_which_somebody_is_counts_until_it_says_that_they_have_left() -> None:
    window = Conversation(VS_CODE)
    assert not window.is_persons(b"\x09keep alive")
    assert window.is_persons(b"v$onDidChangeWindowActive\0\0\0\x06[true]\x01")
    assert window.is_persons(b"\x09keep alive")
    assert window.is_persons(b"v$onDidChangeWindowActive\0\0\0\x07[false]")
    assert not window.is_persons(b"\x09keep alive")
    assert not window.is_persons(b"$acceptEditorPropertiesChanged\0[a log that grows]")


def test_pages_can_be_left_out_of_what_counts() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.used("lab")
    clock.now += 60.0
    activity.used("lab", of_page=True)
    assert activity.last_used("lab") == clock.now
    assert activity.last_used("lab", of_pages=False) == clock.now - 60.0
