"""The agent of a node as a driver of claims, between a kubelet and a cluster that the tests stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agent_bench import CARDS, AgentBench, hurry, part, run
from fake_kubelet import until

from millpond.engines.kubernetes.agent import node_agent
from millpond.engines.kubernetes.agent.pod_slices import PodSlices
from millpond.engines.kubernetes.claims.card_shares import CardShares
from millpond.engines.kubernetes.claims.claim_objects import ClaimObject
from millpond.engines.kubernetes.cluster.cluster_nodes import AGENT_DRIVER, MILLI
from millpond.engines.kubernetes.cluster.objects import PodObject, PodStatus
from millpond.model.decisions import Grant

DEVICES = {card.uuid: card for card in CARDS}


@pytest.fixture
def bench(tmp_path: Path, _fake_driver_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> AgentBench:
    hurry(tmp_path, _fake_driver_libraries.parent, monkeypatch)
    monkeypatch.setattr(node_agent, "REGISTERED_WITHIN_S", 60.0)
    bench = AgentBench(tmp_path, by_claims=True)
    bench.kubelet.registry.mkdir()
    return bench


@pytest.fixture
def plugin(tmp_path: Path, _fake_driver_libraries: Path) -> AgentBench:
    """Another node, whose kubelet takes device plugins alone."""
    (tmp_path / "b" / "millpond").mkdir(parents=True)
    (tmp_path / "b" / "millpond" / "gate").symlink_to(_fake_driver_libraries.parent)
    return AgentBench(tmp_path / "b")


def allocated(bench: AgentBench, name: str, *grants: Grant, pod: str = "", uid: str = "") -> tuple[str, str, str]:
    """The server has allocated a claim for a pod; returns its namespace, uid and name."""
    uid = uid or f"uid-of-{name}"
    results = [each.to_dict() for each in CardShares("n1", grants, DEVICES).results(uid, "cards")]
    reserved = [{"resource": "pods", "name": pod or name, "uid": f"uid-{pod or name}"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    plain = {"metadata": {"namespace": "team", "name": name, "uid": uid}, "status": status}
    bench.claims[name] = msgspec.convert(plain, ClaimObject)
    return "team", uid, name


def edits_of(bench: AgentBench, cdi_id: str) -> dict[str, Any]:
    """What the container runtime does for a name of CDI."""
    kind, _, name = cdi_id.partition("=")
    specs = [json.loads(path.read_text()) for path in (bench.folder / "cdi").glob("*.json")]
    (device,) = [each for spec in specs if spec["kind"] == kind for each in spec["devices"] if each["name"] == name]
    return dict(device["containerEdits"])


def files_of(bench: AgentBench) -> list[str]:
    return sorted(path.name for path in (bench.folder / "cdi").glob("*"))


def test_the_agent_registers_as_a_driver_and_reports_that_it_gives_out_cards_by_claims(bench: AgentBench) -> None:
    async def test() -> None:
        info = await bench.kubelet.register_driver()
        assert (info.type, info.name) == ("DRAPlugin", AGENT_DRIVER)
        assert list(info.supported_versions) == ["v1.DRAPlugin"]
        assert info.endpoint == str(bench.kubelet.drivers / AGENT_DRIVER / "dra.sock")

    run(bench, test)
    assert bench.reports[-1].by_claims
    assert bench.published[-1] == CARDS
    assert bench.kubelet.registered == []  # no device plugin for the same cards
    assert list(bench.kubelet.registry.iterdir()) == []


def test_a_claim_is_prepared_with_the_part_that_the_order_of_its_pod_says(bench: AgentBench) -> None:
    async def test() -> None:
        bench.bound("train", part(1))
        claim = allocated(bench, "train", part(1))
        prepared = (await bench.kubelet.prepare(claim))[claim[1]]
        assert prepared.error == ""
        (device,) = prepared.devices
        assert (device.pool_name, device.device_name, list(device.request_names)) == ("n1", "card-gpu-1", [])
        (cdi_id,) = device.cdi_device_ids
        edits = edits_of(bench, cdi_id)
        env = dict(each.split("=", 1) for each in edits["env"])
        assert (env["CUDA_VISIBLE_DEVICES"], env["NVIDIA_VISIBLE_DEVICES"]) == ("GPU-1", "GPU-1")
        assert "libmillpond" in env["LD_PRELOAD"] or "gate" in env["LD_PRELOAD"]
        assert all(each["hostPath"] == each["containerPath"] for each in edits["mounts"])
        assert {each["options"][-1] for each in edits["mounts"]} == {"ro", "rw"}
        assert [each.pod.key for each in bench.agent.allocations.made.values()] == [("team", "train")]
        assert bench.agent.allocations.all_confirmed

    run(bench, test)


def test_what_a_container_gets_is_what_the_device_plugin_would_give_it(bench: AgentBench, plugin: AgentBench) -> None:
    env: dict[str, str] = {}

    async def by_plugin() -> None:
        plugin.bound("train", part(0))
        env.update((await plugin.admitted("train", 250))[0])

    async def by_claims() -> None:
        bench.bound("train", part(0))
        claim = allocated(bench, "train", part(0))
        prepared = (await bench.kubelet.prepare(claim))[claim[1]]
        edits = edits_of(bench, prepared.devices[0].cdi_device_ids[0])
        given = dict(each.split("=", 1) for each in edits["env"])
        assert {name: value.replace("/b/", "/") for name, value in env.items()} == given

    run(plugin, by_plugin)
    run(bench, by_claims)


def test_a_claim_of_whole_cards_has_all_of_them_once(bench: AgentBench) -> None:
    grants = tuple(Grant(card.uuid, 1000, 1000, 0) for card in CARDS)

    async def test() -> None:
        bench.bound("train", *grants)
        claim = allocated(bench, "train", *grants)
        (device,) = (await bench.kubelet.prepare(claim))[claim[1]].devices
        env = dict(each.split("=", 1) for each in edits_of(bench, device.cdi_device_ids[0])["env"])
        assert env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"

    run(bench, test)


def test_a_call_that_is_repeated_changes_nothing_even_for_the_next_agent(bench: AgentBench) -> None:
    claim = ("", "", "")

    async def first() -> None:
        nonlocal claim
        bench.bound("train", part(0))
        claim = allocated(bench, "train", part(0))
        before = (await bench.kubelet.prepare(claim))[claim[1]]
        files = {path: path.stat().st_mtime_ns for path in (bench.folder / "millpond" / "slices").rglob("*")}
        assert (await bench.kubelet.prepare(claim))[claim[1]] == before
        assert {path: path.stat().st_mtime_ns for path in (bench.folder / "millpond" / "slices").rglob("*")} == files

    async def next_agent() -> None:
        bench.bound("train", part(0))
        prepared = (await bench.kubelet.prepare(claim))[claim[1]]
        assert prepared.error == ""
        assert len(bench.agent.allocations.made) == 1
        for path in (bench.folder / "cdi").iterdir():  # as when the node starts anew
            path.unlink()
        prepared = (await bench.kubelet.prepare(claim))[claim[1]]
        assert edits_of(bench, prepared.devices[0].cdi_device_ids[0])["env"]

    run(bench, first)
    (bench.folder / "cdi" / "millpond.io-share-stale.json").write_text("{}")
    run(bench, next_agent)
    assert files_of(bench) == [f"millpond.io-share-{claim[1]}.json"]


def test_a_claim_that_is_used_no_more_leaves_nothing_and_its_part_is_free_when_the_pod_is_over(
    bench: AgentBench,
) -> None:
    async def test() -> None:
        pod = bench.bound("train", part(0, 1000, 16_384))
        claim = allocated(bench, "train", part(0, 1000, 16_384))
        await bench.kubelet.prepare(claim)
        bench.agent.pod_changed(PodObject(pod.metadata, pod.spec, PodStatus(phase="Succeeded")))
        assert await bench.kubelet.unprepare(claim, ("team", "uid-unknown", "unknown")) == {
            claim[1]: "",
            "uid-unknown": "",
        }
        assert files_of(bench) == []
        bench.bound("next", part(0, 500))
        later = allocated(bench, "next", part(0, 500))
        assert (await bench.kubelet.prepare(later))[later[1]].error == ""

    run(bench, test)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("no claim", "there is no claim train with the uid"),
        ("another claim of the name", "there is no claim train with the uid"),
        ("not allocated", "has nothing of gpu.millpond.io"),
        ("past Millpond", "Millpond has bound no pod to this node that may use claim"),
        ("another share", "has something else than Millpond has decided"),
        ("another card", "has something else than Millpond has decided"),
        ("no room", "has no room for it beside 1 others"),
    ],
)
def test_a_claim_that_cannot_be_prepared_says_why_and_others_are(bench: AgentBench, case: str, said: str) -> None:
    async def test() -> None:
        if case == "no room":
            bench.bound("large", part(0, 900))
            await bench.kubelet.prepare(allocated(bench, "large", part(0, 900)))
        share = {"another share": part(0, 500), "another card": part(1)}.get(case, part(0))
        claim = allocated(bench, "train", share)
        if case != "past Millpond":
            bench.bound("train", part(0))
        if case == "no claim":
            bench.claims.clear()
        if case == "another claim of the name":
            allocated(bench, "train", part(0), uid="later")
        if case == "not allocated":
            bench.claims["train"].status.allocation = None
        bench.bound("good", part(1, 100, 1024))
        good = allocated(bench, "good", part(1, 100, 1024))
        answers = await bench.kubelet.prepare(claim, good)
        assert said in answers[claim[1]].error
        assert answers[good[1]].error == ""

    run(bench, test)


def test_a_claim_that_could_not_be_prepared_is_tried_again(bench: AgentBench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        bench.bound("train", part(0))
        claim = allocated(bench, "train", part(0))

        def full(*_: Any) -> None:
            raise OSError("no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(PodSlices, "prepare", full)
            said = (await bench.kubelet.prepare(claim))[claim[1]].error
            assert "the node cannot prepare it: no space left on device" in said
            assert not bench.agent.allocations.made
        assert (await bench.kubelet.prepare(claim))[claim[1]].error == ""

    run(bench, test)


def test_a_removed_socket_is_made_again_and_the_next_kubelet_finds_the_driver(bench: AgentBench) -> None:
    async def test() -> None:
        socket = next(bench.kubelet.registry.iterdir())
        socket.unlink()
        await until(socket.exists)
        await bench.kubelet.register_driver()
        bench.bound("train", part(0))
        claim = allocated(bench, "train", part(0))
        assert (await bench.kubelet.prepare(claim))[claim[1]].error == ""

    run(bench, test)


def test_a_cluster_that_does_not_account_for_shares_has_the_device_plugin(bench: AgentBench) -> None:
    bench.by_claims, bench.accounts = False, False

    async def test() -> None:
        bench.bound("train", part(0))
        env, _ = await bench.admitted("train", 250)
        assert env["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"

    run(bench, test)
    assert bench.kubelet.registered[0].resource_name == MILLI
    assert not any(report.by_claims for report in bench.reports)
    assert bench.published == []


@pytest.mark.parametrize("answers", [False, True])
def test_a_kubelet_that_takes_no_such_drivers_has_the_device_plugin(
    bench: AgentBench, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    monkeypatch.setattr(node_agent, "REGISTERED_WITHIN_S", 0.3)
    bench.by_claims, bench.kubelet.takes_drivers = answers, False

    async def test() -> None:
        await until(lambda: bench.kubelet.registered)

    run(bench, test)
    assert not any(report.by_claims for report in bench.reports)
    assert bench.published[-1] == ()  # withdrawn
    assert list(bench.kubelet.registry.iterdir()) == []
