"""What a node holds of images and data, as the API and its page show it."""

from __future__ import annotations

from typing import Any

from auth_world import API, AuthWorld
from portal_browser import browser_of

from millpond.model.contents import Content
from millpond.model.events import NodeContents

PYTHON, TORCH = "image:docker.io/library/python:3.12", "image:nvcr.io/nvidia/pytorch:24.05-py3"


def detail(world: AuthWorld, user: str) -> Any:
    return world.client(user).get(f"{API}/nodes/n1").json()


def test_a_node_is_shown_with_what_it_holds_the_largest_first_and_how_fast_it_fetches(world: AuthWorld) -> None:
    assert (detail(world, "olga")["contents"], detail(world, "olga")["fetch_rate"]) == ([], 0)
    assert "What it holds" not in browser_of(world, "olga").get("/portal/nodes/n1").text
    held = (Content(PYTHON, 10**9), Content(TORCH, 9 * 10**9), Content("data:faces@3"))
    world.loop.notify([NodeContents(world.clock.now, "n1", held, 50_000_000)])
    world.settled()
    found = detail(world, "olga")
    assert found["contents"] == [
        {"name": TORCH, "bytes": 9 * 10**9},
        {"name": PYTHON, "bytes": 10**9},
        {"name": "data:faces@3", "bytes": 0},
    ]
    assert found["fetch_rate"] == 50_000_000
    page = browser_of(world, "olga").get("/portal/nodes/n1").text
    assert page.index(TORCH) < page.index(PYTHON) < page.index("What is missing comes at 50 MB/s.")


def test_who_does_not_see_the_jobs_of_all_does_not_see_which_images_they_use(world: AuthWorld) -> None:
    world.loop.notify([NodeContents(world.clock.now, "n1", (Content(TORCH, 9 * 10**9),), 50_000_000)])
    world.settled()
    assert detail(world, "max")["contents"] == []
    assert TORCH not in browser_of(world, "max").get("/portal/nodes/n1").text
