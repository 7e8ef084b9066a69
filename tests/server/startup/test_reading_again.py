"""The configuration is read again while the server runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millpond.model.events import Event, UsageHalfLifeChanged
from millpond.model.tenancy.tenants import USAGE_HALF_LIFE_S
from millpond.model.units import DAY_S
from millpond.server.startup import configuration
from millpond.server.startup.configuration import Current, reload
from millpond.specs.config.cluster import ClusterConfig, ClusterFile, load_cluster, read_cluster
from millpond.specs.config.pools import PoolFile
from millpond.specs.config.tasks import TasksFile

WITHIN_S = 30.0


def server() -> tuple[Any, Any, Any]:
    """A loop, queues and webhooks that take whatever they are told."""
    return (
        SimpleNamespace(notify=lambda _events: None),
        SimpleNamespace(apply_file=lambda _documents, _located: None),
        SimpleNamespace(take_file=lambda: None),
    )


def test_of_two_readings_the_one_that_was_asked_for_last_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, begun, go_on = tmp_path / "pond.yaml", threading.Event(), threading.Event()

    def slowly(path: Path) -> ClusterConfig:
        found = load_cluster(path)
        if not begun.is_set():
            begun.set()
            go_on.wait(WITHIN_S)
        return found

    monkeypatch.setattr(configuration, "load_cluster", slowly)
    current = Current(read_cluster("pools: [{name: before}]"))
    loop, queues, webhooks = server()
    readings = [threading.Thread(target=reload, args=(file, loop, current, queues, webhooks)) for _ in range(2)]
    file.write_text("pools: [{name: first}]")
    readings[0].start()
    assert begun.wait(WITHIN_S)
    file.write_text("pools: [{name: second}]")
    readings[1].start()
    readings[1].join(0.1)  # it would be done where it did not wait for the other
    go_on.set()
    for reading in readings:
        reading.join(WITHIN_S)
    assert [pool.name for pool in current.config.pools] == ["second"]


def test_what_waits_for_the_next_start_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    file, (loop, queues, webhooks) = tmp_path / "pond.yaml", server()
    started = "nodes: [{name: a, devices: 4, model: A100}]"
    current = Current(read_cluster(started))
    other = "nodes: [{name: a, devices: 2, model: A100}]"
    for text in (f"{other}\nssh: {{port: 2222}}", f"{other}\nssh: {{port: 2222}}", other, other, started):
        file.write_text(text)
        reload(file, loop, current, queues, webhooks)
    told = [record.getMessage().removeprefix(f"read {file} again") for record in caplog.records]
    assert told == [*["; nodes, ssh: from the next start on"] * 2, *["; nodes: from the next start on"] * 2, ""]


def test_another_half_life_of_usage_is_told_to_the_scheduler_once(tmp_path: Path) -> None:
    file, told = tmp_path / "pond.yaml", list[Event]()
    _loop, queues, webhooks = server()
    loop = cast(Any, SimpleNamespace(notify=told.extend))
    current = Current(read_cluster("dev: {}"))
    for text in ("usage_half_life: 1d", "usage_half_life: 1d", "dev: {}"):
        file.write_text(text)
        reload(file, loop, current, queues, webhooks)
    assert [each.half_life_s for each in told if isinstance(each, UsageHalfLifeChanged)] == [DAY_S, USAGE_HALF_LIFE_S]


@pytest.mark.parametrize(
    ("started", "text"),
    [
        ("pools: [{name: a}]", "pools: []"),
        ("pools: []", "prices: {currency: EUR}"),
        ("prices: {currency: EUR}", "pools: [{name: a, suspends: true}]\nnodes: []"),
    ],
)
def test_an_empty_list_of_pools_says_nothing_that_waits(started: str, text: str) -> None:
    current = Current(read_cluster(started))
    current.config = read_cluster(text)
    assert current.pending() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pools: [\n", "pond.yaml:2:1: not YAML"),
        ("", "it is empty; write at least one field"),
        ("queues: [{name: a, garantee: 4}]", "pond.yaml:1:20: queues.0.garantee: unknown field 'garantee'"),
    ],
)
def test_a_wrong_file_is_told_with_its_place_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    file, current = tmp_path / "pond.yaml", Current(read_cluster("pools: [{name: before}]"))
    file.write_text(text)
    reload(file, cast(Any, None), current, cast(Any, None), cast(Any, None))
    assert "the configuration stays as it was" in caplog.text
    assert said in caplog.text
    assert [pool.name for pool in current.config.pools] == ["before"]


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (os.mkfifo, "cannot read {} (it is no file)"),
        (Path.mkdir, "cannot read {} (Is a directory)"),
        (lambda file: file.symlink_to("/dev/zero"), "cannot read {} (it is no file)"),
        (lambda file: file.symlink_to(file), "cannot read {} (Too many levels of symbolic links)"),
        (lambda file: file.touch() or os.truncate(file, 2**40), "cannot read {} (it has 1048576 MiB)"),
    ],
    ids=["pipe", "folder", "device", "circle", "huge"],
)
def test_what_is_put_in_place_of_the_file_halts_no_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, put: Callable[[Path], object], said: str
) -> None:
    file, current = tmp_path / "pond.yaml", Current(read_cluster("pools: [{name: before}]"))
    put(file)
    reload(file, cast(Any, None), current, cast(Any, None), cast(Any, None))
    assert said.format(file) in caplog.text
    assert [pool.name for pool in current.config.pools] == ["before"]


def test_webhooks_of_the_file_take_the_place_of_those_that_were_added(tmp_path: Path) -> None:
    file, (loop, queues, _) = tmp_path / "pond.yaml", server()
    file.write_text("webhooks: [{name: room, url: 'https://chat.example.org/1'}]")
    current = Current(read_cluster("pools: []"))
    taken: list[list[str]] = []
    webhooks = SimpleNamespace(take_file=lambda: taken.append(list(current.webhooks())))
    reload(file, loop, current, queues, cast(Any, webhooks))
    assert taken == [["room"]]


@pytest.mark.parametrize(
    ("before", "after", "pending"),
    [
        ("tasks: {network: private}", "tasks: {network: host}", []),
        ("tasks: {network: private}", "tasks: {network: private, cards: own}", ["tasks.cards"]),
        ("pools: [{name: a}]", "pools: [{name: a, mig: {layouts: [[1g.10gb]]}}]", ["pools.mig"]),
        ("pools: [{name: a}]", "pools: [{name: a, suspends: true}]", []),
        ("kubernetes: {image: a}", "kubernetes: {image: b, namespace: jobs}", ["kubernetes.namespace"]),
        ("run_as: {users: server}", "run_as: {users: range}", ["run_as"]),
        ("dev: {idle_after: 2h}", "dev: {idle_after: 1h}", ["dev"]),
        ("swap_memory: 8GiB", "webhooks: [{name: a, url: 'https://chat.example.org'}]", ["swap_memory"]),
    ],
)
def test_a_setting_waits_for_the_next_start_or_counts_at_once(before: str, after: str, pending: list[str]) -> None:
    current = Current(read_cluster(before))
    assert current.pending() == []
    current.config = read_cluster(after)
    assert current.pending() == pending


def test_each_setting_that_waits_for_the_next_start_is_one_of_the_configuration() -> None:
    fields = set(ClusterFile.model_fields)
    assert {name.partition(".")[0] for name in configuration.AT_THE_NEXT_START} <= fields
    assert {"pools.mig", "tasks.cards"} <= set(configuration.AT_THE_NEXT_START)
    assert "mig" in PoolFile.model_fields
    assert "cards" in TasksFile.model_fields
