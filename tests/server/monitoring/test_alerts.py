"""The rules and the dashboards of ``deploy/`` ask for what the server tells, and alerts come when they should."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from api_world import Api
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from sqlalchemy.exc import OperationalError

from job_infos import job_info
from millpond.model.events import DeviceHealthChanged, NodeJoined, QueueChanged
from millpond.model.hardware.devices import DeviceHealth
from millpond.model.hardware.nodes import Node
from millpond.model.hardware.telemetry import DeviceSample
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Queue
from millpond.node.host.machine import Machine
from millpond.node.task.records import TaskId
from millpond.server.monitoring.telemetry.sampling import Telemetry
from millpond.server.monitoring.telemetry.slices import SliceKey, SliceUse
from millpond.server.views.prometheus import metrics_page
from millpond.specs.api.pool.nodes import SpareInfo
from millpond.specs.api.services import ScalingInfo

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "millpond.rules.yaml"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
NAME = re.compile(r"\bmillpond[_:][a-z_:]+")
NEEDS_A_CERTIFICATE = {"millpond_certificate_end_timestamp_seconds"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def targets(dashboards: Sequence[Path] = DASHBOARDS) -> Iterator[dict[str, str]]:
    """What the panels of dashboards ask for, with the server ``one``, all its nodes and all cards chosen."""
    chosen = {"$server": "one", "$node": ".*", "$device": ".*"}
    for dashboard in dashboards:
        for panel in json.loads(dashboard.read_text())["panels"]:
            for target in panel["targets"]:
                yield target | {"expr": re.sub(r"\$\w+", lambda found: chosen[found[0]], target["expr"])}


def full_page(api: Api) -> str:
    """The figures of a server that has something of everything but a certificate."""
    api.loop.notify([QueueChanged(0.0, Queue("vision", guarantee=Amount(1000), limit=Amount(3000)))])
    api.loop.notify([QueueChanged(0.0, Queue("speech", guarantee=Amount(3000)))])
    api.settled()
    shared = api.job(api.submit(gpus={"cards": 1, "compute": "25%", "memory": "4GiB"}).id)
    grant = shared.tasks[0].devices[0]
    ended = api.submit(gpus=1, queue="vision").id
    api.job(ended)
    api.engine.finish(TaskId(ended, 1, 0))
    api.job(ended)
    left = api.submit(gpus=1).id
    api.job(left)
    assert api.client.post(f"/api/v1/jobs/{left}/suspend").status_code == 202
    assert api.job(api.submit(gpus=2, queue="vision").id).state == "running"
    api.submit(gpus=4)
    service = api.submit(kind="service", gpus=0, serve={"scale": {"open_requests": 1}}).id
    machines = api.service.machines
    sample = DeviceSample(grant.uuid, 500, 1_024, 32_768, 250.0, 300.0, 60, 1_000, sm_milli=1, tensor_milli=1)
    vendor: Any = SimpleNamespace(name="fake", title="", sample_every_s=1.0, sample=lambda: [sample])
    machines.telemetry = Telemetry(Machine(api.world.nodes, {"fake": vendor}), time.time)
    machines.telemetry.look(vendor)
    machines.slices.latest = {SliceKey(shared.id, 1, 0, grant.uuid): SliceUse(None, 200, 512)}
    machines.idle_cards.since = {grant.uuid: time.time() - 2 * 3_600}
    machines.spares = lambda: [SpareInfo(pool="default", spare=2, cover=0.98, coverage=0.9, skill=0.1, tested_days=7)]
    scaling = ScalingInfo(at=0.0, wanted=3, why="", fewest=1, most=4, ahead_s=60.0, forecast=1)
    api.service.services.scaling = {service: scaling}
    made = api.client.post("/api/v1/tokens", json={"name": "p", "verbs": ["read-metrics"], "lifetime_s": 86_400})
    assert made.status_code == 201, made.text
    report_health(api, "n1-3", *(DeviceHealth.FAULTY, DeviceHealth.OK) * 2)
    assert api.client.post("/api/v1/nodes/n1/close", json={}).status_code == 200
    api.submit(gpus=1, queue="speech")
    headers = {"Authorization": f"Bearer {made.json()['secret']}"}
    assert api.client.get("/metrics", headers=headers).status_code == 200
    return page_of(api)


def report_health(api: Api, card: str, *states: DeviceHealth) -> None:
    """What is seen of a card, one after the other."""
    for health in states:
        api.loop.notify([DeviceHealthChanged(0.0, "n1", card, health, "it fell off the bus")])
        api.settled()


def samples_of(page: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(page):
        yield from family.samples


def test_the_example_of_who_hears_of_alerts_is_one_of_alertmanager() -> None:
    if shutil.which("amtool") is None:
        pytest.skip("amtool is not installed (apt install prometheus-alertmanager)")
    checked = subprocess.run(["amtool", "check-config", DEPLOY / "prometheus" / "alertmanager.yaml"],
                             capture_output=True, text=True, check=False)  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def test_every_figure_that_is_asked_for_is_told_by_the_server_and_by_the_guide(api: Api) -> None:
    told = {sample.name for sample in samples_of(full_page(api))} | NEEDS_A_CERTIFICATE
    records = {rule["record"] for rule in rules() if "record" in rule}
    questions = [rule["expr"] for rule in rules()] + [target["expr"] for target in targets()]
    questions += [json.dumps(json.loads(dashboard.read_text())["templating"]) for dashboard in DASHBOARDS]
    asked = {name for question in questions for name in NAME.findall(question)} - records
    assert asked - told == set()
    guide = (DEPLOY.parent / "docs" / "operating.md").read_text()
    kinds, parts = "millpond_(device|slice|node|pool|queue)_", "_(total|bucket)$"
    assert [name for name in asked if re.sub(parts, "", re.sub(kinds, "", name)) not in guide] == []


@pytest.mark.long
def test_every_panel_of_the_dashboards_shows_something_of_a_server_that_has_everything(
    api: Api, tmp_path: Path
) -> None:
    begin, asked = page_of(api), list(targets())
    questions = [(target["expr"], "65m") for target in asked]
    found = values_at(tmp_path, questions, exported(begin, full_page(api)))
    assert [question for question, shown in zip(questions, found, strict=True) if not shown] == []
    for target, shown in zip(asked, found, strict=True):
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert all(labels <= each.keys() for each in shown), f"{target} names a label that is not there"


@pytest.mark.long
def test_troubles_of_cards_nodes_and_services_are_told_of_the_figures_of_a_server_that_has_them(
    api: Api, tmp_path: Path
) -> None:
    api.loop.notify([NodeJoined(0.0, Node("n2", 1_000, 1_024, pool="spare", schedulable=False, is_silent=True))])
    full_page(api)
    report_health(api, "n1-2", DeviceHealth.FAULTY)
    page = page_of(api)
    series = {name: values.replace("x60", "x400") for name, values in exported(page, page).items()}
    (found,) = values_at(tmp_path, [('ALERTS{alertstate="firing"}', "400m")], series)
    assert {labels["alertname"] for labels in found} >= {
        "MillpondCardClosed",
        "MillpondCardFailed",
        "MillpondCardsHeldIdle",
        "MillpondForecastTooLow",
        "MillpondNodesSilent",
        "MillpondReplicasMissing",
    }


@pytest.mark.long
def test_what_two_servers_tell_one_prometheus_is_kept_apart(api: Api, tmp_path: Path) -> None:
    of_one = exported(page_of(api), full_page(api))
    of_other = {name.replace('instance="one"', 'instance="two"'): values for name, values in of_one.items()}
    records = [(rule["record"], "65m") for rule in rules() if "record" in rule]
    for each in values_at(tmp_path, records, of_one | of_other):
        assert {labels["instance"] for labels in each} == {"one", "two"}
    pool = [(target["expr"], "65m") for target in targets([DEPLOY / "grafana" / "millpond.json"])]
    shown = values_at(tmp_path, pool, of_other)
    assert [question for question, found in zip(pool, shown, strict=True) if found] == [], "another server is chosen"


def firing(tmp_path: Path, alert: str, by: str, at: str, series: dict[str, str]) -> set[str]:
    """For which values of a label an alert fires after a time.

    Args:
        series: figures as promtool writes them down, one a minute.
    """
    (found,) = firings(tmp_path, alert, by, series, at)
    return found


def firings(tmp_path: Path, alert: str, by: str, series: dict[str, str], *times: str) -> list[set[str]]:
    """The same after each of several times, by one start of promtool."""
    asked = f'count by ({by}) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
    found = values_at(tmp_path, [(asked, at) for at in times], series)
    return [{labels[by] for labels in each} for each in found]


def values_at(tmp_path: Path, questions: list[tuple[str, str]], series: dict[str, str]) -> list[list[dict[str, str]]]:
    """The labels of what each question finds after its time."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt install prometheus)")
    never = [{"labels": "{}", "value": -1}]  # so that it says what it finds instead
    played = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": each, "eval_time": at, "exp_samples": never} for each, at in questions],
    }
    file = tmp_path / "played.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [played]}))
    said = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False).stderr
    found = re.findall(r"\bgot:(.*(?:\n(?! *expr:).*)*)", said)
    assert len(found) == len(questions), said
    sample = r"({.*?}) (?:[-+]?\d\S*|NaN|[-+]Inf)"
    return [[dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in re.findall(sample, each)] for each in found]


@pytest.mark.long
def test_a_server_that_does_not_answer_and_an_agent_that_is_away_for_long_are_told(tmp_path: Path) -> None:
    series = {
        'up{job="millpond",instance="server"}': "1x5 0x20",
        'up{job="millpond-agents",instance="restarts"}': "1x5 0x3 1x20",
        'up{job="millpond-agents",instance="away"}': "1x5 0x20",
        'up{job="millpond-agents",instance="silent",node="n1"}': "1x5 0x20",
        'up{job="millpond-agents",instance="off",node="n2"}': "1x5 0x20",
        'millpond_node_schedulable{node="n1",pool="p"}': "1x25",
        'millpond_node_schedulable{node="n2",pool="p"}': "1x4 0x21",
        'up{job="node",instance="of-others"}': "0x30",
    }
    assert firing(tmp_path, "MillpondDown", "instance", "9m", series) == {"server"}
    assert firings(tmp_path, "MillpondAgentDown", "instance", series, "9m", "12m") == [set(), {"away", "silent"}]


@pytest.mark.long
def test_nodes_that_are_silent_or_lost_are_told_and_those_that_a_server_in_trouble_does_not_tell_of_are_not(
    tmp_path: Path,
) -> None:
    series = {
        'millpond_silent_nodes{pool="quiet"}': "0x90 3x60",
        'millpond_silent_nodes{pool="restarts"}': "0x90 3x3 0x60",
        'millpond_queues{instance="one"}': "2x150",
        'millpond_node_gpus{instance="one",node="lost",pool="p"}': "8x90 _x60",
        'millpond_node_gpus{instance="one",node="back",pool="p"}': "8x90 _x15 8x45",
        'millpond_node_gpus{instance="one",node="without-cards",pool="p"}': "0x90 _x60",
        'millpond_node_gpus{instance="one",node="there",pool="p"}': "8x150",
        'millpond_queues{instance="degraded"}': "2x90 0x60",
        'millpond_node_gpus{instance="degraded",node="untold",pool="p"}': "8x90 _x60",
        'millpond_queues{instance="down"}': "2x90 _x60",
        'millpond_node_gpus{instance="down",node="untold",pool="p"}': "8x90 _x60",
    }
    silent = firings(tmp_path, "MillpondNodesSilent", "pool", series, "90m", "100m")
    assert silent == [set(), {"quiet"}]
    lost = firings(tmp_path, "MillpondNodeLost", "node", series, "90m", "104m", "140m")
    assert lost == [set(), {"lost", "back"}, {"lost"}]


CARD = 'node="{}",device="{}",model="A100",fake="false"'


def test_a_card_that_fails_is_told_after_a_minute(tmp_path: Path) -> None:
    series = {
        f"millpond_device_healthy{{{CARD.format('n1', 0)}}}": "1x5 0x10",
        f"millpond_device_healthy{{{CARD.format('n1', 1)}}}": "1x15",
    }
    assert firings(tmp_path, "MillpondCardFailed", "device", series, "5m", "9m") == [set(), {"0"}]


@pytest.mark.long
def test_a_machine_that_reports_fewer_cards_than_it_did_is_told_until_they_are_back(tmp_path: Path) -> None:
    series = {
        'millpond_node_gpus{node="lost",pool="default"}': "8x90 7x60",
        'millpond_node_gpus{node="restarted",pool="default"}': "8x90 0x10 8x50",
        'millpond_node_gpus{node="grew",pool="default"}': "8x90 16x60",
        'millpond_node_gpus{node="mended",pool="default"}': "8x90 7x30 8x30",
    }
    assert firings(tmp_path, "MillpondCardsMissing", "node", series, "100m", "115m", "140m") == [
        set(),
        {"lost", "mended"},
        {"lost"},
    ]


@pytest.mark.long
def test_cards_that_others_have_for_hours_are_told_and_are_none_that_have_failed(api: Api, tmp_path: Path) -> None:
    report_health(api, "n1-3", DeviceHealth.BUSY_ELSEWHERE)
    page = page_of(api)
    series = {name: values.replace("x60", "x400") for name, values in exported(page, page).items()}
    assert firing(tmp_path, "MillpondCardFailed", "device", "390m", series) == set()
    assert firing(tmp_path, "MillpondCardsElsewhere", "node", "390m", series) == {"n1"}


@pytest.mark.long
def test_cards_that_are_held_and_do_nothing_are_counted_by_machine(tmp_path: Path) -> None:
    series = {
        f"millpond_device_held_idle_seconds{{instance='{server}',{CARD.format(node, 0)}}}": seconds
        for server in ("one", "two")
        for node, seconds in (("idle", "600+60x120"), ("pauses", "600+60x40 _x5 600+60x75"))
    }
    alert = "MillpondCardsHeldIdle"
    assert firings(tmp_path, alert, "node", series, "60m", "100m") == [set(), {"idle"}]
    assert firing(tmp_path, alert, "instance", "100m", series) == {"one", "two"}, "each server has its own"


@pytest.mark.long
def test_a_hot_card_is_told_and_one_that_cools_down_in_time_is_not(tmp_path: Path) -> None:
    series = {
        f"millpond_device_temperature_celsius{{{CARD.format('n1', 0)}}}": "80+1x30",
        f"millpond_device_temperature_celsius{{{CARD.format('n1', 1)}}}": "90x3 _x30",
    }
    assert firings(tmp_path, "MillpondCardHot", "device", series, "12m", "16m") == [set(), {"0"}]


@pytest.mark.long
def test_a_queue_that_waits_below_its_guarantee_for_half_an_hour_is_told(tmp_path: Path) -> None:
    series = {'millpond_queue_below_guarantee_seconds{queue="below"}': "0+60x60"}
    assert firings(tmp_path, "MillpondQueueBelowGuarantee", "queue", series, "30m", "40m") == [set(), {"below"}]


@pytest.mark.long
def test_free_cards_in_small_pieces_are_told_while_jobs_wait(tmp_path: Path) -> None:
    def pool(waiting: int, closed: int) -> dict[str, str]:
        series = {'millpond_jobs{instance="one",queue="q",kind="train",state="queued"}': f"{waiting}x90"}
        for node in range(10):
            free = 2 if node >= closed else 0
            series[f'millpond_node_whole_free_gpus{{instance="one",node="n{node}",pool="p"}}'] = f"{free}x90"
        series['millpond_jobs{instance="two",queue="q",kind="train",state="queued"}'] = "3x90"
        series['millpond_node_whole_free_gpus{instance="two",node="n0",pool="p"}'] = "8x90"
        return series

    assert firing(tmp_path, "MillpondFragmented", "alertname", "80m", pool(3, 0)) == {"MillpondFragmented"}
    assert firing(tmp_path, "MillpondFragmented", "alertname", "80m", pool(0, 0)) == set()
    assert firing(tmp_path, "MillpondFragmented", "alertname", "80m", pool(3, 5)) == set(), (
        "closed machines are not free"
    )


@pytest.mark.long
def test_jobs_that_spend_their_time_in_moving_are_told_by_their_queue_and_turns_of_a_minute_are_not(
    api: Api, tmp_path: Path
) -> None:
    queues = {"thrashes": 20.0, "turns": 0.03 * 60.0}
    api.loop.notify([QueueChanged(0.0, Queue(queue)) for queue in queues])
    api.settled()
    for queue in queues:
        for _ in range(2):
            api.submit(gpus=1, queue=queue)
    api.settled()
    pages = []
    for _ in range(2):
        for queue, switching_s in queues.items():
            for _ in range(60):  # in the hour between the pages
                api.service.instruments.suspended(job_info(queue=queue, switching_s=switching_s))
        pages.append(page_of(api))
    alert = "MillpondSwapThrashing"
    assert firings(tmp_path, alert, "queue", exported(*pages), "20m", "69m") == [set(), {"thrashes"}]


@pytest.mark.long
def test_a_server_that_takes_nothing_on_and_a_certificate_near_its_end_are_told(tmp_path: Path) -> None:
    series = {
        'millpond_server_degraded{instance="one"}': "0x10 1x10",
        'millpond_certificate_end_timestamp_seconds{instance="one"}': "1000000x200",
        'millpond_certificate_end_timestamp_seconds{instance="two"}': "9000000x200",
        'millpond_token_end_timestamp_seconds{instance="one"}': "500000x200",
        'millpond_token_end_timestamp_seconds{instance="two"}': "1000000x200",
    }
    assert firing(tmp_path, "MillpondDegraded", "instance", "15m", series) == {"one"}
    assert firing(tmp_path, "MillpondCertificateEnds", "instance", "90m", series) == {"one"}
    assert firing(tmp_path, "MillpondTokenEnds", "instance", "90m", series) == {"one"}


@pytest.mark.long
def test_services_that_lack_replicas_for_long_are_told_by_their_queue(tmp_path: Path) -> None:
    series = {}
    for queue, running in (("lacks", "2x60"), ("has", "3x60"), ("catches-up", "2x10 3x50")):
        series[f'millpond_queue_wanted_replicas{{queue="{queue}"}}'] = "3x60"
        series[f'millpond_queue_running_replicas{{queue="{queue}"}}'] = running
    assert firings(tmp_path, "MillpondReplicasMissing", "queue", series, "10m", "20m") == [set(), {"lacks"}]


@pytest.mark.long
def test_a_forecast_that_covers_less_than_it_should_is_told_by_its_pool(tmp_path: Path) -> None:
    series = {}
    for pool, met in (("low", 0.9), ("near", 0.95)):
        series[f'millpond_pool_forecast_met_ratio{{pool="{pool}"}}'] = f"{met}x400"
        series[f'millpond_pool_forecast_cover_ratio{{pool="{pool}"}}'] = "0.98x400"
    assert firings(tmp_path, "MillpondForecastTooLow", "pool", series, "5h", "6h30m") == [set(), {"low"}]


def exported(*pages: str) -> dict[str, str]:
    """What a server tells, as series of promtool: the first page in the first ten minutes, then an hour's way to the
    last, at an even pace."""
    first, last = (
        {sample.name + label_text(sample.labels | {"instance": "one"}): sample.value for sample in samples_of(page)}
        for page in pages
    )
    begins = {name: first.get(name, 0.0) for name in last}
    paces = {name: (value - begins[name]) / 60 for name, value in last.items()}
    return {name: f"{begins[name]:f}x10 {begins[name]:f}{paces[name]:+f}x60" for name in last}


def label_text(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


def page_of(api: Api) -> str:
    answer = api.client.get("/metrics")
    assert answer.status_code == 200
    return answer.text


@pytest.mark.long
def test_a_scheduler_whose_cycles_take_long_is_told_and_one_with_a_single_long_cycle_in_a_thousand_is_not(
    api: Api, tmp_path: Path
) -> None:
    counts = api.service.instruments
    begin = page_of(api)
    for number in range(1_000):
        counts.cycled(2.0 if number == 0 else 0.005)
    calm = page_of(api)
    for number in range(1_000):
        counts.cycled(2.0 if number % 50 == 0 else 0.005)
    alert = "MillpondSchedulerSlow"
    assert firing(tmp_path, alert, "instance", "69m", exported(begin, calm)) == set()
    slow = exported(calm, page_of(api))
    assert firing(tmp_path, alert, "instance", "69m", slow) == {"one"}
    assert firing(tmp_path, alert, "instance", "20m", slow) == set(), "not before it has been so for a while"


@pytest.mark.long
def test_a_server_that_answers_one_request_in_ten_with_an_error_of_its_own_is_told(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise OperationalError("SELECT", {}, sqlite3.DatabaseError("disk I/O error"))

    def ask(path: str, times: int) -> set[int]:
        return {api.client.get(path).status_code for _ in range(times)}

    begin = page_of(api)
    assert ask("/readyz", 19) == {200}
    assert ask("/api/v1/jobs/none", 19) == {404}
    well = page_of(api)
    with monkeypatch.context() as patched:
        patched.setattr(api.store, "latest_snapshot_seq", fails)
        assert ask("/readyz", 2) == {503}
    assert ask("/api/v1/jobs/none", 18) == {404}
    alert = "MillpondRequestsFail"
    assert firing(tmp_path, alert, "instance", "69m", exported(begin, well)) == set(), "4xx are the callers' errors"
    assert firing(tmp_path, alert, "instance", "69m", exported(well, page_of(api))) == {"one"}


@pytest.mark.long
def test_a_job_that_has_waited_for_more_than_a_day_is_told_by_its_queue_and_one_that_runs_for_as_long_is_not(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in ("vision", "speech"):
        api.loop.notify([QueueChanged(0.0, Queue(queue))])
    api.settled()
    assert api.job(api.submit(gpus=4, queue="speech").id).state == "running"
    waiting = api.submit(gpus=4, queue="vision").id
    assert api.job(waiting).state == "queued"
    alert, submitted_at = "MillpondQueueWaitsLong", api.job(waiting).submitted_at

    def after(hours: float) -> set[str]:
        monkeypatch.setattr(metrics_page.time, "time", lambda: submitted_at + hours * 3_600)
        page = page_of(api)
        return firing(tmp_path, alert, "queue", "60m", exported(page, page))

    assert after(23.0) == set()
    assert after(25.0) == {"vision"}


def test_promtool_finds_nothing_amiss_with_the_names_types_and_helps_that_the_server_exports(api: Api) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt install prometheus)")
    page = full_page(api)
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    broken = page.replace("TYPE millpond_jobs_ended_total counter", "TYPE millpond_jobs_ended_total gauge")
    found = subprocess.run(["promtool", "check", "metrics"], input=broken, capture_output=True, text=True, check=False)
    assert found.returncode != 0, "it looks at this page"
