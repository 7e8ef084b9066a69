"""``pond queue add, set, delete``: what is asked of the server, and what a person sees of it."""

from __future__ import annotations

import json

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
