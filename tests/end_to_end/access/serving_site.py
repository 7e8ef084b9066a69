"""A job that serves, on a real server, for tests of the proxy."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import httpx2
from real_pond import PATIENCE_S, Pond, until
from websockets.sync import client as websockets

PROGRAM = Path(__file__).with_name("serving_program.py")


connect = partial(websockets.connect, proxy=None, open_timeout=PATIENCE_S, ping_timeout=PATIENCE_S)
get = partial(httpx2.get, timeout=PATIENCE_S)
post = partial(httpx2.post, timeout=PATIENCE_S)


class Site:
    """A job that serves, on a real server."""

    def __init__(self, pond: Pond) -> None:
        self.pond = pond
        left = json.loads((pond.state_dir / "server.json").read_text())
        self.url = left["url"]
        self.token = Path(left["token_path"]).read_text().strip()
        program = shutil.copy(PROGRAM, pond.state_dir.parent)
        self.job = self.submit(f"command: [{sys.executable}, {program}]")
        until(lambda: self.get("").status_code == 200)
        until(lambda: pond.output(self.job).endswith("\n"))  # it says its key once it answers
        self.key = pond.output(self.job).strip()

    def submit(self, fields: str, kind: str = "dev") -> str:
        path = self.pond.state_dir.parent / "job.yaml"
        path.write_text(f"kind: {kind}\n{fields}\n")
        done = self.pond("submit", str(path))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def get(self, path: str, job: str = "", **headers: str) -> httpx2.Response:
        headers.setdefault("Authorization", f"Bearer {self.token}")
        return get(f"{self.url}/proxy/{job or self.job}/{path}", headers=headers)

    def seen(self, path: str = "", **headers: str) -> dict[str, str]:
        """The headers that the program saw."""
        return dict(self.get(path, **headers).json()["headers"])

    def signed_in(self) -> httpx2.Client:
        """A browser that has opened a link."""
        bearer = {"Authorization": f"Bearer {self.token}"}
        link = post(f"{self.url}/api/v1/jobs/{self.job}/link", headers=bearer).json()
        browser = httpx2.Client(base_url=self.url, timeout=PATIENCE_S)
        page = browser.get(link["open_path"])
        assert page.status_code == 200
        assert browser.get(link["open_path"]).status_code == 403, "a link works once"
        return browser

    def socket(self, path: str = "socket", **settings: object) -> websockets.ClientConnection:
        headers = {"Authorization": f"Bearer {self.token}"}
        where = f"{self.url.replace('http', 'ws', 1)}/proxy/{self.job}/{path}"
        return connect(where, additional_headers=headers, **settings)  # type: ignore[arg-type]
