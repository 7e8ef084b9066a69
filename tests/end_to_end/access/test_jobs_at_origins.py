"""Programs of jobs at host names of their own, on a real server without a domain: names below localhost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from real_pond import Pond, until
from serving_site import PROGRAM, Site, connect, get
from websockets.exceptions import InvalidStatus

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that shows each job below localhost, and a job on it."""
    folder: Path = tmp_path_factory.mktemp("origins")
    config = folder / "pool.yaml"
    config.write_text("listen: {jobs_domain: localhost}\n")
    pond = Pond(folder / "state")
    pond.up("--config", str(config))
    yield Site(pond)
    done = pond("down")
    assert done.returncode == 0, done.stderr


def host_of(site: Site) -> str:
    """As a browser writes it that was sent to the job's origin."""
    return f"{site.job}.localhost:{urlsplit(site.url).port}"


def signed_in(site: Site) -> dict[str, str]:
    """The headers with which a browser comes back that has opened the link that ``pond dev open`` prints."""
    printed = site.pond.printed("dev", "open", site.job)
    assert printed.startswith(f"http://{host_of(site)}/"), printed
    opened = get(site.url + printed.partition(host_of(site))[2], headers={"Host": host_of(site)})
    assert opened.status_code == 200
    return {"Host": host_of(site), "Cookie": opened.headers["set-cookie"].partition(";")[0]}


def test_a_browser_sees_the_program_at_the_root_of_its_own_origin(site: Site) -> None:
    browser = signed_in(site)
    seen = get(f"{site.url}/a%2Fb?x=1", headers=browser).json()
    headers = dict(seen["headers"])
    assert seen["path"] == "/a%2Fb?x=1"
    assert headers["host"] == headers["x-forwarded-host"] == host_of(site)
    assert headers["authorization"] == f"Bearer {site.key}"
    assert "cookie" not in headers
    assert get(f"{site.url}/moved", headers=browser).headers["location"] == "/elsewhere"
    assert get(f"{site.url}/cookies", headers=browser).headers["set-cookie"] == "own=1; HttpOnly; Path=/"


def test_a_program_that_knows_its_base_path_is_found_there_too(site: Site) -> None:
    browser = signed_in(site)
    seen = get(f"{site.url}/proxy/{site.job}/x", headers=browser).json()
    assert (seen["path"], dict(seen["headers"])["x-forwarded-prefix"]) == ("/x", f"/proxy/{site.job}")


def test_a_program_that_is_told_its_base_path_sees_it_also_where_the_browser_asks_for_the_root(site: Site) -> None:
    job = site.submit(
        f"command: [{sys.executable}, {site.pond.state_dir.parent / PROGRAM.name}]\nserve: {{path: whole}}"
    )
    host = f"{job}.localhost:{urlsplit(site.url).port}"
    bearer = {"Host": host, "Authorization": f"Bearer {site.token}"}
    until(lambda: get(f"{site.url}/x", headers=bearer).status_code == 200)
    for path in ("/x?a=1", f"/proxy/{job}/x?a=1"):
        assert get(site.url + path, headers=bearer).json()["path"] == f"/proxy/{job}/x?a=1"
    assert site.pond("stop", job).returncode == 0


def test_the_programs_pages_open_websockets_at_their_own_origin_and_nobody_elses_do(site: Site) -> None:
    cookie = {"Cookie": signed_in(site)["Cookie"]}
    port = urlsplit(site.url).port
    where = f"ws://{host_of(site)}/socket"
    here = {"additional_headers": cookie, "address": ("127.0.0.1", port), "subprotocols": ["talk"]}
    with connect(where, origin=f"http://{host_of(site)}", **here) as socket:
        assert socket.recv() == f"Bearer {site.key}"
    for stranger in (site.url, f"http://other.localhost:{port}"):
        with pytest.raises(InvalidStatus, match="401"):
            connect(where, origin=stranger, **here)


def test_the_programs_are_told_their_origin_and_pond_prints_it(site: Site) -> None:
    service = site.submit('command: [sh, -c, "echo $MILLPOND_ORIGIN; sleep 600"]', kind="service")
    origin = f"http://{service}.localhost:{urlsplit(site.url).port}"
    assert f"{origin}/" in site.pond("get", service).stdout
    until(lambda: site.pond.output(service).strip() == origin)
    assert site.pond("stop", service).returncode == 0
