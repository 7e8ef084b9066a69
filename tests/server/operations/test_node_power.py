"""A server switches its nodes by hooks: real commands, an engine whose nodes leave and join, and what goes wrong."""

from __future__ import annotations

import os
import signal
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from api_world import Api

from millpond.model import events
from millpond.model.errors import UnavailableError
from millpond.model.events import NodeJoined, NodeLost
from millpond.model.hardware.node_power import PowerSavingRule
from millpond.server.monitoring.time_series.load_history import NODE_DEMAND, LoadHistory
from millpond.server.operations.node_power import NodePowerWorker
from millpond.server.operations.power_hooks import PowerHooks, send_magic_packet
from millpond.server.operations.spare_nodes import SpareNodes
from millpond.specs.config.power_saving import PowerHook, PowerSaving

RULE = PowerSavingRule(idle_s=60.0, spare=0, least_on_s=0.0, least_off_s=0.0, boot_s=240.0, longest_boot_s=600.0)
SAVING = PowerSaving(RULE, PowerHook("off"), PowerHook("on"))


class Switched:
    """A worker whose hooks are answered by the test."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.calls: list[tuple[str, str]] = []
        self.answer = ""
        self.released = Event()
        self.released.set()
        self.spares = SpareNodes(api.store.time_series)
        self.worker = self.begin()

    def begin(self, saving: PowerSaving = SAVING) -> NodePowerWorker:
        return NodePowerWorker(self.api.loop, lambda: {"default": saving}, self.spares, self.api.clock, self)

    def switch(self, hook: PowerHook, node: str) -> str:
        self.calls.append((hook.command, node))
        assert self.released.wait(60)
        return self.answer

    def close(self) -> None:
        """The answers come."""
        self.released.set()

    def look(self, after_s: float = 5.0) -> None:
        """A look, and all that hooks answered to it."""
        self.api.clock.now += after_s
        self.worker.look()
        for done in self.worker._running.values():
            if self.released.is_set():
                _wait(done)
        self.worker.look()

    def node(self) -> dict[str, str]:
        (node,) = self.api.client.get("/api/v1/nodes").json()["nodes"]
        return {"power": node["power"], "detail": node["power_detail"], "reason": node["unschedulable_reason"]}

    def leave(self) -> None:
        """The node's engine loses it."""
        (view,) = self.api.loop.query(lambda core: core.scheduler.node_views()).result(60)
        self.described = view.node
        self.api.loop.notify([NodeLost(self.api.clock.now, view.node.name)])

    def join(self) -> None:
        self.api.loop.notify([NodeJoined(self.api.clock.now, self.described)])


def _wait(done: Future[str]) -> None:
    done.exception(60)


@pytest.fixture
def switched(tmp_path: Path) -> Iterator[Switched]:
    api = Api(tmp_path / "state")
    made = Switched(api)
    yield made
    made.worker.close()
    api.close()


def test_an_idle_node_goes_off_and_a_job_wakes_it_and_starts_once_it_has_joined(switched: Switched) -> None:
    switched.look()
    switched.look(60.0)
    assert switched.node()["power"] == "off"
    switched.leave()
    job = switched.api.submit(gpus=1)
    assert switched.node()["reason"] == "off to save energy"  # known, though its engine has lost it
    switched.look()
    assert switched.calls == [("off", "n1"), ("on", "n1")]
    why = switched.api.client.get(f"/api/v1/jobs/{job.id}/why").json()
    assert (why["cause"], why["summary"]) == ("nodes-off", "it waits for node n1, which is booting, about 4 min")
    switched.join()
    assert switched.api.job(job.id).state == "running"
    assert switched.node()["power"] == "on"
    told = switched.api.client.get("/api/v1/nodes/n1/events").json()["events"]
    assert [event["text"] for event in told if event["what"] == "NodePowerChanged"] == [
        "power: draining (it is empty)", "power: off", f"power: booting ({job.id} waits for it)",
    ]  # fmt: skip


def test_a_node_that_is_off_and_does_not_come_back_is_forgotten_and_its_history_says_by_whom(
    switched: Switched,
) -> None:
    client = switched.api.client
    assert client.delete("/api/v1/nodes/n1").status_code == 409
    switched.look()
    switched.look(60.0)
    switched.leave()
    switched.api.settled()
    assert client.delete("/api/v1/nodes/n1").status_code == 204
    assert client.get("/api/v1/nodes").json()["nodes"] == []
    switched.look()
    assert switched.calls == [("off", "n1")]
    told = client.get("/api/v1/nodes/n1/events").json()["events"]
    assert told[-1]["text"] == "forgotten, as ada says that it does not come back"


@pytest.mark.usefixtures("saved_daily")
def test_an_idle_node_stays_on_where_demand_is_forecast_to_rise(switched: Switched) -> None:
    switched.worker = switched.begin(replace(SAVING, rule=replace(RULE, cover=0.98)))
    history, now = LoadHistory(switched.api.store.time_series, NODE_DEMAND), switched.api.clock.now
    for minute in range(4 * 1_440):
        history.note(now + minute * 60.0, {"default": minute % 15 < 5})
    history.save(now + 4 * 86_400.0)
    switched.look(4 * 86_400.0)
    switched.look(61.0)
    (spare,) = switched.spares.latest
    assert (spare.spare, spare.no_forecast) == (1, "")
    assert switched.node()["power"] == "on"
    switched.worker = switched.begin()
    switched.look()
    switched.look(61.0)
    assert switched.node()["power"] == "off"


def test_a_node_that_falls_silent_as_it_goes_down_has_not_joined_by_its_history(switched: Switched) -> None:
    switched.look()
    switched.look(60.0)
    (view,) = switched.api.loop.query(lambda core: core.scheduler.node_views()).result(60)
    silent = replace(view.node, schedulable=False, unschedulable_reason="not ready", is_silent=True)
    switched.api.loop.notify([NodeJoined(switched.api.clock.now, silent)])
    switched.api.settled()
    told = switched.api.client.get("/api/v1/nodes/n1/events").json()["events"]
    assert [event["text"] for event in told][-2:] == ["power: off", "silent"]


@pytest.mark.parametrize(("known", "power"), [("n2", "on"), ("n1", "off")])
def test_a_node_that_nothing_could_wake_is_not_switched_off(switched: Switched, known: str, power: str) -> None:
    switched.worker = switched.begin(replace(SAVING, on=PowerHook(mac_addresses={known: "52:54:00:12:34:56"})))
    switched.look()
    switched.look(60.0)
    assert switched.node()["power"] == power


def test_a_hook_that_fails_leaves_the_node_on_and_says_so(switched: Switched) -> None:
    switched.answer = "the command ended with 255: no route to host"
    switched.look()
    switched.look(60.0)
    assert switched.node() == {"power": "on", "detail": switched.answer, "reason": ""}
    assert switched.api.job(switched.api.submit(gpus=1).id).state == "running"


def test_a_node_that_does_not_go_down_stays_on_and_one_that_does_not_join_has_failed(switched: Switched) -> None:
    switched.look()
    switched.look(60.0)
    switched.look(601.0)
    assert switched.node()["detail"] == "it was switched off and did not go down"
    switched.look(901.0)
    assert switched.node()["power"] == "off"
    switched.leave()
    switched.api.submit(gpus=1)
    switched.look()
    switched.look(601.0)
    assert switched.node() == {
        "power": "failed",
        "detail": "it was switched on and did not join",
        "reason": "off after a failed boot, not tried again for about 15 min: it was switched on and did not join",
    }


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_node_that_is_gone_before_its_hook_ends_is_off_whatever_the_hook_says(
    switched: Switched, is_restarted: bool
) -> None:
    switched.answer = "the command was ended after 120 s"
    switched.released.clear()
    switched.look()
    switched.look(60.0)
    switched.leave()
    if is_restarted:
        switched.worker = switched.begin()
    switched.released.set()
    switched.look()
    switched.look()
    assert (switched.node()["power"], switched.calls) == ("off", [("off", "n1")])
    switched.api.submit(gpus=1)
    switched.look()
    assert switched.calls[1:] == [("on", "n1")]


def test_the_next_server_switches_again_what_it_finds_half_way(switched: Switched) -> None:
    switched.released.clear()
    switched.look()
    switched.look(60.0)
    assert switched.node()["power"] == "draining"
    switched.worker = switched.begin()
    switched.look()
    switched.released.set()
    switched.look()
    assert switched.calls == [("off", "n1"), ("off", "n1")]
    assert switched.node()["power"] == "off"


def test_what_a_hook_came_to_is_told_once_the_store_can_be_written_again(
    switched: Switched, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched.answer = "the command ended with 255: no route to host"
    switched.released.clear()
    switched.look()
    switched.look(60.0)
    switched.released.set()
    with monkeypatch.context() as full:
        full.setattr(switched.api.loop, "change_setting", lambda _event: refused_by_the_store())
        with pytest.raises(UnavailableError, match="disk full"):
            switched.look()
        assert switched.node()["power"] == "draining"
    switched.look()
    assert switched.node() == {"power": "on", "detail": switched.answer, "reason": ""}
    assert switched.calls == [("off", "n1")]


def test_a_node_is_switched_also_where_the_answer_to_its_closing_was_lost(
    switched: Switched, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched.answer = "the command ended with 255: no route to host"
    switched.look()
    switched.look(60.0)
    change_setting = switched.api.loop.change_setting

    def unanswered(event: Callable[[float], events.Event]) -> Future[None]:
        change_setting(event).result(60)
        return refused_by_the_store()

    switched.answer = ""
    with monkeypatch.context() as in_doubt:
        in_doubt.setattr(switched.api.loop, "change_setting", unanswered)
        with pytest.raises(UnavailableError, match="disk full"):
            switched.look(901.0)
    assert switched.node()["power"] == "draining"
    switched.look()
    assert (switched.node()["power"], switched.calls) == ("off", [("off", "n1"), ("off", "n1")])


def refused_by_the_store() -> Future[None]:
    answer: Future[None] = Future()
    answer.set_exception(UnavailableError("the store cannot be read or written (disk full)", "see the server's log"))
    return answer


def test_a_command_gets_the_name_is_ended_in_time_with_all_its_children_and_its_failure_is_told(tmp_path: Path) -> None:
    named = tmp_path / "named"
    assert PowerHooks().run_command(f'echo "$NODE" > {named}', "n 1; x", 60.0) == ""
    assert named.read_text() == "n 1; x\n"
    assert PowerHooks().run_command("echo no rights; exit 3", "n1", 60.0) == "the command ended with 3: no rights"
    assert PowerHooks().run_command("sleep 600 & sleep 600", "n1", 0.2) == "the command was ended after 0.2 s"
    assert PowerHooks().run_command("exec >&- 2>&-; sleep 600", "n1", 0.2) == "the command was ended after 0.2 s"


def test_a_child_that_left_the_commands_group_and_holds_its_output_keeps_no_server_from_its_end(tmp_path: Path) -> None:
    hooks = PowerHooks()
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(
            hooks.run_command, f"setsid sh -c 'echo $$ > {begun}; exec sleep 600' & sleep 600", "n1", 600.0
        )
        child = int(begun.read_text())
        hooks.close()
        assert ended.result(60) == "the server ends"
    os.kill(child, signal.SIGKILL)  # it lives


def test_of_what_a_command_says_only_the_end_is_kept() -> None:
    tracemalloc.start()
    said = PowerHooks().run_command("head -c 50000000 /dev/zero; echo no rights; exit 3", "n1", 60.0)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert said.endswith("no rights")
    assert most < 2**20


def test_a_server_that_ends_ends_its_hooks_and_begins_none(tmp_path: Path) -> None:
    hooks = PowerHooks()
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(hooks.run_command, f"echo > {begun}; sleep 600 & sleep 600", "n1", 600.0)
        begun.read_text()
        hooks.close()
        assert ended.result(60) == "the server ends"
    assert hooks.run_command("true", "n1", 600.0) == "the server ends"


def test_a_magic_packet_has_the_address_sixteen_times() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(60)
        assert send_magic_packet("52:54:00:aB:34:56", "127.0.0.1", receiver.getsockname()[1]) == ""
        assert receiver.recv(200) == b"\xff" * 6 + bytes.fromhex("525400ab3456") * 16
    assert PowerHooks().switch(PowerHook(), "n9") == "no MAC address of n9 is configured"
