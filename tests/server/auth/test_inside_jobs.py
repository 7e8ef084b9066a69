"""Who gets inside a job: links to what it serves, the proxy itself, commands and ports."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from auth_world import API, AuthWorld, error_of
from starlette.testclient import WebSocketDenialResponse

from millpond.specs.job.serving import OPEN_PATH


def opened(world: AuthWorld, job: str, user: str) -> bool:
    """Whether the proxy lets somebody's token in; nothing answers there, and what is not theirs is not there."""
    answer = world.client(user).get(f"/proxy/{job}/")
    assert answer.status_code in (503, 401, 403, 404), answer.text
    if answer.status_code == 404:
        assert answer.text.replace(job, "never-was") == world.client(user).get("/proxy/never-was/").text
    return answer.status_code == 503


@pytest.mark.parametrize(
    ("user", "inside"), [("max", True), ("amy", True), ("lea", False), ("mia", False), ("sam", False)]
)
def test_what_a_dev_job_serves_is_its_users_own(world: AuthWorld, user: str, inside: bool) -> None:
    job = world.submit("max", kind="dev")
    assert opened(world, job, user) is inside
    assert (world.client(user).post(f"{API}/jobs/{job}/link").status_code == 201) is inside


@pytest.mark.parametrize(("user", "inside"), [("max", True), ("lea", True), ("vic", True), ("sam", False), ("", False)])
def test_what_a_service_serves_is_for_its_group(world: AuthWorld, user: str, inside: bool) -> None:
    job = world.submit("max", kind="service")
    assert opened(world, job, user) is inside


def test_a_link_stops_working_for_who_has_lost_the_right(world: AuthWorld) -> None:
    job = world.submit("max", kind="service")
    link = world.client("vic").post(f"{API}/jobs/{job}/link").json()
    browser = world.client()
    assert browser.get(link["open_path"]).status_code == 200
    assert browser.get(link["path"]).status_code != 401
    world.client("olga").delete(f"{API}/groups/vision/members/vic")
    assert browser.get(link["path"]).status_code == 401
    world.client("olga").put(f"{API}/groups/vision/members/vic", json={"role": "viewer"})
    assert browser.get(link["path"]).status_code != 401
    world.client("olga").patch(f"{API}/users/vic", json={"disabled": True})
    assert browser.get(link["path"]).status_code == 401


def test_there_is_no_link_to_a_job_that_has_ended(world: AuthWorld) -> None:
    job = world.submit("max", kind="dev")
    world.settled()
    world.client("max").post(f"{API}/jobs/{job}/stop")
    world.settled()
    answer = world.client("max").post(f"{API}/jobs/{job}/link")
    assert (answer.status_code, error_of(answer).cause) == (409, f"job {job} has ended (cancelled)")
    assert "pond clone" in error_of(answer).remedy


def status_of(world: AuthWorld, address: str, user: str) -> tuple[int, str]:
    answer = world.client(user).get(f"/proxy/{address}/")
    return answer.status_code, answer.json()["error"]["cause"]


def test_the_name_of_a_living_job_leads_to_it_and_to_its_successor(world: AuthWorld) -> None:
    world.submit("max", kind="service")
    first = world.submit("max", kind="service", name="Chat")
    world.settled()
    assert status_of(world, "Chat", "max") == status_of(world, first, "max")
    assert status_of(world, "Chat", "vic") == status_of(world, first, "vic")
    assert status_of(world, "Chat", "sam") == (404, "no job 'Chat'")
    assert world.client().get("/proxy/Chat/").status_code == 401
    assert status_of(world, "", "max")[0] == 404  # not a job without a name
    world.client("max").post(f"{API}/jobs/{first}/stop")
    world.settled()
    assert status_of(world, "Chat", "max")[0] == 404
    second = world.submit("max", kind="service", name="Chat")
    world.settled()
    assert status_of(world, "Chat", "max") == status_of(world, second, "max")


def test_a_name_means_ones_own_job_and_of_several_none(world: AuthWorld) -> None:
    theirs = world.submit("mia", kind="service", name="chat")
    world.settled()
    assert theirs in status_of(world, "chat", "max")[1]
    mine = world.submit("max", kind="service", name="chat")
    world.settled()
    assert mine in status_of(world, "chat", "max")[1]
    status, cause = status_of(world, "chat", "vic")
    assert (status, theirs in cause, mine in cause) == (409, True, True)
    notebook = world.submit("sam", kind="dev", name="chat")
    world.settled()
    assert notebook not in status_of(world, "chat", "vic")[1]


def test_who_is_not_let_in_any_more_is_led_to_the_page_that_opens_the_job_again(world: AuthWorld) -> None:
    browser = world.client(Accept="text/html")
    assert '<a href="/portal/jobs/chat%22%3E">' in browser.get("/proxy/chat%22%3E/lab").text
    used = browser.get(f"{OPEN_PATH}?ticket=used")
    assert used.status_code == 403
    assert '<a href="/portal/sessions">' in used.text


def test_an_id_comes_before_a_name(world: AuthWorld) -> None:
    ended = world.submit("max", kind="service", name="chat")
    world.settled()
    world.client("max").post(f"{API}/jobs/{ended}/stop")
    world.submit("mia", kind="service", name=ended)
    world.settled()
    assert status_of(world, ended, "max")[0] == 410


def test_a_browser_that_opened_a_job_finds_its_successor_by_the_name(world: AuthWorld) -> None:
    first = world.submit("max", kind="dev", name="place")
    browser = world.client()
    link = world.client("max").post(f"{API}/jobs/{first}/link").json()
    assert browser.get(link["open_path"]).status_code == 200
    world.client("max").post(f"{API}/jobs/{first}/stop")
    second = world.submit("max", kind="dev", name="place")
    world.settled()
    led = browser.get("/proxy/place/lab?a=%20b", follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (307, f"/proxy/{second}/lab?a=%20b")
    assert browser.get(led.headers["location"]).status_code == 503
    assert world.client().get("/proxy/place/lab", follow_redirects=False).status_code == 401
    assert browser.get("/proxy/other/").status_code == 401
    world.client("olga").patch(f"{API}/users/max", json={"disabled": True})
    assert browser.get("/proxy/place/lab", follow_redirects=False).status_code == 401


def change_password(world: AuthWorld) -> None:
    world.accounts.set_password("max", "another hash")


def disable_for_a_while(world: AuthWorld) -> None:
    for disabled in (True, False):
        world.client("olga").patch(f"{API}/users/max", json={"disabled": disabled})


def unbind(world: AuthWorld) -> None:
    identities = world.security.sign_on.identities
    identities.bind("max", "https://login.test", "subject")
    identities.unbind("max")


def revoke_token(world: AuthWorld) -> None:
    (token,) = [each for each in world.accounts.tokens.all() if each.user == "max"]
    world.client("max").delete(f"{API}/tokens/{token.id}")


@pytest.mark.parametrize("void", [change_password, disable_for_a_while, unbind, revoke_token])
def test_what_a_browser_was_given_is_void_when_what_it_was_given_for_is(
    world: AuthWorld, void: Callable[[AuthWorld], None]
) -> None:
    job = world.submit("max", kind="dev")
    unused, used = (world.client("max").post(f"{API}/jobs/{job}/link").json() for _ in range(2))
    others = world.client("amy").post(f"{API}/jobs/{job}/link").json()
    browser, other = world.client(), world.client()
    assert browser.get(used["open_path"]).status_code == other.get(others["open_path"]).status_code == 200
    assert browser.get(used["path"]).status_code == 503
    void(world)
    assert browser.get(used["path"]).status_code == 401
    assert world.client().get(unused["open_path"]).status_code == 403
    assert other.get(others["path"]).status_code == 503
    again = world.client("max").post(f"{API}/jobs/{job}/link").json()
    assert browser.get(again["open_path"]).status_code == 200
    assert browser.get(again["path"]).status_code == 503


@pytest.mark.parametrize(("user", "status"), [("lea", 403), ("mia", 403), ("vic", 403), ("sam", 404), ("nob", 404)])
@pytest.mark.parametrize("door", ["exec", "forward"])
def test_commands_and_ports_are_the_users_own_and_others_are_told_so(
    world: AuthWorld, user: str, status: int, door: str
) -> None:
    job = world.submit("max", kind="dev")
    path = f"{API}/jobs/{job}/{door}"
    with pytest.raises(WebSocketDenialResponse) as refused, world.client(user).websocket_connect(path):
        raise AssertionError("let in")
    assert refused.value.status_code == status
    assert job in refused.value.json()["error"]["cause"]
    with world.client("max").websocket_connect(path) as inside:
        assert inside.receive_text()  # it is let in, and told that nothing runs there


def test_a_plan_names_no_victim_of_another_group(world: AuthWorld) -> None:
    theirs = world.submit("max", name="hidden", gpus=4, priority="low")
    world.settled()
    answer = world.client("sam").post(f"{API}/jobs/plan", json={"command": "x", "gpus": 4, "priority": "high"})
    assert answer.status_code == 200, answer.text
    assert theirs not in answer.text
    assert '"max"' not in answer.text
