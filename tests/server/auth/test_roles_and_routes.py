"""Every role at every route of our own description: let in, refused, or told that there is no such thing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from auth_world import API, PASSWORD, AuthWorld, error_of, public_key
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from millpond.model.errors import InconsistentStateError
from millpond.model.folders import digest_of
from millpond.server.api.permits import check_permits, permits_of, routes_of
from millpond.server.auth.records import TokenKind, User
from millpond.server.auth.roles import RIGHTS, Scope, UserRole, Verb
from millpond.server.storage.files.datasets import Dataset, Datasets
from millpond.server.storage.provisioning.catalogue import CatalogueImage
from millpond.specs.api.accounts.ssh import PublicKey
from millpond.specs.api.jobs.saved_views import SavedViewInfo
from millpond.specs.job.snapshots import FileEntry, FolderSnapshot

ROLES = ("olga", "amy", "lea", "max", "mia", "vic", "sam", "sue", "nob", "")
"""Owner, admin, lead, the member whose objects they are, another member, viewer, two of another group, one of no group,
and nobody."""

OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("POST", f"{API}/login")}
OPEN_ABOUT_ONE = {("POST", f"{API}/oidc/logins"), ("POST", f"{API}/oidc/logins/{{login}}")}
"""Open as well; they say 404 on a server that knows no provider, and for a login that nobody began."""

# + let in   - refused (403)   0 not there (404)   ! not logged in (401)   ? let in, and there is no such thing (404)
ALLOWED = {
    #                                          olga amy lea max mia vic sam sue nob nobody
    ("GET", "/server"): "+++++++++!",
    ("GET", "/nodes"): "+++++++++!",
    ("GET", "/nodes/{node}"): "+++++++++!",
    ("GET", "/settings"): "++-------!",
    ("GET", "/adaptation"): "++-------!",
    ("GET", "/overview"): "+++++++++!",
    ("GET", "/time-series"): "+++++++++!",
    ("GET", "/time-series/fairness"): "+++++++++!",
    ("GET", "/curves"): "+++++++++!",
    ("POST", "/portal/links"): "+++++++++!",
    ("GET", "/reservations"): "+++++++++!",
    ("PUT", "/reservations/{name}"): "+++++----!",
    ("DELETE", "/reservations/{name}"): "?????-??-!",
    ("GET", "/jobs"): "+++++++++!",
    ("POST", "/jobs"): "+++++-++-!",
    ("POST", "/jobs/act"): "+++++-++-!",
    ("GET", "/jobs/{job}"): "++++++000!",
    ("GET", "/jobs/{job}/why"): "++++++000!",
    ("GET", "/jobs/{job}/events"): "++++++000!",
    ("GET", "/jobs/{job}/cards"): "++++++000!",
    ("GET", "/jobs/{job}/logs"): "++++++000!",
    ("GET", "/jobs/{job}/logs/search"): "++++++000!",
    ("GET", "/jobs/{job}/document"): "++++--000!",
    ("DELETE", "/jobs/{job}"): "++++--000!",
    ("GET", "/events"): "+++++++++!",
    ("GET", "/devices"): "+++++++++!",
    ("GET", "/nodes/{node}/events"): "+++++++++!",
    ("DELETE", "/nodes/{node}"): "++-------!",
    ("POST", "/nodes/{node}/close"): "++-------!",
    ("POST", "/nodes/{node}/open"): "++-------!",
    ("POST", "/jobs/{job}/stop"): "++++--000!",
    ("POST", "/jobs/{job}/suspend"): "++++--000!",
    ("POST", "/jobs/{job}/resume"): "++++--000!",
    ("POST", "/jobs/{job}/requeue"): "++++--000!",
    ("POST", "/jobs/{job}/priority"): "++++--000!",
    ("POST", "/jobs/{job}/resize"): "++++--000!",
    ("POST", "/jobs/{job}/migrate"): "++++--000!",
    ("GET", "/whoami"): "+++++++++!",
    ("POST", "/logout"): "+++++++++!",
    ("PUT", "/password"): "+++++++++!",
    ("GET", "/users"): "+++++++++!",
    ("POST", "/users"): "++-------!",
    ("PATCH", "/users/{user}"): "++----000!",
    ("POST", "/users/{user}/invitation"): "++----000!",
    ("PUT", "/users/{user}/identity"): "??----000!",
    ("DELETE", "/users/{user}/identity"): "??----000!",
    ("GET", "/groups"): "+++++++++!",
    ("POST", "/groups"): "++-------!",
    ("PATCH", "/groups/{group}"): "++----000!",
    ("PUT", "/groups/{group}/members/{user}"): "+++---000!",
    ("DELETE", "/groups/{group}/members/{user}"): "+++---000!",
    ("PUT", "/groups/{group}/invitations/{user}"): "+++---000!",
    ("DELETE", "/groups/{group}/invitations/{user}"): "+++---000!",
    ("POST", "/groups/{group}/membership"): "?????????!",
    ("DELETE", "/groups/{group}/membership"): "?????????!",
    ("GET", "/tokens"): "+++++++++!",
    ("POST", "/tokens"): "+++++++++!",
    ("DELETE", "/tokens/{token}"): "++0+00000!",
    ("GET", "/ssh"): "+++++++++!",
    ("GET", "/ssh-keys"): "+++++++++!",
    ("POST", "/ssh-keys"): "+++++++++!",
    ("DELETE", "/ssh-keys/{key}"): "++0+00000!",
    ("GET", "/audit"): "+++----+-!",
    ("POST", "/jobs/plan"): "+++++-++-!",
    ("POST", "/jobs/batch"): "+++++-++-!",
    ("POST", "/jobs/{job}/extend"): "++++--000!",
    ("POST", "/jobs/{job}/link"): "++-+--000!",
    ("PUT", "/jobs/{job}/stdin"): "++-+--000!",
    ("GET", "/jobs/{job}/service"): "++++++000!",
    ("POST", "/jobs/{job}/revisions"): "++++--000!",
    ("POST", "/jobs/{job}/revisions/plan"): "++++--000!",
    ("POST", "/jobs/{job}/rollout"): "++++--000!",
    ("GET", "/jobs/{job}/metrics"): "++++++000!",
    ("GET", "/jobs/{job}/trials"): "++++++000!",
    ("GET", "/jobs/{job}/result"): "??????000!",
    ("GET", "/jobs/{job}/output"): "++++++000!",
    ("GET", "/jobs/{job}/output/{path}"): "??????000!",
    ("POST", "/jobs/{job}/output"): "++++++000!",
    ("POST", "/blobs/missing"): "+++++-++-!",
    ("POST", "/blobs"): "+++++-++-!",
    ("GET", "/blobs/{digest}"): "+++++-++-!",
    ("PUT", "/blobs/{digest}"): "+++++-++-!",
    # of a run's own pods alone
    ("GET", "/runs/{job}/{attempt}/{task}/contents/{digest}"): "000000000!",
    ("POST", "/runs/{job}/{attempt}/{task}/contents"): "000000000!",
    ("POST", "/runs/{job}/{attempt}/{task}/state"): "000000000!",
    ("POST", "/runs/{job}/{attempt}/{task}/output"): "000000000!",
    ("POST", "/runs/{job}/{attempt}/{task}/metrics"): "000000000!",
    ("GET", "/datasets"): "+++++++++!",
    ("GET", "/queues"): "+++++++++!",
    ("GET", "/cells"): "+++++++++!",
    ("GET", "/queues/{queue}"): "++++++000!",
    ("POST", "/queues"): "++-------!",
    ("PATCH", "/queues/{queue}"): "++----000!",
    ("DELETE", "/queues/{queue}"): "++----000!",
    ("GET", "/datasets/{name}/{version}/files"): "?????????!",
    ("GET", "/datasets/{name}/{version}/files/{path}"): "?????????!",
    ("POST", "/datasets/{name}/{version}/files"): "?????????!",
    ("POST", "/datasets/{name}"): "++++-----!",
    ("PATCH", "/datasets/{name}"): "++++-----!",
    ("DELETE", "/datasets/{name}/{version}"): "????-----!",
    ("GET", "/images"): "+++++++++!",
    ("POST", "/images"): "++++-----!",
    ("POST", "/images/build"): "++++-----!",
    ("POST", "/images/save"): "??-?--00-!",
    ("POST", "/images/{name}/{tag}/pull"): "++++++000!",
    ("POST", "/images/{name}/{tag}/push"): "++++-----!",
    ("PATCH", "/images/{name}/{tag}"): "++++-----!",
    ("DELETE", "/images/{name}/{tag}"): "++++-----!",
    ("GET", "/views"): "+++++++++!",
    ("POST", "/views"): "+++++++++!",
    ("DELETE", "/views/{view}"): "++0+00000!",
    ("GET", "/notifications"): "+++++++++!",
    ("PUT", "/notifications/rules"): "+++++++++!",
    ("POST", "/notifications/address"): "+++++++++!",
    ("POST", "/notifications/address/confirm"): "?????????!",
    ("DELETE", "/notifications/address"): "+++++++++!",
    ("PUT", "/notifications/chat"): "?????????!",
    ("DELETE", "/notifications/chat"): "+++++++++!",
    ("POST", "/notifications/trial"): "?????????!",
    ("GET", "/usage"): "+++++++++!",
    ("GET", "/usage/waits"): "+++++++++!",
    ("GET", "/usage/waits/jobs"): "+++++++++!",
    ("GET", "/history"): "+++++++++!",
    ("POST", "/what-if"): "+++----+-!",
    ("GET", "/webhooks"): "++-------!",
    ("POST", "/webhooks"): "++-------!",
    ("DELETE", "/webhooks/{name}"): "??-------!",
    ("GET", "/webhooks/deliveries"): "++-------!",
    ("GET", "/webhooks/deliveries/{delivery}"): "??-------!",
    ("POST", "/webhooks/{name}/test"): "??-------!",
    ("GET", "/secrets"): "+++++-++-!",
    ("PUT", "/secrets/{kind}/{owner}/{secret}"): "++0+00000!",
    ("DELETE", "/secrets/{kind}/{owner}/{secret}"): "++0+00000!",
}
TABLE = {(method, API + path): dict(zip(ROLES, row, strict=True)) for (method, path), row in ALLOWED.items()}
TABLE["GET", "/metrics"] = dict(zip(ROLES, "++-------!", strict=True))
STATUS = {"-": 403, "0": 404, "!": 401, "?": 404}
SECRET = "secret-plan"
TORCH = CatalogueImage("torch", "2.4", "built by max", "sha256:0", 1, "max", "vision", "group", "", 0.0)
LISTS = (
    *("jobs?all=true", "jobs", "nodes", "devices", "users", "groups", "tokens", "views"),
    *("ssh-keys", "audit", "server", "queues", "usage?by=job", "events", "events?after=0", "secrets", "history"),
)

_numbers = itertools.count()
_jobs: dict[tuple[AuthWorld, str, str], str] = {}
"""Of max's, by their name and group, that nothing has become of."""


def bodies(number: int) -> dict[tuple[str, str], Any]:
    """A valid body for each route that takes one."""
    return {
        ("POST", "/jobs"): {"command": "x"},
        ("POST", "/jobs/plan"): {"command": "x"},
        ("POST", "/jobs/batch"): {"jobs": [{"command": "x"}]},
        ("POST", "/jobs/{job}/priority"): {"priority": "low"},
        ("POST", "/jobs/act"): {"act": "stop", "jobs": ["nothing"]},
        ("POST", "/what-if"): {"submit": [{"command": "x"}]},
        ("POST", "/nodes/{node}/close"): {"reason": "moving", "begin": 9e9, "until": 9.1e9},
        ("POST", "/nodes/{node}/open"): {"planned": True},
        ("POST", "/jobs/{job}/extend"): {"by_s": 60},
        ("POST", "/jobs/{job}/resize"): {"tasks": 1},
        ("POST", "/jobs/{job}/migrate"): {"restart": True},
        ("POST", "/jobs/{job}/revisions"): {"document": {"command": "x", "kind": "service"}},
        ("POST", "/jobs/{job}/revisions/plan"): {"document": {"command": "x", "kind": "service"}},
        ("POST", "/jobs/{job}/rollout"): {"act": "pause"},
        ("POST", "/queues"): {"name": f"queue{number}"},
        ("PATCH", "/queues/{queue}"): {"fields": {"weight": number + 1}},
        ("PUT", "/password"): {"new_password": "short"},
        ("POST", "/users"): {"name": f"new{number}"},
        ("PATCH", "/users/{user}"): {"disabled": True},
        ("PUT", "/users/{user}/identity"): {"subject": "s"},
        ("POST", "/groups"): {"name": f"group{number}"},
        ("PATCH", "/groups/{group}"): {"limits": {}},
        ("PUT", "/groups/{group}/members/{user}"): {"role": "viewer"},
        ("PUT", "/groups/{group}/invitations/{user}"): {"role": "viewer"},
        ("POST", "/tokens"): {"name": "mine"},
        ("POST", "/views"): {"name": "mine", "query": "state=queued"},
        ("PUT", "/notifications/rules"): {"rules": [{"topic": "job.failed", "channels": ["mail"]}]},
        ("POST", "/notifications/address"): {"address": "nobody@example.org"},
        ("POST", "/notifications/address/confirm"): {"code": "1"},
        ("PUT", "/notifications/chat"): {"url": "https://chat.example.org/1"},
        ("POST", "/webhooks"): {"name": f"hook{number}", "url": "https://chat.example.org/1"},
        ("POST", "/ssh-keys"): {"key": public_key(f"key {number}")},
        ("POST", "/blobs/missing"): {"digests": []},
        ("POST", "/jobs/{job}/output"): {"paths": []},
        ("POST", "/datasets/{name}/{version}/files"): {"paths": []},
        ("POST", "/runs/{job}/{attempt}/{task}/contents"): {"digests": []},
        ("POST", "/runs/{job}/{attempt}/{task}/state"): {"ended": True},
        ("POST", "/runs/{job}/{attempt}/{task}/output"): {"snapshot": "0" * 64},
        ("POST", "/blobs"): {"command": "x"},
        ("PUT", "/blobs/{digest}"): {"command": "x"},
        ("PUT", "/secrets/{kind}/{owner}/{secret}"): {"value": "quiet"},
        ("POST", "/datasets/{name}"): {"snapshot": "0" * 64},
        ("PATCH", "/datasets/{name}"): {"visibility": "group"},
        ("POST", "/images"): {"name": "torch", "tag": "2.4", "reference": "localhost/never-was"},
        ("POST", "/images/build"): {"name": "torch", "tag": "2.4", "snapshot": "0" * 64},
        ("POST", "/images/{name}/{tag}/push"): {"reference": "127.0.0.1:1/never/was"},
        ("PATCH", "/images/{name}/{tag}"): {"description": "better"},
    }


def put_photos(world: AuthWorld, group: str = "vision") -> None:
    """A dataset of max's for a group; the same again changes nothing."""
    client = world.client("max")
    folder = FolderSnapshot(files=(FileEntry(path="a", digest=digest_of(b"x"), size=1),)).encoded()
    for content in (b"x", folder):
        assert client.put(f"{API}/blobs/{digest_of(content)}", content=content).status_code == 201
    if group != "vision":  # max's first, for which the server takes it
        photos = Dataset("photos", 0, digest_of(folder), 1, 1, "max", 1.0, group=group, visibility="group")
        Datasets(world.store.database).add(photos)
        return
    answer = client.post(f"{API}/datasets/photos", json={"snapshot": digest_of(folder)})
    assert answer.status_code == 201, answer.text


def objects_on(path: str, world: AuthWorld, group: str, number: int) -> dict[str, str]:
    """What a path names, made for this request; jobs apart, which are made once for several."""
    objects = {
        "group": group,
        "queue": group,
        "path": "a",
        "name": "photos",
        "version": "9",
        "attempt": "1",
        "task": "0",
        "node": "n1",
        "digest": "0" * 64,
        "delivery": "9",
    }
    if "/datasets/{name}" in path and not Datasets(world.store.database).all():
        put_photos(world, group)
    if "{user}" in path:
        objects["user"] = world.accounts.add_user(User(f"user{number}"), group).name
    if "/invitations/" in path:
        objects["user"] = f"guest{number}"
        world.security.invitations.invite(group, objects["user"], UserRole.MEMBER, "lea")
    if "{secret}" in path:
        objects |= {"kind": "user", "owner": "max", "secret": f"TOKEN_{number}"}
        world.vault.put("user", "max", objects["secret"], SECRET, "max")
    if "/images" in path:
        objects |= {"name": "torch", "tag": "2.4"}
        world.provisioning.catalogue.put(replace(TORCH, group=group))
    if "{token}" in path:
        token, _ = world.accounts.tokens.issue("max", TokenKind.PERSONAL, 60.0, SECRET)
        objects["token"] = token.id
    if "{key}" in path:
        key = PublicKey.parse(public_key(f"key of max {number}"))
        objects["key"] = world.security.keys.add("max", key, SECRET).id
    if "{view}" in path:
        view = SavedViewInfo(id=f"view{number}", user="max", name=SECRET, query=f"name={SECRET}", by="max")
        world.store.saved_views.save(view)
        objects["view"] = view.id
    return objects


def ask(
    world: AuthWorld, method: str, path: str, client: TestClient, *, absent: bool = False, group: str = "vision"
) -> Any:
    """The request, on objects of max and of a group to which nothing was done before, or on ones that never were."""
    number = next(_numbers)
    objects = objects_on(path, world, group, number)
    if "{job}" in path or path.endswith("/images/save"):
        name = SECRET if "{job}" in path else "plain"
        objects["job"] = _jobs.pop((world, name, group), "") or world.submit("max", name=name, kind="dev", queue=group)
    if absent:
        objects = dict.fromkeys(objects, "never-was") | dict.fromkeys(("version", "attempt", "task", "delivery"), "9")
        objects["digest"] = "0" * 64
    body = bodies(number).get((method, path.removeprefix(API)))
    if "/reservations/" in path:
        body = {"queue": group, "cards": 1, "until": 1e10}
    if path.endswith("/images/save"):
        body = {"name": "torch", "tag": "2.4", "job": objects["job"]}
    answer = client.request(method, path.format(**objects), json=body)
    if "job" in objects and not absent:
        if method == "GET" or answer.is_error:  # it is as it was
            _jobs[world, name, group] = objects["job"]
        else:
            world.client("olga").post(f"{API}/jobs/{objects['job']}/stop")
    return answer, objects


def test_the_table_has_every_route_of_the_description_and_no_other(shared: AuthWorld) -> None:
    described = shared.client().get("/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert routes == set(TABLE) | OPEN | OPEN_ABOUT_ONE


@pytest.mark.parametrize(("method", "path"), TABLE, ids=lambda part: part.removeprefix(API))
def test_each_role_gets_what_the_table_says(shared: AuthWorld, method: str, path: str) -> None:
    for role, expected in TABLE[method, path].items():
        answer, _ = ask(shared, method, path, shared.client(role))
        if expected == "?":
            assert answer.status_code == 404, (role, answer.text)
        elif expected == "+":
            assert answer.status_code not in (401, 403, 404, 500), (role, answer.text)
        else:
            assert answer.status_code == STATUS[expected], (role, answer.text)
            assert error_of(answer).remedy
            assert SECRET not in answer.text.replace(answer.request.url.path, "") or "{job}" in path


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "path"), [key for key in TABLE if "0" in TABLE[key].values()], ids=lambda part: part.removeprefix(API)
)
def test_what_is_not_ones_own_reads_like_what_never_was(shared: AuthWorld, method: str, path: str) -> None:
    for role, expected in TABLE[method, path].items():
        if expected == "0":
            answer, objects = ask(shared, method, path, shared.client(role))
            never, _ = ask(shared, method, path, shared.client(role), absent=True)
            text = answer.text
            for name in sorted(objects.values(), key=len, reverse=True):
                text = text.replace(f"'{name}'", "'never-was'")
            text = text.replace(f"'{TORCH.reference}'", "'never-was:never-was'")
            assert (answer.status_code, text) == (never.status_code, never.text)


@pytest.fixture(scope="module")
def in_two_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthWorld]:
    """A server on which max is a member of both groups."""
    world = AuthWorld(tmp_path_factory.mktemp("two")).populate()
    world.accounts.put_member("speech", "max", UserRole.MEMBER)
    yield world
    world.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "path"), [key for key in TABLE if "{" in key[1]], ids=lambda part: part.removeprefix(API)
)
def test_rights_to_an_object_are_those_in_its_own_group_though_its_owner_is_in_two(
    in_two_groups: AuthWorld, method: str, path: str
) -> None:
    row = TABLE[method, path]
    expected = row | {"lea": row["sue"], "mia": row["sam"], "sam": row["mia"], "sue": row["lea"]}
    del expected["vic"]  # a viewer of another group is in no row
    for role, sign in expected.items():
        answer, _ = ask(in_two_groups, method, path, in_two_groups.client(role), group="speech")
        if sign == "+":
            assert answer.status_code not in (401, 403, 404, 500), (role, answer.text)
        else:
            assert answer.status_code == STATUS[sign], (role, answer.text)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_groups_secret_is_changed_by_its_own_lead_and_unknown_to_the_other(
    in_two_groups: AuthWorld, method: str
) -> None:
    path = f"{API}/secrets/group/speech/TOKEN"
    statuses = {}
    for role in ROLES:
        in_two_groups.vault.put("group", "speech", "TOKEN", SECRET, "sue")
        answer = in_two_groups.client(role).request(method, path, json={"value": "quiet"} if method == "PUT" else None)
        statuses[role] = answer.status_code
    assert {role for role, status in statuses.items() if status < 300} == {"olga", "amy", "sue"}
    assert {role for role, status in statuses.items() if status == 404} == {"lea", "mia", "vic", "nob"}
    assert statuses[""] == 401


@pytest.mark.parametrize("what", ["files", "files/a"])
def test_the_files_of_a_groups_dataset_are_not_there_for_another_group(in_two_groups: AuthWorld, what: str) -> None:
    put_photos(in_two_groups, "speech")
    path = f"{API}/datasets/photos/1/{what}"
    statuses = {role: in_two_groups.client(role).get(path).status_code for role in ROLES}
    assert {role for role, status in statuses.items() if status == 200} == {"olga", "amy", "max", "sam", "sue"}
    assert {statuses[role] for role in ("lea", "mia", "vic", "nob")} == {404}


@pytest.mark.parametrize("role", ["sam", "sue", "nob"])
@pytest.mark.parametrize("path", LISTS)
def test_lists_tell_nothing_of_other_groups(shared: AuthWorld, role: str, path: str) -> None:
    job = shared.submit("max", name=SECRET, gpus=1)
    shared.settled()
    text = shared.client(role).get(f"{API}/{path}").text
    shared.client("max").post(f"{API}/jobs/{job}/stop")
    for hidden in (SECRET, '"max"', "vision", '"lea"'):
        assert hidden not in text


@pytest.mark.parametrize(
    ("visibility", "readers"), [("private", "max amy"), ("group", "max amy mia vic"), ("everyone", "max mia sam nob")]
)
def test_a_dataset_is_there_for_those_only_whom_it_is_for(world: AuthWorld, visibility: str, readers: str) -> None:
    put_photos(world)
    assert world.client("max").patch(f"{API}/datasets/photos", json={"visibility": visibility}).status_code == 200
    for user in ("max", "amy", "mia", "vic", "sam", "nob"):
        client = world.client(user)
        listed = [info["name"] for info in client.get(f"{API}/datasets").json()["datasets"]]
        seen = user in readers.split() or visibility == "everyone"
        assert listed == (["photos"] if seen else [])
        version = "1" if seen else "9"  # there is no such version, and it reads the same
        for path in ("files", "files/a"):
            answer = client.get(f"{API}/datasets/photos/1/{path}")
            absent = client.get(f"{API}/datasets/photos/{version}/{path}")
            assert answer.status_code == (200 if seen else 404), (user, path)
            assert seen or answer.text.replace("@1", "@9") == absent.text
        if user not in ("vic", "nob"):
            answer = client.post(f"{API}/jobs", json={"command": "x", "data": {"a": "dataset/photos"}})
            assert answer.status_code == (201 if seen else 404), (user, answer.text)


def test_queues_are_those_of_ones_groups_and_count_what_is_in_them(world: AuthWorld) -> None:
    world.submit("max", gpus=2)
    world.submit("max", gpus=4)
    world.submit("sam", gpus=1)
    world.settled()

    def seen(user: str) -> dict[str, tuple[int, int, int]]:
        found = world.client(user).get(f"{API}/queues").json()["queues"]
        return {each["name"]: (each["gpu_milli"], each["running"], each["waiting"]) for each in found}

    everything = seen("amy")
    assert everything["vision"] == (2000, 1, 1)
    assert everything["root"] == (3000, 2, 1)
    assert next(iter(everything)) == "root"
    assert seen("vic") == seen("max") == {"vision": everything["vision"]}
    assert seen("nob") == {}
    [vision] = world.client("lea").get(f"{API}/queues").json()["queues"]
    assert (vision["group"], vision["takes_jobs"], vision["limit_gpu_milli"]) == ("vision", True, None)
    world.client("amy").patch(f"{API}/groups/vision", json={"limits": {"gpu_milli": 3000, "jobs": 5}})
    [vision] = world.client("lea").get(f"{API}/queues").json()["queues"]
    assert (vision["limit_gpu_milli"], vision["limit_jobs"]) == (3000, 5)


def test_an_image_is_listed_for_those_only_whom_it_is_for(world: AuthWorld) -> None:
    for visibility, readers in (("private", {"max", "amy"}), ("group", {"max", "amy", "mia", "vic"})):
        world.provisioning.catalogue.put(replace(TORCH, visibility=visibility))
        for user in ("max", "amy", "mia", "vic", "sam", "nob"):
            listed = world.client(user).get(f"{API}/images").json()["images"]
            assert bool(listed) is (user in readers), user


def test_a_reason_does_not_name_a_job_of_another_group(world: AuthWorld) -> None:
    world.submit("max", name=SECRET, gpus=3)
    waiting = world.submit("max", name=SECRET, gpus=4)
    mine = world.submit("sam", gpus=1)
    world.settled()
    own = world.client("max").get(f"{API}/jobs/{waiting}").json()
    assert own["state"] == "queued"
    for path in (f"jobs/{mine}/why", f"jobs/{mine}", f"jobs/{mine}/events", "jobs"):
        assert SECRET not in world.client("sam").get(f"{API}/{path}").text


def test_a_route_without_a_permit_is_not_served() -> None:
    plain, socket = APIRouter(), APIRouter()
    plain.add_api_route("/forgotten", lambda: "anything", methods=["GET"])
    socket.add_api_websocket_route("/forgotten", lambda websocket: None)
    for router in (plain, socket):
        app = FastAPI()
        app.include_router(router, prefix="/x")
        with pytest.raises(InconsistentStateError, match="/forgotten"):
            check_permits(app)


def test_every_described_route_is_among_those_that_are_checked(shared: AuthWorld) -> None:
    app = shared.routes
    described = sum(len(methods) for methods in app.openapi()["paths"].values())
    checked = [route for route in routes_of(app) if getattr(route, "include_in_schema", False)]
    assert len(checked) == described
    assert all(len(permits_of(route)) == 1 for route in routes_of(app))


def test_roles_are_ordered_nobody_has_a_right_that_an_admin_lacks() -> None:
    for verb, rights in RIGHTS.items():
        ordered = [rights[role] for role in UserRole]
        assert ordered == sorted(ordered, reverse=True), verb
    assert {verb for verb, rights in RIGHTS.items() if rights[UserRole.ADMIN] is not Scope.ALL} == {
        Verb.READ_NOTIFICATIONS,
        Verb.CHANGE_NOTIFICATIONS,
        Verb.READ_SELF,
        Verb.CHANGE_SELF,
    }


def test_logins_at_a_provider_need_no_login_either(shared: AuthWorld) -> None:
    answer = shared.client().post(f"{API}/oidc/logins", json={"challenge": "0" * 64})
    assert (answer.status_code, error_of(answer).cause) == (404, "this server knows no OpenID Connect provider")
    answer = shared.client().post(f"{API}/oidc/logins/x", json={"secret": "s"})
    assert (answer.status_code, error_of(answer).code) == (404, "not-found")


def test_open_routes_need_no_login(shared: AuthWorld) -> None:
    shared.accounts.add_user(User("pat"))  # whom no other test knows, as these come in any order
    shared.security.logins.choose_password("pat", PASSWORD)
    for method, path in OPEN:
        body = {"user": "pat", "password": PASSWORD} if path.endswith("login") else None
        assert shared.client().request(method, path, json=body).status_code == 200
