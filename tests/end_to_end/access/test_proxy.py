"""The reverse proxy: who gets through it, what reaches the program of a job, and what of it reaches the client."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys

import httpx2
import pytest
from real_pond import PATIENCE_S, Pond, until
from serving_site import PROGRAM, Site, connect, get
from websockets.exceptions import ConnectionClosed, InvalidStatus

from millpond.node.sandbox import namespaces

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(shared: Pond) -> Site:
    return Site(shared)


def test_the_program_sees_the_rest_of_the_path_as_it_was_written(site: Site) -> None:
    assert site.get("a%2Fb/c?x=%20y").json()["path"] == "/a%2Fb/c?x=%20y"


def test_the_platforms_credentials_never_reach_the_program(site: Site) -> None:
    seen = site.get("", Cookie="millpond_pass=a; own=1; millpond_session=b")
    assert site.token not in seen.text
    headers = dict(seen.json()["headers"])
    assert headers["authorization"] == f"Bearer {site.key}"
    assert headers["cookie"] == "own=1"


def test_the_program_is_told_who_calls_and_where_it_is_shown(site: Site) -> None:
    seen = site.seen(**{"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Host": "evil", "Connection": "X-Hop", "X-Hop": "1"})
    assert seen["x-forwarded-for"] == "127.0.0.1"
    assert seen["x-forwarded-host"] == seen["host"] == site.url.removeprefix("http://")
    assert (seen["x-forwarded-proto"], seen["x-forwarded-prefix"]) == ("http", f"/proxy/{site.job}")
    assert "x-hop" not in seen


def test_what_the_program_sets_stays_below_its_own_path(site: Site) -> None:
    answer = site.get("cookies")
    assert answer.headers["x-own"] == "yes"
    assert answer.headers.get_list("set-cookie") == [f"own=1; HttpOnly; Path=/proxy/{site.job}/"]
    assert "service-worker-allowed" not in answer.headers
    assert site.get("moved").headers["location"] == f"/proxy/{site.job}/elsewhere"


def test_a_browser_is_let_in_by_a_link_that_works_once_and_to_this_job_only(site: Site) -> None:
    browser = site.signed_in()
    (cookie,) = browser.cookies.jar
    assert (cookie.path, cookie.has_nonstandard_attr("HttpOnly")) == (f"/proxy/{site.job}/", True)
    assert browser.get(f"/proxy/{site.job}/").status_code == 200
    assert browser.get("/proxy/other/", headers={"Cookie": f"{cookie.name}={cookie.value}"}).status_code == 401
    assert browser.get("/api/v1/jobs").status_code == 401


def test_a_page_of_another_site_cannot_act_with_the_cookie(site: Site) -> None:
    browser = site.signed_in()
    assert browser.post(f"/proxy/{site.job}/", headers={"Origin": "http://evil.example"}).status_code == 401
    (cookie,) = browser.cookies.jar
    where = f"{site.url.replace('http', 'ws', 1)}/proxy/{site.job}/socket"
    header = {"Cookie": f"{cookie.name}={cookie.value}"}
    with pytest.raises(InvalidStatus, match="401"):
        connect(where, additional_headers=header, origin="http://evil.example")
    ours = {"origin": site.url, "subprotocols": ["talk"]}
    with connect(where, additional_headers=header, **ours) as socket:
        assert socket.recv() == f"Bearer {site.key}"


def test_nobody_gets_in_without_a_token_or_a_cookie(site: Site) -> None:
    assert site.get("", Authorization="Bearer wrong").status_code == 401
    page = get(f"{site.url}/proxy/{site.job}/", headers={"Accept": "text/html"})
    assert f"pond dev open {site.job}" in page.text
    with pytest.raises(InvalidStatus, match="401"):
        connect(f"{site.url.replace('http', 'ws', 1)}/proxy/{site.job}/socket")
    with pytest.raises(InvalidStatus, match="401"):
        connect(f"{site.url.replace('http', 'ws', 1)}/api/v1/jobs/{site.job}/exec")


def test_a_websocket_carries_text_bytes_large_messages_and_the_programs_close_code(site: Site) -> None:
    with site.socket(subprotocols=["talk"], max_size=None) as socket:
        assert socket.subprotocol == "talk"
        assert socket.recv() == f"Bearer {site.key}"
        for message in ("text", b"\x00\xff", "x" * 20_000_000):
            socket.send(message)
            assert socket.recv() == message
        socket.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "as you wish")


def test_an_open_websocket_is_closed_when_what_opened_it_is_void(site: Site) -> None:
    secret = site.pond.printed("token", "create", "brief")
    where = f"{site.url.replace('http', 'ws', 1)}/proxy/{site.job}/socket"
    bearer = {"Authorization": f"Bearer {secret}"}
    with connect(where, additional_headers=bearer, subprotocols=["talk"]) as talk:  # type: ignore[list-item]
        talk.recv()
        talk.send("hello")
        assert talk.recv() == "hello"
        assert site.pond("token", "revoke", secret.split("_")[1]).returncode == 0
        with pytest.raises(ConnectionClosed) as closed:
            talk.recv(timeout=PATIENCE_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


def test_a_silent_command_beside_a_task_ends_when_its_client_may_no_longer_be_there(site: Site) -> None:
    secret = site.pond.printed("token", "create", "brief")
    where = f"{site.url.replace('http', 'ws', 1)}/api/v1/jobs/{site.job}/exec"
    with connect(where, additional_headers={"Authorization": f"Bearer {secret}"}) as command:
        command.send(json.dumps({"argv": ["cat"]}))
        command.send(b"\x00hello")
        assert command.recv(timeout=PATIENCE_S) == b"\x01hello"
        assert site.pond("token", "revoke", secret.split("_")[1]).returncode == 0
        assert "has ended" in json.loads(command.recv(timeout=PATIENCE_S))["error"]
        with pytest.raises(ConnectionClosed):
            command.recv(timeout=PATIENCE_S)


def test_output_is_followed_no_longer_by_who_may_no_longer_read_it(site: Site) -> None:
    talking = site.submit("command: 'while :; do echo word; sleep 0.1; done'", kind="train")
    until(lambda: site.pond.output(talking))
    secret = site.pond.printed("token", "create", "brief")
    bearer = {"Authorization": f"Bearer {secret}"}
    address = f"{site.url}/api/v1/jobs/{talking}/logs?follow=true"
    with httpx2.stream("GET", address, headers=bearer, timeout=PATIENCE_S) as answer:
        lines = answer.iter_lines()
        assert "word" in json.loads(next(lines))["data"]
        assert site.pond("token", "revoke", secret.split("_")[1]).returncode == 0
        assert not any(json.loads(line)["job_over"] for line in lines)
    assert site.pond.job(talking)["state"] == "running"
    assert site.pond("stop", talking).returncode == 0


def test_a_program_that_breaks_off_or_takes_no_websocket_is_a_bad_gateway(site: Site) -> None:
    assert site.get("leave").status_code == 502
    with pytest.raises(InvalidStatus, match="502"):
        site.socket("no-websocket-here")


def test_a_job_that_is_not_there_or_serves_nothing_says_so(site: Site) -> None:
    assert site.get("", job="none-abcde").status_code == 404
    trained = site.submit("command: sleep 600", kind="train")
    assert site.get("", job=trained).status_code == 410
    assert site.pond("stop", trained).returncode == 0


def test_a_program_that_does_not_listen_yet_has_a_page_that_looks_again(site: Site) -> None:
    slow = site.submit("command: sleep 600")
    until(lambda: site.pond.job(slow)["state"] == "running")
    answer = site.get("", job=slow, Accept="text/html")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert re.search(rf"{slow} runs, and its program does not answer yet", answer.text, re.IGNORECASE)
    assert site.pond("stop", slow).returncode == 0


TAKES_A_PORT = "import socket, sys; print(socket.create_server(('127.0.0.1', int(sys.argv[1]))).accept()[0].recv(9))"


def test_a_port_that_another_job_took_gets_no_request_of_the_jobs(site: Site) -> None:
    slow = site.submit("command: sleep 600")
    until(lambda: site.pond.job(slow)["state"] == "running")
    port = site.pond.printed("exec", slow, "--", "printenv", "MILLPOND_PORT")
    thief = site.submit(f"command: [{sys.executable}, -c, {json.dumps(TAKES_A_PORT)}, '{port}']", kind="train")
    until(lambda: "not the job's own" in site.get("", job=slow).text)
    until(lambda: site.pond.job(thief)["state"] == "succeeded")
    assert site.pond("logs", thief).stdout == "b''\n"
    assert site.pond("stop", slow).returncode == 0


def test_a_job_that_waits_says_why(site: Site) -> None:
    blocker = site.submit("gpus: 4\ntasks: 2\ncommand: sleep 600", kind="train")
    waiting = site.submit("gpus: 4\ncommand: sleep 600")
    answer = site.get("", job=waiting)
    assert answer.status_code == 503
    assert "queued" in answer.json()["error"]["cause"]
    assert site.pond("stop", blocker, waiting).returncode == 0


def test_replicas_share_the_requests_and_one_that_dies_is_replaced(site: Site) -> None:
    program = site.pond.state_dir.parent / PROGRAM.name
    fields = f"tasks: 2\nserve: {{ready: /ready}}\nretries: 3\ncommand: [{sys.executable}, {program}]"
    service = site.submit(fields, kind="service")

    def who() -> set[str]:
        """Which replicas answer now, by their keys."""
        answers = [site.get("", job=service) for _ in range(4)]
        good = [answer for answer in answers if answer.status_code == 200]
        return {dict(answer.json()["headers"])["authorization"] for answer in good}

    seen: list[set[str]] = []

    def both_answer() -> bool:
        seen.append(who())
        return len(seen[-1]) == 2

    until(both_answer)
    before = seen[-1]
    assert site.get("die", job=service).status_code == 502
    until(lambda: both_answer() and seen[-1] != before)
    assert len(before & seen[-1]) == 1
    assert site.pond("stop", service).returncode == 0


@pytest.mark.skipif(namespaces.network_trouble() != "", reason="no private networks here")
def test_a_program_in_a_network_of_its_own_is_met_through_the_platform_alone(site: Site) -> None:
    command = f"[{sys.executable}, {site.pond.state_dir.parent / PROGRAM.name}]"
    job = site.submit(f"command: {command}\nserve: {{listen: private}}\n")
    until(lambda: site.get("", job).status_code == 200)
    assert site.get("a%2Fb?x", job).json()["path"] == "/a%2Fb?x"
    bearer = {"Authorization": f"Bearer {site.token}"}
    where = f"{site.url.replace('http', 'ws', 1)}/proxy/{job}/socket"
    with connect(where, additional_headers=bearer, subprotocols=["talk"]) as talk:  # type: ignore[list-item]
        talk.send("hello")
        assert talk.recv(timeout=PATIENCE_S)
    port = site.pond.printed("exec", job, "--", "sh", "-c", "echo $MILLPOND_PORT")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)), 5).close()
    asked = f'import socket; socket.create_connection(("127.0.0.1", {port}), 5); print("met")'
    assert site.pond("exec", job, "--", sys.executable, "-c", asked).stdout == "met\n"
    for ports, heard in (("0", b"200 OK"), ("0:1", b"")):
        forward = site.pond.start("forward", job, ports)
        assert forward.stderr is not None
        here = int(forward.stderr.readline().split()[1].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", here), timeout=PATIENCE_S) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert heard in connection.recv(4096)
        forward.send_signal(signal.SIGINT)
        told = forward.communicate(timeout=PATIENCE_S)[1]
        assert ("no program listens on port 1" in told) is (heard == b"")
    assert site.pond("stop", job).returncode == 0
