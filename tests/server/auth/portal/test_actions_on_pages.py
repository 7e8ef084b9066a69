"""Each role on each page of the portal: it is offered what the API lets it do, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import pytest
from auth_world import API, AuthWorld
from fastapi import Request
from fastapi.testclient import TestClient
from portal_browser import VISIT, browser_of
from starlette.routing import Match

from millpond.model.errors import MillpondError
from millpond.server.api.permits import permits_of, routes_of
from millpond.server.auth.audit import Act
from millpond.server.auth.roles import Caller, Verb
from millpond.server.web.portal import portal_routes
from seeds import few_then_many

ROLES = ("olga", "lea", "max", "mia", "vic", "dan", "reads", "sue", "nob")
"""Those of other tests; and dan, who had a job when he became a viewer, and max by a token that reads and no more."""
SEEN_BY = {"few": ("olga", "lea", "max", "reads", "nob"), "all": ROLES}
"""By whom the pages are looked at. Quick tests have a few; all roles are at each route in `test_roles_and_routes`."""
NO_PAGES = (
    *("/portal/stream", "/portal/enter", "/portal/static/", "/portal/language/", "/portal/login", "/portal/views/"),
    *("/portal/{path", "/portal/what-if/answer", "/portal/jobs/{job}/output", "/portal/job-ids"),
)
QUESTIONS = {
    "/portal/queues/{queue}/edit": "?preview=1&weight=2",
    "/portal/new-queue": "?preview=1&name=new",
    "/portal/curves": "?job={job}",
}
BY_SCRIPT = {
    "keep": [("POST", f"{API}/views")],
    "reserve": [("PUT", f"{API}/reservations/new")],
    "bulk": [("POST", f"{API}/jobs/act")],
    "submit": [("POST", f"{API}/jobs"), ("POST", "/portal/submit/draft"), ("POST", "/portal/submit/plan")],
}
"""What scripts ask for, by the id of the element that they are about."""

Action = tuple[str, str]


class PageContent(HTMLParser):
    """What can be asked of the server on a page.

    Attributes:
        text: all of it.
        actions: methods and paths.
        links: where it leads within the portal.
        twins: the requests that give a program the same.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = page
        self.actions: set[Action] = set()
        self.links: set[str] = set()
        self.twins: list[str] = []
        self._read_as = ""
        self._of_a_group: Action | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        is_group = tag == "option" and self._read_as in ("groups", "group")
        self._read_as = "twin" if has.get("class") == "twin" else "group" if is_group else ""
        if tag == "select" and has.get("name") == "group" and "data-path" in has:
            self._read_as = "groups"
        if tag == "a" and has.get("href", "").startswith(("/portal/", "?")):
            self.links.add(has["href"])
        if tag == "input" and "disabled" in has:
            return
        for method in ("post", "put", "patch", "delete"):
            if f"hx-{method}" in has:
                self._add(method, has[f"hx-{method}"])
        for name in ("hx-action", "data-send", "data-call", "data-notify", "data-test", "data-open"):
            if name in has:
                self._add(has.get("hx-method") or has.get("data-method", "POST"), has[name])
        if "data-start" in has:
            self._add("POST", "/portal/sessions")
        if "data-trial" in has:
            self._add("POST", f"{API}/notifications/trial")
        if "data-channel" in has:
            self._add("PUT", f"{API}/notifications/rules")
        self.actions.update(BY_SCRIPT.get(has.get("id", ""), ()))

    def handle_data(self, data: str) -> None:
        if self._read_as == "twin":
            self.twins.append(data)
            self._read_as = ""
        elif self._read_as == "group" and self._of_a_group is not None and data.strip():
            method, path = self._of_a_group
            self.actions.add((method, path.format(group=data, user="new")))

    def _add(self, method: str, address: str) -> None:
        action = method.upper(), urlsplit(address).path
        if "{group}" in action[1]:
            self._of_a_group = action
        else:
            self.actions.add(action)


@dataclass(frozen=True, slots=True)
class Scene:
    """A server with something on each page.

    Attributes:
        clients: programs of each role.
        browsers: of each role.
        pages: what each role sees by the addresses of all pages; None where it sees none.
    """

    world: AuthWorld
    clients: dict[str, TestClient]
    browsers: dict[str, TestClient]
    pages: dict[str, dict[str, PageContent | None]]

    def permits(self, role: str, action: Action) -> bool:
        """Whether the permit of the API's route lets a role do this to that object."""
        method, path = action
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
        for route in routes_of(self.world.routes):
            match, found = route.matches(scope)
            if match is Match.FULL:
                act = Act(0.0, "", self._caller(role))
                request = Request({**scope, **found, "app": self.world.routes, "state": {"act": act}})
                [permit] = permits_of(route)
                browser = self.browsers[role]
                assert browser.portal is not None
                try:
                    browser.portal.call(permit, request)
                except MillpondError:
                    return False
                return True
        raise AssertionError(f"no route for {action}")

    def refuses(self, role: str, action: Action) -> bool:
        """Whether the API refuses the request itself, by what its body or its object says."""
        method, path = action
        body = {"queue": "vision", "cards": 1, "begin": 9.2e9, "until": 9.3e9} if "/reservations/" in path else None
        return self.clients[role].request(method, path, json=body).status_code in (403, 404)

    def _caller(self, role: str) -> Caller:
        cookies = self.browsers[role].cookies.items()
        session = next(value for name, value in cookies if name.endswith("session"))
        caller = self.world.accounts.caller(session, session=True)
        assert caller is not None
        return caller


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Scene]:
    world = AuthWorld.populated(tmp_path_factory.mktemp("actions"))
    jobs = _arrange(world)
    verbs = [verb.value for verb in Verb if verb.value.startswith("read-")]
    secret = world.client("max").post(f"{API}/tokens", json={"name": "reads", "verbs": verbs}).json()["secret"]
    clients = {role: world.client(role) for role in ROLES if role != "reads"}
    clients["reads"] = world.client(Authorization=f"Bearer {secret}")
    browsers = {role: browser_of(world, role) for role in ROLES if role != "reads"}
    link = clients["reads"].post(f"{API}/portal/links", json={}).json()["url"]
    browsers["reads"] = world.client(**VISIT)
    assert browsers["reads"].get(link).status_code == 200
    pages = {page: {role: _read(browsers[role], page) for role in SEEN_BY[request.param]} for page in _addresses(jobs)}
    yield Scene(world, clients, browsers, pages)
    world.close()


def _arrange(world: AuthWorld) -> list[str]:
    """Something on each page; returns jobs, in all states in which other things can be done to one."""
    owner, lead, member = world.client("olga"), world.client("lea"), world.client("max")
    assert owner.post(f"{API}/users", json={"name": "dan", "group": "vision"}).status_code == 201
    served: dict[str, Any] = {"serve": {"path": "rest"}, "gpus": 0.25, "time_limit": "1h"}
    rests, ended = world.submit("max", gpus=0.25), world.submit("max", gpus=0.25)
    jobs = [
        rests,
        ended,
        world.submit("max", kind="dev", **served),
        world.submit("max", kind="service", **served | {"time_limit": None}),
        world.submit("dan", kind="dev", **served),
        world.submit("max", gpus=4),
        world.submit("max", array={"count": 2}),
    ]
    world.settled()
    arranged = (
        owner.post(f"{API}/jobs/{rests}/suspend"),
        owner.post(f"{API}/jobs/{ended}/stop"),
        owner.patch(f"{API}/queues/vision", json={"fields": {"guarantee": {"gpus": 4}}}),
        owner.put(f"{API}/groups/vision/members/dan", json={"role": "viewer"}),
        owner.post(f"{API}/nodes/n1/close", json={"card": 3, "reason": "hot"}),
        owner.post(f"{API}/nodes/n1/close", json={"begin": 9e9, "until": 9.1e9}),
        owner.post(f"{API}/webhooks", json={"name": "room", "url": "https://chat.example.org/1"}),
        lead.put(f"{API}/groups/vision/invitations/guest", json={"role": "member"}),
        lead.post(f"{API}/views", json={"name": "ours", "query": "queue=vision", "group": "vision"}),
        member.post(f"{API}/views", json={"name": "mine", "query": "state=queued"}),
        *(
            client.put(
                f"{API}/reservations/{name}", json={"queue": "vision", "cards": 1, "begin": 9.2e9, "until": 9.3e9}
            )
            for name, client in (("talk", lead), ("demo", member))
        ),
    )
    assert [answer.text for answer in arranged if answer.is_error] == []
    world.settled()
    return jobs


def _addresses(jobs: list[str]) -> Iterator[str]:
    """All pages, found among the routes, so that none is forgotten."""
    names = {"node": "n1", "name": "n1", "queue": "vision"}
    for path in sorted({route.path for route in portal_routes() if "GET" in getattr(route, "methods", ())}):
        if path.startswith(NO_PAGES) or path.endswith(".csv"):
            continue
        address = re.sub(r"\{(\w+)\}", lambda name: names.get(name[1], name[0]), path) + QUESTIONS.get(path, "")
        yield from (address.format(job=job) for job in (jobs if "{job}" in address else jobs[:1]))


def _read(browser: TestClient, page: str) -> PageContent | None:
    answer = browser.get(page)
    assert answer.status_code in (200, 403, 404), (page, answer.text)
    return PageContent(answer.text) if answer.status_code == 200 else None


def _object_of(action: Action) -> str:
    """The name or id in its path."""
    return action[1].removeprefix(API).split("/")[2] if action[1].count("/") > 3 else ""


@pytest.mark.parametrize("scene", few_then_many(["few"], ["all"]), indirect=True)
def test_who_may_do_something_is_offered_it_and_who_may_not_is_not(scene: Scene) -> None:
    wrong, offered, permits = [], set(), cache(scene.permits)
    for page, seen in scene.pages.items():
        for action in sorted(set().union(*(content.actions for content in seen.values() if content is not None))):
            for role, content in seen.items():
                if content is None:
                    continue
                may = permits(role, action)
                if action in content.actions:
                    offered.add(action[1])
                    wrong += [] if may else [f"{page} offers {role} what is refused: {action}"]
                elif may and _object_of(action) in content.text and not scene.refuses(role, action):
                    wrong.append(f"{page} does not offer {role} what is allowed: {action}")
    assert wrong == []
    assert {"/portal/sessions", f"{API}/users", f"{API}/jobs/act", f"{API}/reservations/demo"} <= offered


@pytest.mark.parametrize("scene", few_then_many(["few"], ["all"]), indirect=True)
def test_a_way_into_a_program_is_offered_to_those_alone_whom_it_lets_in(scene: Scene) -> None:
    refused, asked = [], 0
    for page, seen in scene.pages.items():
        for role, content in seen.items():
            for method, path in sorted(set() if content is None else content.actions):
                if path.endswith("/link"):
                    asked += 1
                    answer = scene.clients[role].request(method, path)
                    refused += [] if answer.is_success else [(page, role, path, answer.text)]
    assert refused == []
    assert asked > len(next(iter(scene.pages.values())))


@pytest.mark.long
@pytest.mark.parametrize("scene", ["all"], indirect=True)
def test_every_link_on_a_page_leads_its_reader_somewhere(scene: Scene) -> None:
    wrong = []
    for role in ("olga", "lea", "max", "reads", "nob"):
        known = {page: content for page, seen in scene.pages.items() if (content := seen[role]) is not None}
        links = {
            link if link.startswith("/") else page.partition("?")[0] + link
            for page, content in known.items()
            for link in content.links
        }
        for link in sorted(links):
            if not link.startswith("/portal/language/"):
                answer = scene.browsers[role].get(link)
                wrong += [] if answer.status_code == 200 else [(role, link, answer.status_code)]
    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize("scene", ["all"], indirect=True)
def test_every_page_names_a_request_that_gives_a_program_the_same(scene: Scene) -> None:
    wrong = []
    for page, seen in scene.pages.items():
        for role, content in seen.items():
            if content is None:
                continue
            wrong += [] if content.twins else [(role, page, "none")]
            for method, path in (twin.split(" ", 1) for twin in content.twins):
                if method == "GET":
                    answer = scene.clients[role].get(path)
                    wrong += [] if answer.status_code == 200 else [(role, page, path, answer.text)]
    assert wrong == []
