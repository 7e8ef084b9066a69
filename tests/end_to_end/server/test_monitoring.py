"""A real Prometheus reads a real server, its rules fire, and a real Alertmanager delivers what they say."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
import yaml
from real_pond import PATIENCE_S, REPOSITORY, Pond, until

from certificates import make_certificate
from millpond.client.sdk import Client
from own_address import free_port, own_address

PROGRAMS = ("prometheus", "prometheus-alertmanager")
ABSENT = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(ABSENT), reason=f"{', '.join(ABSENT)} not installed (apt install {' '.join(ABSENT)})"),
]
RULES = REPOSITORY / "deploy" / "prometheus" / "millpond.rules.yaml"
NONE: Mapping[str, str] = MappingProxyType({})
ROUTES = REPOSITORY / "deploy" / "prometheus" / "alertmanager.yaml"


class Receiver(BaseHTTPRequestHandler):
    """Where alerts are delivered to."""

    alerts: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.alerts.extend(alert | {"told": self.path[1:]} for alert in json.loads(body)["alerts"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *said: object) -> None:
        """Nothing."""


@pytest.fixture
def receiver() -> Iterator[str]:
    Receiver.alerts.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def watch(receiver: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a Prometheus that reads a server and tells an Alertmanager; returns its address."""
    with ExitStack() as started:
        yield lambda pond, **how: started.enter_context(prometheus_of(pond, receiver, tmp_path, **how))


@contextmanager
def prometheus_of(
    pond: Pond,
    receiver: str,
    tmp_path: Path,
    at_once: Collection[str],
    changed: Mapping[str, str] = NONE,
    expires: str = "30d",
) -> Iterator[str]:
    """It has a token of its own.

    Args:
        at_once: the alerts whose rules wait for nothing; others fire by mere load, as of a server that is slow, if at
            all after minutes.
        changed: what is written otherwise in its copy of the rules.
        expires: when its token does.
    """
    token = pond("token", "create", "prometheus", "--allow", "read-metrics", "--expires", expires).stdout.split()[-1]
    (tmp_path / "token").write_text(token)
    text = RULES.read_text()
    for of_rules, instead in changed.items():
        assert text.count(of_rules) == 1, f"{of_rules} is not in the rules"
        text = text.replace(of_rules, instead)
    rules = yaml.safe_load(text)
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if rule.get("alert") in at_once:
            rule.pop("for", None)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    certificate = tmp_path / "server.crt"
    listen = {name: f"{own_address()}:{free_port(own_address())}" for name in PROGRAMS}
    settings = {
        "prometheus": {
            "global": {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "200ms"},
            "rule_files": ["rules.yaml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [listen["prometheus-alertmanager"]]}]}]},
            "scrape_configs": [
                {
                    "job_name": "millpond",
                    "authorization": {"credentials_file": "token"},
                    "scheme": urllib.parse.urlsplit(address_of(pond)).scheme,
                    "tls_config": {"ca_file": str(certificate)} if certificate.exists() else {},
                    "static_configs": [{"targets": [urllib.parse.urlsplit(address_of(pond)).netloc]}],
                }
            ],
        },
        "prometheus-alertmanager": routes_to(receiver),
    }
    own = {
        "prometheus": ["--storage.tsdb.path=data"],
        "prometheus-alertmanager": ["--storage.path=alerts", "--cluster.listen-address="],
    }
    programs = []
    for name in PROGRAMS:
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(settings[name]))
        command = [name, f"--config.file={name}.yaml", f"--web.listen-address={listen[name]}", *own[name]]
        with (tmp_path / f"{name}.log").open("wb") as log:
            programs.append(subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log))
    try:
        yield f"http://{listen['prometheus']}"
    finally:
        for program in programs:
            program.kill()
            program.wait()


def address_of(pond: Pond) -> str:
    return str(json.loads((pond.state_dir / "server.json").read_text())["url"])


def routes_to(receiver: str) -> dict[str, Any]:
    """The routes of the example, at once; all goes to one receiver, under the name of who would hear it."""
    settings = yaml.safe_load(ROUTES.read_text())
    del settings["global"]
    for route in (settings["route"], *settings["route"]["routes"]):
        route["group_wait"] = "0s"
    for each in settings["receivers"]:
        name = each["name"]
        each.clear()
        each.update(name=name, webhook_configs=[{"url": f"{receiver}{name}"}])
    return settings


def ask(prometheus: str, question: str) -> list[Any]:
    """What a Prometheus answers; nothing while it is not up."""
    try:
        with urllib.request.urlopen(
            f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': question})}"
        ) as answer:
            return list(json.load(answer)["data"]["result"])
    except OSError:
        return []


def test_a_failed_server_is_told_to_the_receiver_of_alerts(
    running: Pond, watch: Callable[..., str], tmp_path: Path
) -> None:
    prometheus = watch(running, at_once={"MillpondDown"})
    until(lambda: ask(prometheus, "millpond:largest_free_block_gpus == 4"))
    assert ask(prometheus, "millpond:whole_free_gpus")[0]["value"][1] == "8"
    assert ask(prometheus, 'ALERTS{alertstate="firing"}') == []
    token = (tmp_path / "token").read_text()
    scraped = urllib.request.Request(f"{address_of(running)}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(scraped) as page:
        checked = subprocess.run(["promtool", "check", "metrics"], input=page.read(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
    running.kill_server()
    until(lambda: Receiver.alerts)
    (alert,) = Receiver.alerts
    assert (alert["labels"]["alertname"], alert["status"], alert["told"]) == ("MillpondDown", "firing", "on-call")
    assert "does not answer" in alert["annotations"]["summary"]


def test_a_card_that_is_gone_when_the_server_starts_again_is_told_to_the_receiver_of_alerts(
    pond: Pond, watch: Callable[..., str], tmp_path: Path
) -> None:
    """A tool of a vendor lists two cards, and one after the restart."""
    tool, table = tmp_path / "bin" / "hy-smi", tmp_path / "cards"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n[ $# -eq 0 ] && exec cat {table}\nexit 1\n")
    tool.chmod(0o755)
    pond.env["PATH"] = f"{tool.parent}:{pond.env['PATH']}"
    table.write_text("HCU Temp HCU%\n0 50.0C 0%\n1 48.0C 0%\n")
    done = pond("up", "--detach")
    assert done.returncode == 0, done.stderr
    assert pond("down").returncode == 0
    table.write_text("HCU Temp HCU%\n0 50.0C 0%\n")
    done = pond("up", "--detach")
    assert done.returncode == 0, done.stderr
    assert "has lost 1 of the cards that it had: 1 (hygon-" in done.stdout + done.stderr
    assert "its driver did not list it when the server started" in pond("nodes", "-o", "wide").stdout
    watch(pond, at_once={"MillpondCardFailed"})
    until(lambda: Receiver.alerts)
    (alert,) = Receiver.alerts
    assert (alert["labels"]["alertname"], alert["labels"]["device"]) == ("MillpondCardFailed", "1")
    assert (alert["status"], alert["told"]) == ("firing", "on-call")


SOONER = {
    "_below_guarantee_seconds > 1800": "_below_guarantee_seconds > 5",
    'state=~"running|suspended"}) > 0.1': 'state=~"running|suspended"}) > 0',
    "_cycle_seconds_bucket[10m])) > 1": "_cycle_seconds_bucket[10m])) > 0",
}
POOL = """
listen: {{certificate: {certificate}, key: {key}}}
queues: [{{name: default, guarantee: {{gpus: 48}}}}, {{name: vision, guarantee: {{gpus: 16}}}}]
"""
HOLDS = "{name: holds, array: 0-15, gpus: 3, cpus: 0.1, memory: 64MiB, preemptible: false, command: sleep 600}"
WAITS = "{queue: vision, gpus: 2, cpus: 0.1, memory: 64MiB, preemptible: false, command: sleep 600}"
IN_TROUBLE = {
    "MillpondCertificateEnds": "mail",
    "MillpondTokenEnds": "mail",
    "MillpondFragmented": "mail",
    "MillpondQueueBelowGuarantee": "mail",
    "MillpondSwapThrashing": "mail",
    "MillpondSchedulerSlow": "mail",
    "MillpondDegraded": "on-call",
}


def test_a_server_in_every_trouble_is_told_to_the_receivers_of_alerts(
    pond: Pond, watch: Callable[..., str], tmp_path: Path
) -> None:
    """Three cards of each machine are held, and a job of a guarantee asks for two of one; its store fails at last."""
    certificate, key = make_certificate(tmp_path, "127.0.0.1", days=10)
    texts = {"pool": POOL.format(certificate=certificate, key=key), "holds": HOLDS, "waits": WAITS}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    assert pond("up", "-d", "--fake-gpus", "16x4:V100-32GB", "--config", str(tmp_path / "pool.yaml")).returncode == 0
    holds = pond.printed("submit", "holds.yaml")
    until(lambda: pond.job(f"{holds}.15")["state"] == "running")
    prometheus = watch(pond, at_once=IN_TROUBLE, changed=SOONER, expires="5d")

    def firing() -> set[str]:
        return {each["metric"]["alertname"] for each in ask(prometheus, 'ALERTS{alertstate="firing"}')}

    def moves_until_that_is_told() -> bool:
        with Client(state_dir=pond.state_dir) as client:
            client.suspend(f"{holds}.0", swap=True)
            until(lambda: client.job(f"{holds}.0").suspension.startswith("swapped"))
            client.resume(f"{holds}.0")
            until(lambda: client.job(f"{holds}.0").state == "running")
        return "MillpondSwapThrashing" in firing()

    until(moves_until_that_is_told)
    assert pond("submit", "waits.yaml").returncode == 0
    until(lambda: firing() >= IN_TROUBLE.keys() - {"MillpondDegraded"})
    with sqlite3.connect(pond.state_dir / "millpond.db", isolation_level=None, timeout=PATIENCE_S) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert pond("run", "-d", "--", "true").returncode != 0
        until(lambda: "MillpondDegraded" in told())
        other.execute("ROLLBACK")
    assert told() == IN_TROUBLE


def told() -> dict[str, str]:
    """Which alerts have come, and to whom."""
    return {alert["labels"]["alertname"]: alert["told"] for alert in Receiver.alerts}
