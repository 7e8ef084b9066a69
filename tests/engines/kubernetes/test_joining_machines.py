"""``pond nodes join``: the line for a new machine, and what is seen of it then."""

from __future__ import annotations

import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from driver_cards import card, with_driver
from lightkube.config.kubeconfig import SingleConfig
from standin_cluster import StandinCluster, refusal
from starlette.responses import JSONResponse

from millpond.client.cli import main
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess
from millpond.model.errors import UnavailableError
from millpond.server.operations import cluster_join
from millpond.server.operations.cluster_join import JoiningCluster
from millpond.specs.config.kubernetes import KubernetesFile

TOKEN = "K10abc::server:def"
K3S = "v1.34.1+k3s1"


@pytest.fixture
def asked(cluster: StandinCluster, tmp_path: Path) -> list[str]:
    """The command for the stand-in as a cluster of k3s."""
    cluster.version = K3S
    (tmp_path / "pond.yaml").write_text(f"kubernetes: {{kubeconfig: {cluster.kubeconfig(tmp_path)}}}\n")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    status = {"addresses": [{"type": "Hostname", "address": "head"}, {"type": "InternalIP", "address": "10.0.0.5"}]}
    meta = {"labels": {"node-role.kubernetes.io/control-plane": "true"}}
    cluster.put("nodes", "head", {"metadata": meta, "spec": {}, "status": status})
    return ["nodes", "join", "--config", f"{tmp_path}/pond.yaml", "--token-file", f"{tmp_path}/token"]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How the command went.

    Attributes:
        words: what it said to people, on one line.
    """

    exit_code: int
    output: str
    words: str


def run(*arguments: str) -> CommandResult:
    output, errors = StringIO(), StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main.run_line(list(arguments))
    return CommandResult(code, output.getvalue(), " ".join(errors.getvalue().split()))


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Programs of these names are found first."""
    (folder / "bin").mkdir()
    for name, script in scripts.items():
        place = folder / "bin" / name.replace("_", "-")
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


INSTALLER = """echo 'echo "$INSTALL_K3S_VERSION $K3S_URL $K3S_TOKEN $@"'"""


def test_the_line_joins_with_the_version_the_token_and_the_label_of_the_pool(
    cluster: StandinCluster, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = run(*asked, "--pool", "gold").output
    programs(tmp_path, monkeypatch, curl=INSTALLER)
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    told = f"{K3S} https://10.0.0.5:{cluster.port} {TOKEN} agent --node-label millpond.io/pool=gold"
    assert done.stdout.strip() == told


def test_nvidias_runtime_is_the_default_one_where_the_machine_has_it(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = run(*asked, "--server", "https://k.example.org:6443").output
    programs(tmp_path, monkeypatch, curl=INSTALLER, nvidia_container_runtime="")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("millpond.io/pool=default --default-runtime nvidia")
    assert "https://k.example.org:6443" in done.stdout


def test_it_is_run_on_the_machine_and_its_cards_are_waited_for(
    cluster: StandinCluster, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, ssh=f'echo "$@" > {tmp_path}/words; cat > {tmp_path}/line')
    monkeypatch.setattr(cluster_join, "LOOK_EVERY_S", 0.01)
    steps = [lambda: None, lambda: cluster.add_node("gpu-3", cards=0), lambda: cluster.add_node("gpu-3", cards=8)]

    def joins(request: str, _body: Any) -> None:
        if request == "GET /api/v1/nodes" and (tmp_path / "line").exists() and steps:
            steps.pop(0)()

    cluster.refuses = joins
    done = run(*asked, "--ssh", "root@gpu-3")
    assert "node gpu-3 is ready after" in done.output
    assert "it offers 8 x nvidia.com/gpu after" in done.output
    assert (tmp_path / "words").read_text() == "-- root@gpu-3 sh -s\n", "no token where all can see it"
    assert TOKEN in (tmp_path / "line").read_text()


def test_cards_that_a_driver_gives_out_by_claims_are_seen(cluster: StandinCluster, tmp_path: Path) -> None:
    passed: list[float] = []
    joining = JoiningCluster(KubernetesFile(kubeconfig=str(cluster.kubeconfig(tmp_path))), passed.append)
    before = joining.nodes()
    cluster.add_node("gpu-3", cards=0)
    driver = with_driver(cluster)
    driver.publish("gpu-2", card(0, "gpu-2"))
    driver.publish("gpu-3", card(0, "gpu-3"), card(1, "gpu-3"))
    told = list(joining.joined(before, lambda: 100 * sum(passed)))
    assert told == ["node gpu-3 is ready after 0 s", "it offers 2 x gpu.nvidia.com after 0 s"]


@pytest.mark.parametrize(
    ("cards", "seen", "remedy"),
    [(None, [], "journalctl -u k3s-agent"), (0, ["node gpu-3 is ready after 0 s"], "install Millpond's agents")],
)
def test_a_machine_that_does_not_come_or_has_no_cards_is_given_up_with_a_remedy(
    cluster: StandinCluster, tmp_path: Path, cards: int | None, seen: list[str], remedy: str
) -> None:
    passed: list[float] = []
    config = KubernetesFile(kubeconfig=str(cluster.kubeconfig(tmp_path)))
    joining = JoiningCluster(config, lambda seconds: passed.append(10 * seconds))
    before = joining.nodes()
    if cards is not None:
        cluster.add_node("gpu-3", cards=cards)
    told = joining.joined(before, lambda: sum(passed))
    assert [next(told) for _ in seen] == seen
    with pytest.raises(UnavailableError) as raised:
        next(told)
    assert remedy in raised.value.remedy


def test_errors_of_the_api_server_meanwhile_and_a_token_that_is_replaced_do_not_end_the_wait(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    path = cluster.kubeconfig(tmp_path)
    passed: list[float] = []
    joining = JoiningCluster(KubernetesFile(kubeconfig=str(path)), passed.append)
    before = joining.nodes()
    cluster.add_node("gpu-3", cards=8)
    cluster.token = "another"
    path.write_text(path.read_text().replace("secret", "another"))
    errors = [refusal(503, "ServiceUnavailable", "busy"), refusal(500, "InternalError", "etcdserver: no leader")]
    cluster.refuses = lambda _request, _body: errors.pop() if errors else None
    told = list(joining.joined(before, lambda: 10 * len(passed)))
    assert told == ["node gpu-3 is ready after 30 s", "it offers 8 x nvidia.com/gpu after 30 s"]


def test_errors_of_the_api_server_before_that_are_waited_out_for_a_while(
    cluster: StandinCluster, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_join, "LOOK_EVERY_S", 0.0)
    errors = [refusal(429, "TooManyRequests", "busy"), refusal(503, "ServiceUnavailable", "not ready")]
    cluster.refuses = lambda _request, _body: errors.pop() if errors else None
    assert f"K3S_TOKEN={TOKEN}" in run(*asked).output
    cluster.refuses = lambda _request, _body: refusal(503, "ServiceUnavailable", "not ready")
    assert "does not answer as it should: Server error '503" in run(*asked).words
    cluster.refuses = lambda _request, _body: refusal(403, "Forbidden", "no")
    before = len(cluster.requests)
    assert "does not answer as it should: Client error '403" in run(*asked).words
    assert len(cluster.requests) == before + 1, "a right comes by no waiting"


def test_an_api_server_that_does_not_come_back_is_named_in_the_end(cluster: StandinCluster, tmp_path: Path) -> None:
    passed: list[float] = []
    joining = JoiningCluster(KubernetesFile(kubeconfig=str(cluster.kubeconfig(tmp_path))), passed.append)
    before = joining.nodes()
    cluster.stop()
    with pytest.raises(UnavailableError, match=f"what became of the machine is not known: .*{cluster.address}"):
        list(joining.joined(before, lambda: 100 * len(passed)))


def test_a_machine_joins_by_the_address_of_a_server_and_not_through_a_proxy_to_the_api(
    cluster: StandinCluster, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = cluster_join.find_config

    def behind_a_proxy(access: ClusterAccess) -> SingleConfig:
        found = find(access)
        server = f"http://{cluster.address}/k8s/clusters/c-x"
        return found._replace(cluster=msgspec.structs.replace(found.cluster, server=server))

    def at_the_proxy(request: str, _body: Any) -> JSONResponse | None:
        assert request.startswith("GET /k8s/clusters/c-x/")
        items = [cluster.get("nodes", "head", "")]
        return JSONResponse({"gitVersion": K3S, "items": items})

    monkeypatch.setattr(cluster_join, "find_config", behind_a_proxy)
    cluster.refuses = at_the_proxy
    assert "K3S_URL=https://10.0.0.5:6443 " in run(*asked).output


def test_a_line_that_fails_there_is_said(asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch, ssh="cat > /dev/null; exit 255")
    done = run(*asked, "--ssh", "gpu-3")
    assert done.exit_code != 0
    assert "has failed on gpu-3 (exit code 255)" in done.words


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--pool", "a b"], "no name of a pool"),
        (["--token-file", "/nowhere/token"], "run this as root on the machine of the k3s server"),
        (["--token-file", "/proc/version"], "has no token of k3s in it"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(asked: list[str], more: list[str], words: str) -> None:
    done = run(*asked, *more)
    assert done.exit_code != 0
    assert words in done.words


def test_another_kind_of_cluster_is_told_to_join_by_its_own_means(cluster: StandinCluster, asked: list[str]) -> None:
    cluster.version = "v1.34.1"
    assert "kubectl label node NAME millpond.io/pool=default" in run(*asked).words


def test_a_cluster_of_which_no_address_for_others_is_known_asks_for_it(
    cluster: StandinCluster, asked: list[str]
) -> None:
    cluster.remove("nodes", "head", "")
    assert "--server https://ADDRESS:6443" in run(*asked).words
