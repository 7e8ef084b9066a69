"""Telling webhooks: what is told to whom, how it is signed, and what happens when no program listens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import httpx2
import pytest
from notice_world import InlineExecutor, NoticeWorld, by_mail

from millpond.model.errors import NotFoundError, UnavailableError
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId
from millpond.server.notifications import delivery_worker
from millpond.server.notifications.delivery_worker import FIRST_PAUSE_S, LONGEST_PAUSE_S, MOST_TRIES, MakeExecutor
from millpond.server.notifications.webhook_carrier import NUMBER_HEADER, SIGNATURE_HEADER, SLOW_S, request_of
from millpond.specs.api.notifications import ChatRequest, Topic
from millpond.specs.config.notifications import NotificationRules
from millpond.specs.config.webhooks import Webhook

PATIENCE_S = 20.0
ENDS = ("job.succeeded", "job.failed", "job.cancelled")


class Receiver:
    """Somebody to be told; answers as it is set to."""

    def __init__(self) -> None:
        self.status = 200
        self.fails = False
        self.silences: dict[str, httpx2.TransportError] = {}
        self.delays: dict[str, Callable[[], object]] = {}
        self.busy = ""
        self.headers: dict[str, str] = {}
        self.body: object = {}
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        self.delays.get(request.url.host, lambda: None)()
        if self.fails:
            raise httpx2.ConnectError("no program listens")
        if request.url.host == self.busy:
            return httpx2.Response(429, headers=self.headers)
        if silence := self.silences.get(request.url.host):
            raise silence
        said = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return httpx2.Response(self.status, content=iter([said]))

    @property
    def bodies(self) -> list[dict]:
        return [json.loads(request.content) for request in self.requests]


class Bench(NoticeWorld):
    """A server without HTTP, and one receiver."""

    def __init__(self, directory: Path, make_executor: MakeExecutor = InlineExecutor) -> None:
        self.receiver = Receiver()
        super().__init__(directory, httpx2.MockTransport(self.receiver), make_executor)

    def hook(self, on: tuple[str, ...] = ENDS, **settings: object) -> None:
        self.hooks["team"] = Webhook("team", "http://receiver/told", on, **settings)  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_receiver_is_told_of_an_end_once(bench: Bench) -> None:
    bench.hook()
    bench.run()
    bench.deliver()
    bench.deliver()
    (told,) = bench.receiver.bodies
    assert (told["topic"], told["job"], told["user"], told["exit_code"]) == ("job.succeeded", "a", "ada", 0)
    assert told["text"] == "a of ada succeeded"
    assert bench.states() == ["delivered"]


def test_it_is_told_of_nothing_it_did_not_ask_for(bench: Bench) -> None:
    bench.hook(("job.started",))
    bench.run()
    bench.deliver()
    assert [told["topic"] for told in bench.receiver.bodies] == ["job.started"]
    bench.hook(queues=("vision",))
    bench.run("b")
    bench.deliver()
    assert len(bench.receiver.bodies) == 1


def test_a_failure_says_what_the_exit_code_does_not(bench: Bench) -> None:
    bench.hook()
    bench.run(outcome=Outcome.USER_ERROR, code=3)
    bench.deliver()
    (told,) = bench.receiver.bodies
    assert told["text"] == "a of ada failed: exit code 3"


def test_a_signature_proves_body_and_time(bench: Bench) -> None:
    bench.hook(secret="quiet")
    bench.run()
    bench.deliver()
    (request,) = bench.receiver.requests
    stamp, _, digest = request.headers[SIGNATURE_HEADER].removeprefix("t=").partition(",v1=")
    assert int(stamp) == int(bench.server.clock.now)
    assert digest == hmac.new(b"quiet", f"{stamp}.".encode() + request.content, hashlib.sha256).hexdigest()
    assert b"quiet" not in request.content


def test_the_secret_of_a_signature_may_be_one_that_the_server_keeps(bench: Bench) -> None:
    bench.hook(secret_name="TRACKER")
    bench.run()
    bench.deliver()
    assert bench.receiver.requests == []
    (waiting,) = bench.server.store.deliveries.latest(1)
    assert "no secret 'TRACKER' of the server" in waiting.trouble
    bench.vault.put("server", "", "TRACKER", "quiet", "ada")
    bench.server.clock.now += 10.0
    bench.deliver()
    (request,) = bench.receiver.requests
    stamp, _, digest = request.headers[SIGNATURE_HEADER].removeprefix("t=").partition(",v1=")
    assert digest == hmac.new(b"quiet", f"{stamp}.".encode() + request.content, hashlib.sha256).hexdigest()


def test_chat_services_get_their_own_form(bench: Bench) -> None:
    bench.hook(format="slack")
    bench.run()
    bench.deliver()
    bench.hook(format="feishu", secret="quiet")
    bench.run("b")
    bench.deliver()
    slack, feishu = bench.receiver.bodies
    assert slack == {"text": "a of ada succeeded"}
    assert feishu["content"] == {"text": "b of ada succeeded"}
    key = f"{feishu['timestamp']}\nquiet".encode()
    assert feishu["sign"] == base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("slack", "&lt;!channel&gt; &amp; &lt;http://evil|log in&gt;"),
        ("feishu", "<!channel> & <http://evil|log in>".replace("<", "\N{FULLWIDTH LESS-THAN SIGN}")),
        ("wecom", "<!channel> & <http://evil|log in>"),
    ],
)
def test_words_of_a_user_call_nobody_and_hide_no_address(bench: Bench, form: str, text: str) -> None:
    hook = Webhook("team", "http://receiver/told", ENDS, format=form)
    body, _ = request_of(hook, {}, "<!channel> & <http://evil|log in>", 0)
    assert text in str(json.loads(body))


@pytest.mark.parametrize(("form", "most"), [("wecom", 2_048), ("feishu", 20_000)])
def test_a_chat_that_takes_short_messages_is_told_how_many_more_events_there_are(
    bench: Bench, form: str, most: int
) -> None:
    bench.rules = NotificationRules(None, ("http://receiver",))
    bench.told.settings.put_chat(ChatRequest(url="http://receiver/mine", format=form), bench.caller("ada"))
    bench.choose("ada", {"topic": "job.failed", "channels": ["chat"]})
    for number in range(50):
        bench.run(f"job-{number}-{'x' * 40}", outcome=Outcome.USER_ERROR, code=3, name="训" * 100)
    bench.settle_all()
    (request,) = bench.receiver.requests
    assert len(request.content) <= most + 100
    text = str(bench.receiver.bodies[0])
    named = text.count("failed: exit code 3")
    assert 1 < named < 50
    assert f"And {50 - named} more:" in text
    assert "/portal/notifications" in text


def test_wecom_gets_no_more_than_it_takes_and_its_refusal_is_seen_although_its_status_is_200(bench: Bench) -> None:
    bench.hook(format="wecom")
    bench.run()
    bench.receiver.body = {"errcode": 93000, "errmsg": "invalid webhook url"}
    bench.server.clock.now += bench.deliver()
    (refused,) = bench.server.store.deliveries.latest(1)
    assert (refused.state, refused.trouble) == ("waiting", "it answered errcode '93000'")
    bench.receiver.body = {"errcode": 0, "errmsg": "ok"}
    bench.deliver()
    assert bench.states() == ["delivered"]
    assert bench.receiver.bodies[-1] == {"msgtype": "text", "text": {"content": "a of ada succeeded"}}
    body, _ = request_of(bench.hooks["team"], {}, "长" * 5_000, 0)
    content = json.loads(body)["text"]["content"].encode()
    assert 2_040 < len(content) <= 2_048


@pytest.mark.parametrize("answer", [b"[" * 4_096, b"\xff\xfe", b"[]", b"ok", b""])
def test_a_message_whose_taking_is_confirmed_in_no_known_form_is_delivered_and_not_sent_again(
    bench: Bench, answer: bytes
) -> None:
    bench.hook(format="wecom")
    bench.run()
    bench.receiver.body = answer
    bench.deliver()
    assert bench.states() == ["delivered"]


def test_what_other_receivers_say_beside_the_status_is_not_read(bench: Bench) -> None:
    bench.hook()
    bench.run()
    bench.receiver.body = {"errcode": 1, "code": 1}
    bench.deliver()
    assert bench.states() == ["delivered"]


class Room(BaseHTTPRequestHandler):
    """A receiver at a port of this machine; it answers so many messages of each path with 503."""

    busy: ClassVar[dict[str, int]] = {}
    taken: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_busy = self.busy.get(self.path, 0) > 0
        if is_busy:
            self.busy[self.path] -= 1
        else:
            self.taken.append((self.path, body))
        self.send_response(503 if is_busy else 200)
        self.end_headers()
        self.wfile.write(b'{"errcode": 0, "code": 0}')

    def log_message(self, *said: object) -> None:
        """Nothing."""


def test_each_format_comes_over_the_network_after_its_receiver_was_busy(tmp_path: Path) -> None:
    Room.taken, Room.busy = [], {"/slack": 2, "/feishu": 1, "/wecom": 1, "/millpond": 1}
    world = NoticeWorld(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Room) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{server.server_port}"
        world.hooks = {form[1:]: Webhook(form[1:], at + form, ENDS, format=form[1:]) for form in Room.busy}
        world.run()
        for _ in range(3):
            world.clock.now += world.deliver()
        server.shutdown()
    text, taken = "a of ada succeeded", dict(Room.taken)
    assert len(Room.taken) == 4, "each once"
    assert taken["/slack"] == {"text": text}
    assert taken["/feishu"] == {"msg_type": "text", "content": {"text": text}}
    assert taken["/wecom"] == {"msgtype": "text", "text": {"content": text}}
    assert (taken["/millpond"]["topic"], taken["/millpond"]["text"]) == ("job.succeeded", text)
    assert world.states() == ["delivered"] * 4
    world.close()


@pytest.mark.parametrize("fault", ["refuses", "is away"])
def test_a_receiver_that_fails_is_tried_again_later_and_later(bench: Bench, fault: str) -> None:
    bench.hook()
    bench.receiver.status, bench.receiver.fails = 503, fault == "is away"
    bench.run()
    pauses = []
    for _ in range(3):
        pauses.append(bench.deliver())
        bench.server.clock.now += pauses[-1]
    assert pauses == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    bench.receiver.status, bench.receiver.fails = 200, False
    bench.deliver()
    assert bench.states() == ["delivered"]
    assert len({request.headers[NUMBER_HEADER] for request in bench.receiver.requests}) == 1


@pytest.mark.parametrize(
    ("asked", "pause_s"),
    [
        ("90", 90.0),
        ("1", FIRST_PAUSE_S),
        ("{date}", 200.0),
        ("999999999999", LONGEST_PAUSE_S),
        ("soon", FIRST_PAUSE_S),
        ("", FIRST_PAUSE_S),
    ],
)
def test_one_that_asks_for_a_pause_gets_nothing_more_until_it_is_over(bench: Bench, asked: str, pause_s: float) -> None:
    bench.hook()
    bench.hooks["other"] = replace(bench.hooks["team"], name="other", url="http://other/told")
    for name in ("a", "b"):
        bench.run(name)
    date = format_datetime(datetime.fromtimestamp(bench.server.clock.now + 200.0, UTC), usegmt=True)
    bench.receiver.busy, bench.receiver.headers = "receiver", {"Retry-After": asked.format(date=date)}
    until = bench.server.clock.now + pause_s
    bench.deliver()
    bench.run("c")
    bench.deliver()
    assert {each.due_at for each in bench.store.deliveries.latest(10) if each.state == "waiting"} == {until}
    hosts = [request.url.host for request in bench.receiver.requests]
    assert (hosts.count("receiver"), hosts.count("other")) == (1, 3)
    assert sorted(each.tries for each in bench.store.deliveries.latest(10) if each.state == "waiting") == [0, 0, 1]
    bench.receiver.busy, bench.server.clock.now = "", until
    bench.deliver()
    assert bench.states() == ["delivered"] * 6


def test_a_receiver_that_failed_before_the_clock_was_set_back_is_tried_again(bench: Bench) -> None:
    bench.hook()
    bench.receiver.fails = True
    bench.run()
    bench.deliver()
    bench.receiver.fails = False
    bench.server.clock.now -= 86_400.0
    bench.deliver()
    assert bench.states() == ["delivered"]


def test_one_that_never_answers_is_given_up_and_stays_in_the_list(bench: Bench) -> None:
    bench.hook()
    bench.receiver.fails = True
    bench.run()
    for _ in range(MOST_TRIES + 5):
        bench.deliver()
        bench.server.clock.now += 3600.0
    assert len(bench.receiver.requests) == MOST_TRIES
    (delivery,) = bench.server.store.deliveries.latest(10)
    assert (delivery.state, delivery.trouble) == ("given up", "ConnectError: no program listens")


@pytest.mark.parametrize("silence", [httpx2.ReadTimeout("timed out"), httpx2.RemoteProtocolError("it was cut off")])
def test_one_that_is_silent_is_asked_once_however_much_is_due_for_it_and_holds_nobody_up(
    bench: Bench, silence: httpx2.TransportError
) -> None:
    bench.hook()
    bench.hooks["other"] = replace(bench.hooks["team"], name="other", url="http://other/told")
    bench.receiver.silences = {"receiver": silence}
    for name in ("a", "b", "c"):
        bench.run(name)
    assert bench.deliver() == FIRST_PAUSE_S
    hosts = [request.url.host for request in bench.receiver.requests]
    assert (hosts.count("receiver"), hosts.count("other")) == (1, 3)
    assert sorted(bench.states()) == ["delivered"] * 3 + ["waiting"] * 3
    bench.server.clock.now += FIRST_PAUSE_S
    bench.receiver.silences.clear()
    bench.deliver()
    assert bench.states() == ["delivered"] * 6


def test_receivers_that_fall_silent_at_once_keep_no_other_waiting(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ThreadPoolExecutor)
    others_told = threading.Event()
    for number in range(60):
        bench.hooks[f"stuck-{number}"] = Webhook(f"stuck-{number}", f"http://stuck-{number}/told", ENDS)
        bench.receiver.delays[f"stuck-{number}"] = lambda: others_told.wait(PATIENCE_S)
        bench.receiver.silences[f"stuck-{number}"] = httpx2.ReadTimeout("timed out")
    bench.hook()
    bench.receiver.delays["receiver"] = others_told.set
    bench.run("a")
    bench.deliver()
    assert others_told.wait(PATIENCE_S)
    bench.told.close()
    assert sorted(bench.states()) == ["delivered"] + ["waiting"] * 60
    bench.store.close()


@pytest.mark.parametrize("channel", ["webhook", "mail"])
def test_a_server_that_ends_waits_for_no_silent_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    monkeypatch.setattr(delivery_worker, "GRACE_S", 0.0)
    world = NoticeWorld(tmp_path, None, ThreadPoolExecutor)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        port = silent.getsockname()[1]
        if channel == "mail":
            world.mail_at(port)
            world.subscribe("ada", by_mail(Topic.SUCCEEDED))
        else:
            world.hooks["silent"] = Webhook("silent", f"http://127.0.0.1:{port}/told", ENDS)
        world.run("a")
        world.told.start()
        connection, _ = silent.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            if channel == "webhook":
                assert connection.recv(4)
            world.told.close()
    (delivery,) = world.store.deliveries.latest(1)
    assert (delivery.state, delivery.tries) == ("waiting", 0), "the next server tries at once"
    assert not {"mail", "webhooks"} & {thread.name for thread in threading.enumerate()}
    world.store.close()


def test_one_that_was_silent_is_tried_again_beside_the_others(tmp_path: Path) -> None:
    executors: dict[str, InlineExecutor] = {}
    bench = Bench(tmp_path, lambda calls, name: executors.setdefault(name, InlineExecutor(calls, name)))
    bench.hook()
    bench.hooks["stuck"] = replace(bench.hooks["team"], name="stuck", url="http://stuck/told")
    bench.receiver.silences["stuck"] = httpx2.ReadTimeout("timed out")
    bench.run("a")
    bench.deliver()
    bench.run("b")
    bench.deliver()
    assert (executors["webhooks"].calls, executors["slow-webhooks"].calls) == (3, 1)
    bench.receiver.silences.clear()
    bench.server.clock.now += 10 * FIRST_PAUSE_S
    bench.deliver()
    assert bench.states() == ["delivered"] * 4, "who answers again is told of all at once"
    bench.run("c")
    bench.deliver()
    assert (executors["webhooks"].calls, executors["slow-webhooks"].calls) == (5, 2)
    bench.close()


def test_one_that_answers_slowly_gets_one_message_at_a_time(bench: Bench) -> None:
    bench.hooks["slow"] = Webhook("slow", "http://slow/told", ENDS)

    def takes_long() -> None:
        bench.server.clock.now += SLOW_S

    bench.receiver.delays["slow"] = takes_long
    for name in ("a", "b", "c", "d"):
        bench.run(name)
    for number in (1, 2):
        assert bench.deliver() == 0.0
        assert len(bench.receiver.requests) == number
    bench.receiver.delays.clear()
    bench.deliver()
    assert bench.states() == ["delivered"] * 4, "one that answers in time again gets all at once"


def test_the_next_message_to_a_slow_one_waits_for_no_other_event(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ThreadPoolExecutor)
    bench.hooks["slow"] = Webhook("slow", "http://slow/told", ENDS)
    all_told = threading.Event()

    def takes_long() -> None:
        bench.server.clock.now += SLOW_S
        if len(bench.receiver.requests) == 3:
            all_told.set()

    bench.receiver.delays["slow"] = takes_long
    for name in ("a", "b", "c"):
        bench.run(name)
    bench.told.start()
    assert all_told.wait(PATIENCE_S)
    bench.close()


def test_a_store_that_fails_under_a_message_is_told_and_the_message_is_sent_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.hook()
    bench.run("a")
    with monkeypatch.context() as broken:
        broken.setattr(bench.store.deliveries, "tried", fails := Mock(side_effect=OSError("the disk is full")))
        bench.deliver()
        with pytest.raises(OSError, match="the disk is full"):
            bench.deliver()
    assert (fails.call_count, bench.states()) == (1, ["waiting"])
    bench.deliver()
    assert bench.states() == ["delivered"]


def test_what_was_not_told_waits_for_the_next_server(bench: Bench) -> None:
    bench.hook()
    bench.run()
    assert bench.receiver.requests == []
    bench.told = bench.new_notifications()
    bench.deliver()
    assert len(bench.receiver.requests) == 1


def test_one_that_is_no_longer_configured_is_not_told(bench: Bench) -> None:
    bench.hook()
    bench.run()
    bench.hooks.clear()
    bench.deliver()
    assert (bench.receiver.requests, bench.states()) == ([], ["given up"])


def test_a_redirect_is_not_followed_to_where_nobody_configured(bench: Bench) -> None:
    bench.hook()
    bench.receiver.status = 302
    bench.run()
    bench.deliver()
    assert len(bench.receiver.requests) == 1
    assert bench.states() == ["waiting"]


def test_a_message_for_trial_goes_the_way_of_all_others_and_says_what_it_is(bench: Bench) -> None:
    bench.hook(("job.failed",), queues=("vision",), secret="quiet")
    sent = bench.told.deliveries.try_webhook("team", bench.caller("ada"))
    assert (sent.hook, sent.state, sent.tries) == ("team", "waiting", 0)
    bench.deliver()
    (request,) = bench.receiver.requests
    assert SIGNATURE_HEADER in request.headers
    assert request.headers[NUMBER_HEADER] == str(sent.id)
    (told,) = bench.receiver.bodies
    assert (told["topic"], told["user"]) == ("trial", "ada")
    assert told["text"] == "a test message, sent by ada: nothing has happened"
    found = bench.told.deliveries.find(sent.id)
    assert (found.state, found.tries, found.trouble) == ("delivered", 1, "")


def test_a_message_for_trial_is_sent_once_and_what_waits_for_its_receiver_still_waits(bench: Bench) -> None:
    bench.hook()
    bench.receiver.fails = True
    bench.run()
    sent = bench.told.deliveries.try_webhook("team", bench.caller("ada"))
    bench.deliver()
    found = bench.told.deliveries.find(sent.id)
    assert (found.state, found.trouble) == ("given up", "ConnectError: no program listens")
    assert bench.states() == ["given up", "waiting"]
    bench.receiver.fails = False
    bench.server.clock.now += FIRST_PAUSE_S
    bench.deliver()
    assert bench.states() == ["given up", "delivered"]


def test_a_trial_that_a_receiver_does_not_answer_gives_up_nothing_but_itself(bench: Bench) -> None:
    bench.hook()
    bench.receiver.fails = True
    first = bench.told.deliveries.try_webhook("team", bench.caller("ada"))
    bench.run()
    bench.deliver()
    assert bench.told.deliveries.find(first.id).state == "given up"
    assert bench.states() == ["waiting", "given up"]


@pytest.mark.parametrize(
    ("hooks", "remedy"),
    [(["team", "room"], "there are team, room"), ([], "there are none; `pond webhooks add` adds one")],
)
def test_a_trial_to_a_receiver_that_is_not_configured_is_refused_with_those_that_are(
    bench: Bench, hooks: list[str], remedy: str
) -> None:
    bench.hooks.update((name, Webhook(name, "http://receiver/", ENDS)) for name in hooks)
    with pytest.raises(NotFoundError, match="no webhook 'other'") as refused:
        bench.told.deliveries.try_webhook("other", bench.caller("ada"))
    assert refused.value.remedy.startswith(remedy)
    assert bench.states() == []


def test_a_server_that_changes_nothing_sends_nothing_for_trial(bench: Bench) -> None:
    bench.hook()
    bench.read_only = UnavailableError("the state is another server's", "ask that one")
    with pytest.raises(UnavailableError, match="the state is another server's"):
        bench.told.deliveries.try_webhook("team", bench.caller("ada"))
    assert bench.states() == []


def test_a_failure_whose_place_is_kept_is_told_once_and_at_once(bench: Bench) -> None:
    bench.hook((*ENDS, "job.preempted"))
    bench.server.submit("a", keep="30m")
    bench.server.turn(2)
    bench.server.engine.keep(TaskId("a", 1, 0), until=2_800.0, exit_code=3)
    bench.server.turn(2)
    info = bench.server.loop.job_cache.get("a")
    assert info is not None
    assert (info.state, info.exit_code, info.kept_until, info.settled) == ("running", 3, 2_800.0, "failed")
    bench.server.engine.keep(TaskId("a", 1, 0), until=2_800.0, exit_code=3)  # as after a restart
    bench.server.loop.stop_job("a", "ada")
    bench.server.turn(3)
    assert bench.server.core.scheduler.jobs == {}
    bench.deliver()
    (told,) = bench.receiver.bodies
    assert (told["topic"], told["exit_code"]) == ("job.failed", 3)
    assert told["text"].startswith("a of ada failed: exit code 3; its place is kept until ")


def test_a_user_is_told_at_their_own_webhook_of_several_events_at_once(bench: Bench) -> None:
    bench.rules = NotificationRules(None, ("http://receiver",))
    bench.told.settings.put_chat(ChatRequest(url="http://receiver/mine", format="slack"), bench.caller("ada"))
    bench.choose("ada", {"topic": "job.failed", "channels": ["chat"]})
    for job in ("a", "b"):
        bench.run(job, outcome=Outcome.USER_ERROR, code=3)
    bench.settle_all()
    (request,) = bench.receiver.requests
    assert str(request.url) == "http://receiver/mine"
    text = bench.receiver.bodies[0]["text"]
    assert "a of ada failed: exit code 3\nhttps://pond.example.org/portal/jobs/a\n" in text
    assert "b of ada failed" in text
    bench.run("c", outcome=Outcome.USER_ERROR, code=3)
    bench.rules = NotificationRules(None, ("http://other",))
    bench.settle_all()
    assert len(bench.receiver.requests) == 1, "the configuration allows it no more"
    assert bench.states() == ["given up", "delivered", "delivered"]
