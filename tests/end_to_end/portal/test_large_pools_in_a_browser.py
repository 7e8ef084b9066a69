"""The map of a pool of more nodes than are drawn card by card, in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from portal_visit import PHONE, Visit, chromium, expect, visit
from real_pond import Pond

pytestmark = pytest.mark.long

__all__ = ["chromium", "visit"]


@pytest.fixture(scope="module")
def wide_pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder = tmp_path_factory.mktemp("wide")
    nodes = "".join(
        f"- {{name: m{number:02}, devices: 2, model: V100-32GB, device_memory: 32GiB, rack: r{number // 10}}}\n"
        for number in range(70)
    )
    (folder / "cluster.yaml").write_text(f"nodes:\n{nodes}")
    pond = Pond(folder / "state")
    pond.up("--fake-gpus", "none", "--config", str(folder / "cluster.yaml"))
    yield pond
    pond.printed("down")


def test_by_the_keyboard_one_goes_down_from_the_map_to_a_rack_a_node_and_its_cards(
    wide_pond: Pond, visit: Visit
) -> None:
    page = visit.enter(wide_pond)
    rack = page.get_by_role("link", name=re.compile("^r3 0 of 20 cards held$"))
    rack.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/portal/nodes\?.*rack=r3"))
    names = page.locator("#nodes tbody td:first-child a")
    expect(names).to_have_text([f"m{number}" for number in range(30, 40)])
    names.nth(4).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/portal/nodes/m34$"))
    expect(page.locator("#card-1")).to_be_visible()


def test_a_click_on_a_cell_opens_its_block_on_a_phone_too(wide_pond: Pond, visit: Visit) -> None:
    page = visit.enter(wide_pond)
    page.set_viewport_size(PHONE)
    page.locator("[title='m55: 0/2']").click()
    page.wait_for_url(re.compile(r"/portal/nodes\?.*rack=r5"))
    expect(page.get_by_role("link", name="m55", exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
