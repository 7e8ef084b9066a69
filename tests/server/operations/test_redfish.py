"""A node is switched by the management controller of its machine: a pretended one answers over a real connection."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from certificates import make_certificate
from millpond.server.operations.power_hooks import PowerHooks
from millpond.specs.config.cluster import read_cluster
from millpond.specs.config.power_saving import PowerSaving

REFUSED = {"error": {"message": "general", "@Message.ExtendedInfo": [{"Message": "The user has\nno such right."}]}}


class Controller(ThreadingHTTPServer):
    """Answers as it is told to, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.answer: tuple[int, bytes] = (204, b"")
        self.state = ""
        self.asks = threading.Event()
        self.answers = threading.Event()
        self.answers.set()


class _Handler(BaseHTTPRequestHandler):
    server: Controller

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.server.asked.append((self.path, login, body))
        self.server.asks.set()
        self.server.answers.wait(60)
        self._answer(*self.server.answer)

    def do_GET(self) -> None:
        self._answer(200, json.dumps({"PowerState": self.server.state}).encode())

    def _answer(self, code: int, said: bytes) -> None:
        self.send_response(code)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Nothing: a test has no log."""


@pytest.fixture
def controller() -> Iterator[Controller]:
    server = Controller()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.answers.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def saving(controller: Controller, tmp_path: Path) -> PowerSaving:
    password = tmp_path / "bmc"
    password.write_text("pa:ss\n")
    system = f"http://127.0.0.1:{controller.server_port}/redfish/v1/Systems/$NODE/"
    redfish = f"{{system: '{system}', user: pond, password_file: {password}}}"
    file = f"kubernetes: {{namespace: m}}\npools: [{{name: gold, save_energy: {{redfish: {redfish}, within: 1s}}}}]\n"
    return read_cluster(file).savings["gold"]


def test_a_node_is_told_to_shut_down_and_to_be_on(controller: Controller, saving: PowerSaving) -> None:
    hooks = PowerHooks()
    assert hooks.switch(saving.off, "n1") == hooks.switch(saving.on, "n2") == ""
    action = "Actions/ComputerSystem.Reset"
    assert controller.asked == [
        (f"/redfish/v1/Systems/n1/{action}", "pond:pa:ss", {"ResetType": "GracefulShutdown"}),
        (f"/redfish/v1/Systems/n2/{action}", "pond:pa:ss", {"ResetType": "On"}),
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((403, json.dumps(REFUSED).encode()), " answered 403: The user has no such right."),
        ((400, b'{"error": {"message": "it is on"}}'), " answered 400: it is on"),
        ((500, b'{"error": []}'), " answered 500"),
        ((503, b"<html>"), " answered 503"),
        ((307, b""), " answered 307"),
    ],
)
def test_what_a_controller_refuses_is_told_in_its_words(
    controller: Controller, saving: PowerSaving, answer: tuple[int, bytes], said: str
) -> None:
    controller.answer = answer
    assert PowerHooks().switch(saving.on, "n1").endswith(f"/redfish/v1/Systems/n1{said}")


def test_a_controller_that_says_nothing_and_a_password_that_cannot_be_read_are_told(
    controller: Controller, saving: PowerSaving, tmp_path: Path
) -> None:
    controller.answers.clear()
    assert PowerHooks().switch(saving.on, "n1").endswith("/n1 does not answer within 1 s")
    (tmp_path / "bmc").unlink()
    assert "bmc cannot be read" in PowerHooks().switch(saving.on, "n1")
    assert len(controller.asked) == 1


@pytest.mark.parametrize(("state", "went_well"), [("On", True), ("PoweringOn", True), ("Off", False)])
def test_a_machine_that_is_on_already_has_been_switched_on_though_its_controller_refuses_that(
    controller: Controller, saving: PowerSaving, state: str, went_well: bool
) -> None:
    controller.answer, controller.state = (409, b'{"error": {"message": "already on"}}'), state
    assert (PowerHooks().switch(saving.on, "n1") == "") is went_well


def test_a_server_that_ends_waits_for_no_controller(controller: Controller, saving: PowerSaving) -> None:
    controller.answers.clear()
    hooks = PowerHooks()
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(hooks.switch, replace(saving.on, within_s=600.0), "n1")
        assert controller.asks.wait(60)
        hooks.close()
        assert ended.result(60) == "the server ends"


def test_a_certificate_that_its_controller_signed_itself_is_told_and_can_be_taken(
    controller: Controller, saving: PowerSaving, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_certificate(tmp_path / "tls", "127.0.0.1"))
    controller.socket = context.wrap_socket(controller.socket, server_side=True)
    assert saving.on.redfish is not None
    reset = replace(saving.on.redfish, system=saving.on.redfish.system.replace("http:", "https:"))
    said = PowerHooks().switch(replace(saving.on, redfish=reset), "n1")
    assert said == f"the certificate of {reset.system_of('n1')} is not trusted (self-signed certificate)"
    assert PowerHooks().switch(replace(saving.on, redfish=replace(reset, verify=False)), "n1") == ""
