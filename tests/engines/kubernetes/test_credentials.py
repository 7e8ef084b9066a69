"""Credentials that are replaced while a server runs: it goes on with the new ones, without being started anew."""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from shutil import copyfile
from threading import Event as Moment
from typing import Any

import httpx2
import pytest
import uvloop
import yaml
from pod_bench import PodBench, eventually
from standin_cluster import NAMESPACE, StandinCluster, refusal
from starlette.responses import Response

from certificates import make_certificate
from millpond.engines.kubernetes.cluster import api_channel as api_channel_module
from millpond.engines.kubernetes.cluster import credential_plugins
from millpond.engines.kubernetes.cluster.access import (
    ClusterAccess,
    api_channel,
    connection_to,
    find_config,
    sync_client,
)
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel
from millpond.engines.kubernetes.streams.channels import PodChannels
from millpond.model.errors import UnavailableError
from millpond.node.host import procfs

PLUGIN = """#!/bin/sh
printf %s "$KUBERNETES_EXEC_INFO" > "$1/told"
printf '{"kind": "ExecCredential", "status": {"token": "%s"}}' "$(cat "$1/token")"
"""


def kubeconfig(folder: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": NAMESPACE}}],
                "users": [{"name": "me", "user": user}],
            }
        )
    )
    return path


def channel_by(path: Path) -> ApiChannel:
    return api_channel(find_config(ClusterAccess(str(path))), 2)


async def ask(channel: ApiChannel) -> int:
    answer = await channel.request("GET", "/version", content=b"", params={}, headers={})
    return answer.status_code


@pytest.mark.parametrize("place", ["token", "kubeconfig", "plugin"])
def test_a_token_that_is_replaced_where_it_comes_from_is_taken_from_there(
    cluster: StandinCluster, tmp_path: Path, place: str
) -> None:
    token, plugin = tmp_path / "token", tmp_path / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)

    def replace(text: str) -> Path:
        token.write_text(text)
        calls = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "args": [str(tmp_path)]}
        user = {"token": {"tokenFile": str(token)}, "kubeconfig": {"token": text}, "plugin": {"exec": calls}}[place]
        return kubeconfig(tmp_path, f"http://127.0.0.1:{cluster.port}", user)

    async def answers() -> list[int]:
        cluster.token = "first"
        async with aclosing(channel_by(replace("first"))) as channel:
            seen = [await ask(channel)]
            cluster.token = "second"
            seen.append(await ask(channel))
            replace("second")
            return [*seen, await ask(channel), await ask(channel)]

    assert asyncio.run(answers()) == [200, 401, 200, 200]
    if place == "plugin":
        told = json.loads((tmp_path / "told").read_text())
        assert told["apiVersion"] == "client.authentication.k8s.io/v1", "it writes what it is told to"


def test_a_server_that_is_not_reached_is_named_without_objects_of_the_library(tmp_path: Path) -> None:
    async def words() -> str:
        async with aclosing(channel_by(kubeconfig(tmp_path, "https://127.0.0.1:1", {}))) as channel:
            with pytest.raises(httpx2.TransportError) as raised:
                await ask(channel)
            return str(raised.value)

    assert uvloop.run(words()).startswith("127.0.0.1:1 cannot be reached: [Errno 111] Connect")


def test_an_engine_has_its_token_from_a_plugin(cluster: StandinCluster, bench: PodBench, tmp_path: Path) -> None:
    bench.close()
    cluster.token = "of the plugin"
    (tmp_path / "token").write_text(cluster.token)
    calls = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "sh", "args": ["-c", PLUGIN, "sh"]}
    calls["args"] += [str(tmp_path)]
    path = kubeconfig(tmp_path, f"http://127.0.0.1:{cluster.port}", {"exec": calls})
    bench.cluster.kubeconfig = lambda _folder: path  # type: ignore[method-assign]
    bench.open()
    bench.started()


def test_a_kubeconfig_that_is_half_written_fails_one_request(cluster: StandinCluster, tmp_path: Path) -> None:
    async def answers() -> int:
        cluster.token = "second"
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{cluster.port}", {"token": "first"})
        async with aclosing(channel_by(path)) as channel:
            path.write_text("{clusters: [")
            with pytest.raises(httpx2.TransportError, match="the credentials cannot be had"):
                await ask(channel)
            kubeconfig(tmp_path, f"http://127.0.0.1:{cluster.port}", {"token": "second"})
            return await ask(channel)

    assert asyncio.run(answers()) == 200


@asynccontextmanager
async def tls_server(
    own: tuple[Path, Path],
    clients: list[Path],
    takes: list[str],
    host: str = "127.0.0.1",
    asked: list[str] | None = None,
) -> AsyncIterator[int]:
    """Gives the port where it listens, and knows clients by their certificates, on each request anew.

    Args:
        takes: names of those that it takes by now; none: all.
        asked: is given the path of each request.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*own)
    for each in clients:
        context.load_verify_locations(each)
        context.verify_mode = ssl.CERT_REQUIRED

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = (writer.get_extra_info("peercert") or {}).get("subject", ())
        while line := await reader.readline():
            if asked is not None:
                asked.append(line.split()[1].decode())
            while (await reader.readline()).strip():
                pass
            is_taken = not takes or any((("commonName", name),) in shown for name in takes)
            status = b"200 OK" if is_taken else b"401 Unauthorized"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer, host, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def test_a_client_certificate_that_is_replaced_on_disk_is_shown_from_then_on(tmp_path: Path) -> None:
    own = make_certificate(tmp_path / "own", "127.0.0.1")
    old, new = make_certificate(tmp_path / "old", "old.test"), make_certificate(tmp_path / "new", "new.test")
    user = {"client-certificate": "mine.crt", "client-key": "mine.key"}

    def show(certificate: Path, key: Path) -> None:
        copyfile(certificate, tmp_path / "mine.crt")
        copyfile(key, tmp_path / "mine.key")

    async def answers() -> list[int]:
        takes = ["old.test"]
        show(*old)
        async with tls_server(own, [old[0], new[0]], takes) as port:
            path = kubeconfig(tmp_path, f"https://127.0.0.1:{port}", user, **{"certificate-authority": str(own[0])})
            async with aclosing(channel_by(path)) as channel:
                seen = [await ask(channel)]
                takes[:] = ["new.test"]
                seen.append(await ask(channel))
                show(*new)
                return [*seen, await ask(channel), await ask(channel)]

    assert asyncio.run(answers()) == [200, 401, 200, 200]


def test_a_plugin_that_shows_a_certificate_is_asked_for_another_when_that_is_no_longer_taken(tmp_path: Path) -> None:
    own = make_certificate(tmp_path / "own", "127.0.0.1")
    old, new = make_certificate(tmp_path / "old", "old.test"), make_certificate(tmp_path / "new", "new.test")
    (tmp_path / "plugins").mkdir()
    plugin = tmp_path / "plugins" / "show"
    plugin.write_text(f"#!/bin/sh\ncat {tmp_path}/shown\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "plugins/show"}}

    def show(certificate: Path, key: Path) -> None:
        pair = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
        (tmp_path / "shown").write_text(json.dumps({"kind": "ExecCredential", "status": pair}))

    async def answers() -> list[int]:
        takes = ["old.test"]
        show(*old)
        async with tls_server(own, [old[0], new[0]], takes) as port:
            path = kubeconfig(tmp_path, f"https://127.0.0.1:{port}", user, **{"certificate-authority": str(own[0])})
            with await asyncio.to_thread(sync_client, find_config(ClusterAccess(str(path)))) as client:
                seen = [(await asyncio.to_thread(client.get, "/version")).status_code]
            async with aclosing(channel_by(path)) as channel:
                seen.append(await ask(channel))
                takes[:] = ["new.test"]
                show(*new)
                return [*seen, await ask(channel)]

    assert asyncio.run(answers()) == [200, 200, 200]


def test_requests_go_on_with_what_they_have_while_a_plugin_hangs_that_others_wait_for(
    cluster: StandinCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, runs = tmp_path / "token", tmp_path / "runs"
    hangs = f"echo $$ >> {runs}; [ -e {token} ] && cat {token} || sleep 600"
    calls = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", hangs]}

    async def answers() -> None:
        cluster.token = "first"
        token.write_text('{"status": {"token": "first"}}')
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{cluster.port}", {"exec": calls})
        async with aclosing(channel_by(path)) as channel:
            shown = await channel.authorize()
            token.unlink()
            renewing = [asyncio.create_task(channel.authorize(shown)) for _ in range(3)]
            assert await ask(channel) == 200, "what it has is taken still"
            monkeypatch.setattr(api_channel_module, "REQUEST_WITHIN_S", 0.05)
            cluster.token = "second"
            with pytest.raises(httpx2.ConnectTimeout, match="has not given credentials yet"):
                await ask(channel)
            assert not any(each.done() for each in renewing)
        for each in renewing:
            each.cancel()
        await asyncio.wait(renewing)

    uvloop.run(answers())
    _first, hanging = runs.read_text().split()
    assert procfs.start_ticks(int(hanging)) is None, "one for all, which ends with the channel"


def test_a_request_that_is_sent_again_with_new_credentials_has_no_more_time_for_that(
    cluster: StandinCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_channel_module, "REQUEST_WITHIN_S", 0.3)

    def late(_request: str, _body: object) -> Response:
        Moment().wait(0.25)
        return refusal(401, "Unauthorized", "no")

    async def answer() -> None:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{cluster.port}", {"token": "first"})
        async with aclosing(channel_by(path)) as channel:
            with pytest.raises(httpx2.ReadTimeout, match="no answer in time"):
                await ask(channel)

    cluster.refuses = late
    asyncio.run(answer())


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_plugin_is_told_of_its_cluster_where_the_kubeconfig_says_so(tmp_path: Path, is_wanted: bool) -> None:
    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_text("of the cluster")
    calls = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "provideClusterInfo": is_wanted}
    calls["args"] = ["-c", PLUGIN, "sh", str(tmp_path)]
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "pool"}}
    about: dict[str, Any] = {"certificate-authority": "ca.crt", "extensions": [extension], "proxy-url": "http://proxy"}
    config = find_config(ClusterAccess(str(kubeconfig(tmp_path, "https://here:6443", {"exec": calls}, **about))))
    assert asyncio.run(credential_plugins.shown_user(config)).token == "first"
    cluster = {
        "server": "https://here:6443",
        "certificate-authority-data": "b2YgdGhlIGNsdXN0ZXI=",
        "proxy-url": "http://proxy",
        "config": {"audience": "pool"},
    }
    wanted = {"interactive": False, **({"cluster": cluster} if is_wanted else {})}
    assert json.loads((tmp_path / "told").read_text())["spec"] == wanted


def test_a_plugin_that_hangs_is_ended_with_all_that_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = tmp_path / "begun"
    user = {"exec": {"apiVersion": "v1", "command": "sh", "args": ["-c", f"sleep 600 & echo $! > {begun}; wait"]}}

    async def words() -> str:
        async with aclosing(channel_by(kubeconfig(tmp_path, "https://127.0.0.1:1", user))) as channel:
            with pytest.raises(httpx2.TransportError) as raised:
                await ask(channel)
            return str(raised.value)

    monkeypatch.setattr(credential_plugins, "PLUGIN_WITHIN_S", 0.5)
    assert uvloop.run(words()) == "the credentials cannot be had: sh was ended, as it took more than 0.5 s"
    eventually(lambda: procfs.start_ticks(int(begun.read_text())) is None)


def test_a_plugin_that_fails_when_nobody_waits_for_it_any_more_is_no_defect(tmp_path: Path) -> None:
    runs, may_end = tmp_path / "runs", tmp_path / "may_end"
    fails = f"touch {runs}; until [ -e {may_end} ]; do sleep 0.01; done; exit 1"
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", fails]}}
    said: list[object] = []

    async def answers() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: said.append(context))
        async with aclosing(channel_by(kubeconfig(tmp_path, "https://127.0.0.1:1", user))) as channel:
            with pytest.raises(httpx2.ConnectTimeout):
                await channel.authorize(give_up_at=loop.time())
            may_end.touch()
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.001)
            with pytest.raises(httpx2.TransportError, match="the credentials cannot be had"):
                await channel.authorize()
            gc.collect()

    uvloop.run(answers())
    assert said == []


def test_an_authority_that_is_replaced_in_the_kubeconfig_is_trusted_from_then_on(tmp_path: Path) -> None:
    old, new = make_certificate(tmp_path / "old", "127.0.0.1"), make_certificate(tmp_path / "new", "127.0.0.1")

    async def answers() -> list[int]:
        async with tls_server(old, [], []) as port:
            url = f"https://127.0.0.1:{port}"
            path = kubeconfig(tmp_path, url, {}, **{"certificate-authority": str(old[0])})
            channel = channel_by(path)
            seen = [await ask(channel)]
        async with tls_server(new, [], []) as port, aclosing(channel):
            channel.base = f"https://127.0.0.1:{port}"
            kubeconfig(tmp_path, channel.base, {}, **{"certificate-authority": str(new[0])})
            with pytest.raises(
                httpx2.TransportError, match=r"127.0.0.1:\d+ is not trusted: .*certificate verify failed"
            ):
                await ask(channel)
            return [*seen, await ask(channel)]

    assert asyncio.run(answers()) == [200, 200]


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


def test_a_token_that_is_replaced_in_one_of_several_files_is_taken_from_there(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    async def answers() -> list[int]:
        cluster.token = "second"
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{cluster.port}", {"token": "first"})
        (tmp_path / "empty").write_text("")
        access = ClusterAccess(f"{tmp_path}/empty:{path}")
        async with aclosing(api_channel(find_config(access), 2)) as channel:
            seen = [await ask(channel)]
            kubeconfig(tmp_path, f"http://127.0.0.1:{cluster.port}", {"token": "second"})
            return [*seen, await ask(channel)]

    assert asyncio.run(answers()) == [401, 200]


def test_no_file_at_all_is_said_with_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/one:/nowhere/two")
    with pytest.raises(UnavailableError, match="there is no file /nowhere/one:/nowhere/two"):
        find_config(ClusterAccess())
