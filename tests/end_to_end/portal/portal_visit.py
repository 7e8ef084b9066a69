"""A visit of the portal with a real Chromium, before a real server. Tests import the fixtures that they use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright import sync_api
from portal_scene import CHROMIUM, OPTIONS, SIZES
from real_pond import PATIENCE_S, Pond

if CHROMIUM is None:
    pytest.skip("chromium is not installed (apt-get install chromium)", allow_module_level=True)


PATIENCE_MS = 1000 * PATIENCE_S
expect = sync_api.expect
expect.set_options(timeout=PATIENCE_MS)

REFUSAL = re.compile("Failed to (load resource|fetch)|network error")

PHONE, DESKTOP = SIZES["phone"], SIZES["desktop"]


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    made = Pond(tmp_path_factory.mktemp("portal") / "state")
    made.up()
    yield made
    made.printed("down")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield browser
        browser.close()


def unheard(route: Any) -> None:
    """Have a request reach the server, and its answer lost."""
    route.fetch()
    route.abort()


class Visit:
    """One window, and what went wrong or out in it."""

    def __init__(self, chromium: Any, **options: Any) -> None:
        self.context = chromium.new_context(viewport=DESKTOP, locale="en-US", **options)
        self.context.set_default_timeout(PATIENCE_MS)  # of the windows too that the first one opens
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self._refusals_are_part_of_it = False
        self.hosts: set[str] = set()
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname))

    def forgive_refusals(self) -> None:
        """The browser notes each request that is refused, or that nobody answers: also late ones are no fault here."""
        self._refusals_are_part_of_it = True

    def complaints(self) -> list[str]:
        """What went wrong and should not have."""
        return [each for each in self.wrong if not (self._refusals_are_part_of_it and REFUSAL.search(each))]

    def enter(self, pond: Pond, *job: str) -> Any:
        """Come in by a link."""
        self.page.goto(pond.printed("open", "--print", *job))
        self.page.wait_for_url(re.compile(r"/portal/(jobs/.+)?$"))
        return self.page


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    made = Visit(chromium)
    yield made
    made.context.close()
    assert not made.complaints(), made.complaints()
    assert made.hosts <= {"127.0.0.1"}, made.hosts


def submit(pond: Pond, command: str, *options: str) -> str:
    return pond.printed("run", "--detach", *options, "--", "sh", "-c", command)


def base_of(page: Any) -> str:
    """The address of the server that a page is of."""
    parts = urlsplit(page.url)
    return f"{parts.scheme}://{parts.netloc}"
