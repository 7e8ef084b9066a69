"""The server's own documentation: all that its list names is there, for everybody, and nothing else is."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from api_world import Api

from millpond.server.api.description import DescribedApi


def test_the_list_leads_to_pages_that_are_there_without_a_login(api: Api) -> None:
    answer = api.client.get("/llms.txt", headers={"Authorization": ""})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    links = re.findall(r"\]\(([^)]+)\): ", answer.text)
    assert len(links) > 20
    for link in links:
        page = api.client.get(link, headers={"Authorization": ""})
        assert (page.status_code, page.headers["content-type"]) == (200, "text/markdown; charset=utf-8"), link
        for other in re.findall(r"\]\((?!https?:)([^)#]+\.md)", page.text):
            target = page.url.join(other)
            assert not target.path.startswith("/docs/") or api.client.get(str(target)).status_code == 200, (link, other)


@pytest.mark.parametrize("path", ["nobody.md", "../pyproject.toml", "..%2f..%2fetc/passwd", "images/portal.png", "%00"])
def test_what_is_no_page_is_not_shown(api: Api, path: str) -> None:
    assert api.client.get(f"/docs/{path}").status_code == 404


def test_the_description_is_made_beside_the_loop_which_serves_others_meanwhile(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, openapi = list[str](), DescribedApi.openapi

    def watched(self: DescribedApi) -> dict[str, Any]:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        made.append(self.title)
        return openapi(self)

    monkeypatch.setattr(DescribedApi, "openapi", watched)
    assert "JobFile" in api.client.get("/openapi.json").json()["components"]["schemas"]
    assert "JobFile" in api.client.get("/docs").text
    assert made
