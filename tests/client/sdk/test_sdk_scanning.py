"""Which files of a folder are sent."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from millpond.client.sdk.resources.folder_scan import scan
from millpond.model.errors import InvalidInputError
from millpond.model.folders import DEEPEST, digest_of
from millpond.specs.job.snapshots import read_snapshot
from nested_folders import nested


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def paths(root: Path, **settings: object) -> list[str]:
    return [entry.path for entry in scan(root, **settings).snapshot.files]  # type: ignore[arg-type]


def test_files_are_sent_with_their_content_and_executable_bit(tmp_path: Path) -> None:
    write(tmp_path, train="x", sub__run="y")
    (tmp_path / "sub/run").chmod(0o755)
    found = scan(tmp_path)
    entries = {entry.path: entry for entry in found.snapshot.files}
    assert (entries["train"].digest, entries["train"].size, entries["train"].executable) == (digest_of(b"x"), 1, False)
    assert entries["sub/run"].executable
    assert found.sources[digest_of(b"y")] == tmp_path / "sub/run"


def test_ignore_files_count_in_every_folder_and_pondignore_has_the_last_word(tmp_path: Path) -> None:
    write(tmp_path, a_dot_log="", keep_dot_log="", sub__b_dot_log="", sub__c_dot_txt="", build__d="", notes="")
    write(tmp_path, _dot_gitignore="*.log\nbuild/\n!keep.log\n", _dot_pondignore="notes\n!a.log\n")
    write(tmp_path, sub___dot_gitignore="*.txt\n!b.log\n")
    assert paths(tmp_path) == [".gitignore", ".pondignore", "a.log", "keep.log", "sub/.gitignore", "sub/b.log"]


def test_git_caches_environments_and_sockets_stay_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, _dot_git__HEAD="", env__pyvenv_dot_cfg="", env__lib="", pkg__code="")
    for folder in (tmp_path / "__pycache__", tmp_path / "pkg/__pycache__"):
        folder.mkdir()
        (folder / "x").touch()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert paths(tmp_path) == ["pkg/code"]


def test_a_dataset_is_taken_whole(tmp_path: Path) -> None:
    write(tmp_path, _dot_gitignore="x\n", x="")
    assert paths(tmp_path, ignore=False) == [".gitignore", "x"]


def test_too_much_is_refused_with_the_largest_files_named(tmp_path: Path) -> None:
    write(tmp_path, small="x", large="x" * 3_000_000, model="x" * 2_000_000)
    with pytest.raises(InvalidInputError) as caught:
        scan(tmp_path, largest=4_000_000)
    assert "large (2.9 MiB), model (1.9 MiB)" in caught.value.cause
    assert ".pondignore" in caught.value.remedy


def test_links_inside_are_kept_by_the_shortest_way(tmp_path: Path) -> None:
    write(tmp_path, sub__a="x")
    (tmp_path / "sub/l").symlink_to(tmp_path / "sub/a")
    (tmp_path / "top").symlink_to("./sub/../sub/a")
    (tmp_path / "include").symlink_to(".")
    (tmp_path / "sub/here").symlink_to(tmp_path / "sub")
    (tmp_path / "sub/up").symlink_to("..")
    found = scan(tmp_path).snapshot
    assert {entry.path: entry.target for entry in found.links} == {
        "include": ".",
        "sub/here": ".",
        "sub/l": "a",
        "sub/up": "..",
        "top": "sub/a",
    }
    assert read_snapshot(found.encoded()) == found


def test_a_circle_of_links_is_sent_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert {entry.path: entry.target for entry in scan(tmp_path).snapshot.links} == {"a": "b", "b": "a"}


def test_folders_that_are_nested_too_deep_are_refused_by_name_and_may_be_left_out(tmp_path: Path) -> None:
    with nested(tmp_path / "top", DEEPEST):
        assert len(paths(tmp_path / "top")) == 1
    with nested(tmp_path / "top", 1_200) as top:
        with pytest.raises(InvalidInputError, match=r"d/d/.*… lies below more than 200 folders"):
            scan(top)
        (top / ".pondignore").write_text("/d\n")
        assert paths(top) == [".pondignore"]


def test_a_folder_that_is_a_circle_of_links_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(InvalidInputError, match=r"the folder .*circle leads nowhere"):
        scan(tmp_path / "circle")


@pytest.mark.parametrize("target", ["/etc/passwd", "..", "../x", "sub/out"])
def test_a_link_that_leads_out_is_refused_by_name(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    write(root, sub__a="")
    (root / "sub/out").symlink_to("../..")
    (root / "sub/.pondignore").write_text("out\n")
    (root / "bad").symlink_to(target)
    with pytest.raises(InvalidInputError, match="link bad leads out"):
        scan(root)
