"""Credentials that are replaced while a server runs: it goes on with the new ones, without being started anew."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from shutil import copyfile
from threading import Event as Moment
from typing import Any

import httpx2
import pytest
import uvloop
from kubeconfigs import ask, channel_by, kubeconfig, tls_server
from pod_bench import PodBench, eventually
from standin_cluster import StandinCluster, refusal
from starlette.responses import Response

from certificates import make_certificate
from millpond.engines.kubernetes.cluster import api_channel as api_channel_module
from millpond.engines.kubernetes.cluster import credential_plugins, credentials
from millpond.engines.kubernetes.cluster.access import sync_client
from millpond.engines.kubernetes.cluster.kubeconfig import ClusterAccess, find_config
from millpond.node.host import procfs

PLUGIN = """#!/bin/sh
echo ran >> "$1/runs"
printf %s "$KUBERNETES_EXEC_INFO" > "$1/told"
printf '{"kind": "ExecCredential", "status": {"token": "%s"}}' "$(cat "$1/token")"
"""


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
        return kubeconfig(tmp_path, f"http://{cluster.address}", user)

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


def test_an_engine_has_its_token_from_a_plugin_which_runs_once(
    cluster: StandinCluster, bench: PodBench, tmp_path: Path
) -> None:
    bench.close()
    cluster.token = "of the plugin"
    (tmp_path / "token").write_text(cluster.token)
    calls = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "sh", "args": ["-c", PLUGIN, "sh"]}
    calls["args"] += [str(tmp_path)]
    path = kubeconfig(tmp_path, f"http://{cluster.address}", {"exec": calls})
    bench.cluster.kubeconfig = lambda _folder: path  # type: ignore[method-assign]
    bench.open()
    bench.started()
    assert (tmp_path / "runs").read_text() == "ran\n", "for the watches and for all requests"


@pytest.mark.parametrize(
    ("expires", "passes_s", "shown_then"),
    [
        ("2026-11-30T07:00:00Z", 59, "first"),
        ("2026-11-30T08:00:00+01:00", 61, "second"),
        ("2026-11-30T06:58:00Z", 3600, "first"),
    ],
    ids=["not yet", "passed", "before it was given, by a clock that disagrees"],
)
def test_a_plugin_is_asked_anew_when_what_it_has_given_expires_by_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expires: str, passes_s: float, shown_then: str
) -> None:
    now_s = datetime.fromisoformat("2026-11-30T06:59:00Z").timestamp()
    monkeypatch.setattr(credentials.time, "time", lambda: now_s)
    gives = f"""printf '{{"status": {{"token": "%s", "expirationTimestamp": "{expires}"}}}}' $(cat {tmp_path}/token)"""
    calls = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", gives]}
    (tmp_path / "token").write_text("first")

    async def shown() -> list[str]:
        nonlocal now_s
        async with aclosing(channel_by(kubeconfig(tmp_path, "http://127.0.0.1:1", {"exec": calls}))) as channel:
            seen = [await channel.authorize()]
            (tmp_path / "token").write_text("second")
            now_s += passes_s
            seen.append(await channel.authorize())
            return [each["Authorization"].removeprefix("Bearer ") for each in seen]

    assert asyncio.run(shown()) == ["first", shown_then]


def test_a_kubeconfig_that_is_half_written_fails_one_request(cluster: StandinCluster, tmp_path: Path) -> None:
    async def answers() -> int:
        cluster.token = "second"
        path = kubeconfig(tmp_path, f"http://{cluster.address}", {"token": "first"})
        async with aclosing(channel_by(path)) as channel:
            path.write_text("{clusters: [")
            with pytest.raises(httpx2.TransportError, match="the credentials cannot be had"):
                await ask(channel)
            kubeconfig(tmp_path, f"http://{cluster.address}", {"token": "second"})
            return await ask(channel)

    assert asyncio.run(answers()) == 200


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
        path = kubeconfig(tmp_path, f"http://{cluster.address}", {"exec": calls})
        async with aclosing(channel_by(path)) as channel:
            shown = await channel.authorize()
            token.unlink()
            renewing = [asyncio.create_task(channel.authorize(shown)) for _ in range(3)]
            while len(runs.read_text().split()) < 2:
                await asyncio.sleep(0.001)
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
        path = kubeconfig(tmp_path, f"http://{cluster.address}", {"token": "first"})
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
    assert asyncio.run(credential_plugins.shown_user(config)).user.token == "first"
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
