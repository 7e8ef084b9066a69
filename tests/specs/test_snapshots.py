"""Snapshots of folders: the same content is the same snapshot, and nothing in one leads out of its folder."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import InvalidInputError
from millpond.model.folders import digest_of, link_stays_inside
from millpond.specs.job.snapshots import FileEntry, FolderSnapshot, LinkEntry, read_snapshot

EMPTY = digest_of(b"")


def snapshot(paths: list[str], links: dict[str, str] | None = None) -> bytes:
    files = tuple(FileEntry(path=path, digest=EMPTY, size=0) for path in paths)
    return FolderSnapshot(
        files=files, links=tuple(LinkEntry(path=path, target=target) for path, target in (links or {}).items())
    ).encoded()


def test_the_same_files_in_another_order_are_the_same_snapshot() -> None:
    assert snapshot(["a", "b/c"], {"l": "a", "k": "b"}) == snapshot(["b/c", "a"], {"k": "b", "l": "a"})


def test_what_was_encoded_is_read_back() -> None:
    found = read_snapshot(snapshot(["a", "b/c"], {"b/l": "../a"}))
    assert [entry.path for entry in found.files] == ["a", "b/c"]
    assert found.links[0].target == "../a"


@pytest.mark.parametrize(
    "path", ["../a", "a/../../b", "/etc/passwd", "", ".", "..", "a//b", "./a", "a/", "a/./b", "a\0b"]
)
def test_a_path_that_leads_out_or_is_spelt_oddly_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="leads out"):
        read_snapshot(snapshot([path]))


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("l", "../x"),
        ("a/l", "../../x"),
        ("l", "/etc"),
        ("l", ""),
        ("l", "a/../../x"),
        ("l", "a/.."),
        ("l", "./a"),
        ("l", "./.."),
        ("l", "../."),
    ],
)
def test_a_link_that_could_lead_out_is_refused(path: str, target: str) -> None:
    with pytest.raises(InvalidInputError, match="link"):
        read_snapshot(snapshot([], {path: target}))


@pytest.mark.parametrize(
    ("paths", "links"),
    [(["a", "a"], {}), (["a"], {"a": "b"}), (["a", "a/b"], {}), (["d/x"], {"d": "e"})],
)
def test_two_things_at_one_place_are_refused(paths: list[str], links: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        read_snapshot(snapshot(paths, links))


@pytest.mark.parametrize("plain", [[], {"files": [{"path": "a"}]}, {"files": [], "more": 1}, 1])
def test_something_else_is_no_snapshot(plain: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a snapshot"):
        read_snapshot(json.dumps(plain).encode())


@given(st.lists(st.sampled_from(["..", "a", "b", ".", ""]), min_size=1, max_size=6), st.integers(0, 3))
def test_a_link_that_passes_never_climbs_above_the_folder(parts: list[str], depth: int) -> None:
    path = "/".join([*(["d"] * depth), "l"])
    if link_stays_inside(path, "/".join(parts)):
        level = depth
        for part in parts:
            level += {"..": -1, ".": 0}.get(part, 1)
            assert level >= 0
