"""``pond queue add, set, delete``: what is asked of the server, and what a person sees of it."""

from __future__ import annotations

import json
import re

import pytest

from millpond.client.cli.commands.cluster.queue_edits import fields_in
from millpond.model.errors import InvalidInputError

EDIT = {
    "queue": "vision",
    "before": {"parent": "org", "guarantee": 6, "limit": {"gpus": 12}},
    "after": {"parent": "org", "guarantee": 4, "borrows": False},
    "version": 3,
    "effects": ["2 of 6 cards that vision holds are borrowed now"],
}


@pytest.mark.parametrize(
    ("texts", "fields"),
    [
        (["guarantee=6"], {"guarantee": 6}),
        (["guarantee=0.5", "borrows=false"], {"guarantee": 0.5, "borrows": False}),
        (["limit={gpus: 12, cpus: 40, memory: 64GiB}"], {"limit": {"gpus": 12, "cpus": 40, "memory": "64GiB"}}),
        (["data=[/data/a, /data/b]", "images=[]"], {"data": ["/data/a", "/data/b"], "images": []}),
        (["limit=", "weight=null"], {"limit": None, "weight": None}),
        (["note=a=b"], {"note": "a=b"}),
    ],
)
def test_fields_are_written_as_in_the_configuration(texts, fields):
    assert fields_in(texts) == fields


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        (["guarantee"], "is not FIELD=VALUE"),
        (["=6"], "is not FIELD=VALUE"),
        (["weight=1", "weight=2"], "'weight' is given twice"),
        (["limit={gpus: 1"], "limit={gpus: 1: not YAML"),
        (["weight=1\nborrows: false"], "several values"),
    ],
)
def test_what_is_no_field_is_named_before_anything_is_sent(texts, cause, run_pond, server):
    with pytest.raises(InvalidInputError, match=cause.replace("{", r"\{")):
        fields_in(texts)
    code, _, err = run_pond("queue", "set", "vision", *texts)
    assert (code, server.requests) == (2, [])
    assert err.startswith("pond: ")


def test_a_change_shows_each_field_before_and_after_and_what_it_means_for_what_runs(server, run_pond):
    server.will(200, EDIT)
    code, out, err = run_pond("queue", "set", "vision", "guarantee=4", "limit=", "borrows=false", "--version", "2")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "vision: changed",
        "  guarantee  6 -> 4",
        "  limit      {gpus: 12} -> -",
        "  borrows    - -> false",
        "2 of 6 cards that vision holds are borrowed now",
        "version 3",
    ]
    assert server.requests[0].method == "PATCH"
    assert server.requests[0].url.path == "/api/v1/queues/vision"
    wish = {"fields": {"guarantee": 4, "limit": None, "borrows": False}, "version": 2, "dry_run": False}
    assert json.loads(server.requests[0].content) == wish


def room(guarantee: int, borrowed: int | None, limit: int | None = None) -> dict[str, int | None]:
    return {
        "promised_gpu_milli": 1000 * guarantee,
        "limit_gpu_milli": limit,
        "borrowed_gpu_milli": borrowed,
        "lent_gpu_milli": 0,
        "free_gpu_milli": None,
    }


def test_who_has_other_room_is_shown_before_and_after(server, run_pond):
    rooms = [
        {"queue": "vision", "before": room(6, 0, 12_000), "after": room(4, 2_500)},
        {"queue": "new", "before": None, "after": room(2, 0)},
    ]
    server.will(200, EDIT | {"effects": [], "rooms": rooms})
    out = run_pond("queue", "set", "vision", "guarantee=4")[1]
    assert [re.split(" {2,}| (?=LIMIT|LENT)", line) for line in out.splitlines()[-4:-1]] == [
        ["QUEUE", "GUARANTEE", "LIMIT", "BORROWED", "LENT", "FREE"],
        ["vision", "6 -> 4", "12 -> -", "0 -> 2.5", "0", "-"],
        ["new", "- -> 2", "-", "- -> 0", "- -> 0", "-"],
    ]


WAITS = {"gpus": 8.0, "mean_wait_s": 0.0, "longest_wait_s": 0.0, "not_started": 0, "preemptions": 0} | {
    "utilisation_percent": 50.0
}
PLAY = {
    "changes": ["vision.guarantee = 4"],
    "begin_at": 0.0,
    "until": 3600.0,
    "busy_until": 3600.0,
    "cut": False,
    "before": WAITS,
    "after": WAITS,
    "compared": 2,
    "jobs": [
        {"job": "own-1", "user": "ann", "name": "own", "queue": "vision", "gpu_milli": 2000, "effect": "later"}
        | {"ran": True, "preemptions_after": 1, "wait_after_s": 60.0}
    ],
}


def test_a_dry_run_plays_who_starts_sooner_or_leaves(server, run_pond):
    server.will(200, EDIT | {"dry_run": True})
    server.will(200, PLAY)
    code, out, _ = run_pond("queue", "set", "vision", "guarantee=4", "limit=", "--dry-run")
    assert code == 0
    assert out.rstrip().splitlines()[-1].split("  ")[-2:] == ["runs, ended 1x", "+1m00s"]
    assert [each.url.path for each in server.requests] == ["/api/v1/queues/vision", "/api/v1/what-if"]
    settings = [
        {"queue": "vision", "field": "guarantee", "value": 4},
        {"queue": "vision", "field": "limit", "value": None},
    ]
    assert json.loads(server.requests[1].content) == {"set": settings}


def test_a_dry_run_of_what_changes_no_start_says_so(server, run_pond):
    server.will(200, EDIT | {"dry_run": True})
    refusal = {"cause": "vision.data is not about when and where jobs run", "remedy": "leave it out"}
    server.will(422, {"error": {"code": "INVALID_INPUT", **refusal}})
    code, out, _ = run_pond("queue", "set", "vision", "data=[/a]", "--dry-run")
    assert (code, out.splitlines()[-1]) == (0, "not played: vision.data is not about when and where jobs run")


def test_a_queue_is_added_below_another_one(server, run_pond):
    server.will(201, EDIT | {"before": None, "after": {"parent": "org"}, "effects": [], "dry_run": True})
    code, out, _ = run_pond("queue", "add", "vision", "--parent", "org", "--dry-run")
    assert (code, out) == (0, "vision: would be added\n  parent  - -> org\nnothing was changed\n")
    wish = {"name": "vision", "fields": {"parent": "org"}, "dry_run": True}
    assert json.loads(server.requests[0].content) == wish


def test_a_queue_is_deleted_in_the_version_that_was_seen(server, run_pond):
    server.will(200, EDIT | {"after": None, "before": {"weight": 2}, "effects": []})
    assert run_pond("queue", "delete", "vision", "--version", "2")[:2] == (0, "vision: deleted\n  weight  2 -> -\n")
    assert (server.requests[0].method, server.requests[0].url.params["version"]) == ("DELETE", "2")


def test_what_is_so_already_is_said(server, run_pond):
    server.will(200, EDIT | {"after": EDIT["before"], "effects": []})
    assert run_pond("queue", "set", "vision", "guarantee=6")[1] == "vision: it is so already\nversion 3\n"


def test_programs_get_all_of_it(server, run_pond):
    server.will(200, EDIT)
    out = run_pond("queue", "set", "vision", "guarantee=4", "-o", "json")[1]
    assert json.loads(out) == EDIT | {"dry_run": False, "rooms": []}
