"""Each page of the portal in a real Chromium, in English and the light, and in Chinese and the dark.

At the width of a desk, a tablet, a phone and paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python import sync_playwright as axe
from playwright import sync_api
from portal_scene import CHROMIUM, OPTIONS, SIZES, address, enter, pages, scene
from portal_visit import PATIENCE_MS

if CHROMIUM is None:
    pytest.skip("chromium is not installed (apt-get install chromium)", allow_module_level=True)


pytestmark = pytest.mark.long

GRAVE = ("serious", "critical")
TABLET = {"width": 768, "height": 1024}
NARROW = {"width": 320, "height": 640}
"""A desktop at 400 % (WCAG 1.4.10)."""
PAPER = {"width": 718, "height": 1046}
"""A4 within margins of a centimetre."""


class Window:
    """A window of the browser, and what went wrong or out in it."""

    def __init__(self, page: Any, names: dict[str, str]) -> None:
        self.page, self.names = page, names
        self.base = page.url.partition("/portal")[0]
        self.wrong: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or ""))


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with scene(tmp_path_factory.mktemp("pages")) as (pond, names), sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        context = browser.new_context(locale="en-US")
        context.set_default_timeout(PATIENCE_MS)
        yield Window(enter(context, pond), names)
        browser.close()


@pytest.fixture
def language(window: Window, request: pytest.FixtureRequest) -> Iterator[str]:
    """A language, which the window has meanwhile."""
    cookie = {"name": "millpond_language", "url": window.base}
    window.page.context.add_cookies([cookie | {"value": request.param}])
    yield request.param
    window.page.context.add_cookies([cookie | {"value": "en"}])


@pytest.mark.parametrize(("scheme", "language"), [("light", "en"), ("dark", "zh-CN")], indirect=["language"])
@pytest.mark.parametrize("path", pages())
def test_a_page_can_be_read_and_used_by_all_and_asks_nobody_else(
    window: Window, path: str, scheme: str, language: str
) -> None:
    page = window.page
    window.wrong.clear()
    window.hosts.clear()
    page.emulate_media(color_scheme=scheme)
    for viewport in SIZES.values():
        page.set_viewport_size(viewport)
        answer = page.goto(window.base + address(path, window.names))
        assert answer.status == 200
        assert page.locator("h1").first.is_visible()
        assert page.locator("html").get_attribute("lang") == language
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        found = axe.Axe().run(page).response["violations"]
        assert [_said(each) for each in found if each["impact"] in GRAVE] == []
    for viewport in (TABLET, NARROW):
        page.set_viewport_size(viewport)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER["width"]
    page.emulate_media(media="screen")
    assert window.wrong == []
    assert window.hosts == {"127.0.0.1"}


def test_every_page_fits_where_texts_are_twice_as_large(window: Window) -> None:
    context = window.page.context
    browser = context.browser.browser_type.launch(
        executable_path=CHROMIUM, args=[*OPTIONS, "--blink-settings=defaultFontSize=32"]
    )
    page = browser.new_context(storage_state=context.storage_state(), viewport=SIZES["desktop"]).new_page()
    for path in pages():
        page.goto(window.base + address(path, window.names))
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).fontSize") == "44px", path
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES["desktop"]["width"], path
    browser.close()


def test_colours_that_say_something_stay_where_a_reader_has_colours_of_their_own(window: Window) -> None:
    page = window.page
    page.goto(f"{window.base}/portal/")
    page.emulate_media(forced_colors="active")
    for mark in (".key.c-bad", "nav [aria-current]", ".tabs [aria-current]"):
        forced = page.locator(mark).first.evaluate("(mark) => getComputedStyle(mark).backgroundColor")
        page.emulate_media(forced_colors="none")
        assert page.locator(mark).first.evaluate("(mark) => getComputedStyle(mark).backgroundColor") == forced
        page.emulate_media(forced_colors="active")
    page.emulate_media(forced_colors="none")


def test_a_card_is_closed_and_opened_and_maintenance_planned_on_the_page_of_its_node(window: Window) -> None:
    page = window.page
    page.set_viewport_size(SIZES["desktop"])
    page.once("dialog", lambda dialog: dialog.accept())
    page.goto(f"{window.base}/portal/nodes/box-1")
    card = page.locator("#card-2")
    card.get_by_role("button", name="Close").click()
    card.get_by_role("button", name="Open").click()
    card.get_by_role("button", name="Close").wait_for()
    assert page.locator("#card-1 .s-running").is_visible(), "its neighbour is as it was"
    page.fill("[name=begin]", "2099-01-02T06:00")
    page.fill("[name=until]", "2099-01-01T06:00")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("alert").get_by_text("before it is closed").wait_for()
    window.wrong.clear()  # the browser notes each refused request
    page.fill("[name=until]", "2099-01-02T08:00")
    page.fill("[name=reason]", "<b>new disks</b>")
    page.get_by_role("button", name="Plan", exact=True).click()
    page.locator("#node").get_by_text("<b>new disks</b>").wait_for()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel maintenance").click()
    page.get_by_text("Nothing is planned.").wait_for()


def test_a_token_is_shown_once_and_revoked(window: Window) -> None:
    page = window.page
    page.goto(f"{window.base}/portal/admin/tokens")
    page.fill("[name=name]", "for <i>ci</i>")
    page.fill("[name=verbs]", "read-jobs, read-cluster")
    page.get_by_role("button", name="Make", exact=True).click()
    page.locator("[data-secret]").get_by_text("pond_").wait_for()
    secret = page.locator("[data-secret]").inner_text()
    row = page.locator("tr", has_text="for <i>ci</i>")
    row.get_by_text("read-cluster, read-jobs").wait_for()
    page.reload()
    assert secret not in page.content()
    page.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Revoke").click()
    row.wait_for(state="detached")


def test_a_user_is_added_with_an_invitation_and_disabled(window: Window) -> None:
    page = window.page
    page.goto(f"{window.base}/portal/admin/users")
    page.fill("[name=name]", "dora")
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("[data-secret]").get_by_text("pond_").wait_for()
    page.mouse.move(5, 5)
    row = page.locator("#user-dora")
    row.wait_for()
    page.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Disable").click()
    page.mouse.move(5, 5)
    row.get_by_text("disabled").wait_for()
    assert window.wrong == []


def _said(violation: dict[str, Any]) -> str:
    places = [" ".join(node["target"]) for node in violation["nodes"][:3]]
    return f"{violation['help']}: {'; '.join(places)}: {violation['nodes'][0]['failureSummary']}"
