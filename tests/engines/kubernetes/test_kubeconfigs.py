"""What kubeconfigs say of the way to a cluster is what connections to it take, out of one file or several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeconfigs import ask, kubeconfig, tls_server
from standin_cluster import NAMESPACE, StandinCluster

from certificates import make_certificate
from millpond.engines.kubernetes.cluster.access import api_channel, sync_client
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, connection_to, find_config
from millpond.engines.kubernetes.streams.channels import PodChannels
from millpond.model.errors import UnavailableError

# ---- the way ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def proxy_to(port: int, asked: list[str]) -> AsyncIterator[int]:
    """Gives the port of a proxy that leads to a port of this machine, whatever it is asked for."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            writer.write(piece)
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[0])
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def reached(path: Path) -> list[str]:
    """What comes of a request, of a question of the command line, and of a way into a pod."""
    config = find_config(ClusterAccess(str(path)))
    async with aclosing(api_channel(config, 2)) as channel:
        seen = [str(await ask(channel))]
        with pytest.raises(UnavailableError) as raised:
            await PodChannels(channel, NAMESPACE).open("train-abcde-1-0", "exec", [])
        seen.append(raised.value.cause)
    with sync_client(config) as client:
        seen.append(str((await asyncio.to_thread(client.get, "/version")).status_code))
    return seen


REACHED = ["200", "pod train-abcde-1-0 cannot be entered: the cluster answers 200 OK", "200"]


def test_the_proxy_that_a_kubeconfig_names_leads_to_the_cluster(tmp_path: Path) -> None:
    own, asked = make_certificate(tmp_path / "own", "cluster.test"), list[str]()

    async def way() -> list[str]:
        async with tls_server(own, [], []) as port, proxy_to(port, asked) as proxy:
            about = {"certificate-authority": str(own[0]), "proxy-url": f"http://127.0.0.1:{proxy}"}
            return await reached(kubeconfig(tmp_path, "https://cluster.test:6443", {}, **about))

    assert asyncio.run(way()) == REACHED
    assert set(asked) == {"CONNECT cluster.test:6443 HTTP/1.1"}


def test_a_server_may_have_the_certificate_of_the_name_that_a_kubeconfig_says(tmp_path: Path) -> None:
    own = make_certificate(tmp_path / "own", "cluster.test")

    async def way() -> list[str]:
        async with tls_server(own, [], []) as port:
            about = {"certificate-authority": str(own[0]), "tls-server-name": "cluster.test"}
            return await reached(kubeconfig(tmp_path, f"https://127.0.0.1:{port}", {}, **about))

    assert asyncio.run(way()) == REACHED


def test_a_cluster_may_lie_under_a_path_of_an_address_of_ipv6(tmp_path: Path) -> None:
    own, asked = make_certificate(tmp_path / "own", "::1"), list[str]()

    async def way() -> list[str]:
        async with tls_server(own, [], [], "::1", asked) as port:
            about = {"certificate-authority": str(own[0])}
            return await reached(kubeconfig(tmp_path, f"https://[::1]:{port}/k8s/clusters/c-x/", {}, **about))

    assert asyncio.run(way()) == REACHED
    within = "/k8s/clusters/c-x"
    pod = f"{within}/api/v1/namespaces/{NAMESPACE}/pods/train-abcde-1-0/exec"
    assert asked == [f"{within}/version", pod, f"{within}/version"]


# ---- several files ------------------------------------------------------------------------------------------------


def test_the_files_of_the_environment_count_together_and_of_one_name_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(folder: str, plain: dict[str, Any]) -> str:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config").write_text(yaml.safe_dump(plain))
        return f"{tmp_path}/{folder}/config"

    east = {"name": "east", "context": {"cluster": "east", "user": "me"}}
    contexts = part("contexts", {"contexts": [east], "current-context": "east", "clusters": None})
    cluster = {"server": "https://east:6443", "certificate-authority": "ca.crt", "tls-server-name": "east.test"}
    clusters = part("clusters", {"clusters": [{"name": "east", "cluster": cluster}], "current-context": "no"})
    tokens = {"tokenFile": "token"}
    users = part("users", {"users": [{"name": "me", "user": tokens}], "clusters": [{"name": "east", "cluster": {}}]})
    monkeypatch.setenv("KUBECONFIG", f"{contexts}:/nowhere/config::{clusters}:{users}")
    found = find_config(ClusterAccess())
    assert (found.cluster.server, found.cluster.certificate_auth) == (
        "https://east:6443",
        f"{tmp_path}/clusters/ca.crt",
    )
    assert found.user is not None
    assert found.user.token_file == f"{tmp_path}/users/token"
    assert connection_to(found).tls_server_name == "east.test"
    part("odd", {"clusters": [{"name": "east", "cluster": {**cluster, "tls-server-name": 7}}]})
    monkeypatch.setenv("KUBECONFIG", f"{contexts}:{tmp_path}/odd/config:{users}")
    with pytest.raises(ValueError, match="Expected `str`, got `int`"):
        connection_to(find_config(ClusterAccess()))


def test_a_token_that_is_replaced_in_one_of_several_files_is_taken_from_there(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    async def answers() -> list[int]:
        cluster.token = "second"
        path = kubeconfig(tmp_path, f"http://{cluster.address}", {"token": "first"})
        (tmp_path / "empty").write_text("")
        access = ClusterAccess(f"{tmp_path}/empty:{path}")
        async with aclosing(api_channel(find_config(access), 2)) as channel:
            seen = [await ask(channel)]
            kubeconfig(tmp_path, f"http://{cluster.address}", {"token": "second"})
            return [*seen, await ask(channel)]

    assert asyncio.run(answers()) == [401, 200]


def test_no_file_at_all_is_said_with_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/one:/nowhere/two")
    with pytest.raises(UnavailableError, match="there is no file /nowhere/one:/nowhere/two"):
        find_config(ClusterAccess())


def test_a_kubeconfig_that_is_no_yaml_is_said(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("{clusters: [")
    with pytest.raises(UnavailableError, match="the way to the Kubernetes cluster is not known"):
        find_config(ClusterAccess(str(tmp_path / "kubeconfig")))


@pytest.mark.parametrize("address", ["https://10.0.0.1:99999", "https://10.0.0.1:https", "https://[::1"])
def test_an_address_that_is_none_is_said(tmp_path: Path, address: str) -> None:
    with pytest.raises(UnavailableError, match="the way to the Kubernetes cluster is not known"):
        find_config(ClusterAccess(str(kubeconfig(tmp_path, address, {}))))
