"""Builds that end before they are done leave nothing on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from millpond.model.errors import ConflictError
from millpond.node.containers import programs
from millpond.node.containers.images import PodmanImages
from millpond.node.containers.programs import end_build, end_builds_from
from millpond.node.containers.scratch import left_folders, remove_left, scratch_folder
from real_containers import IMAGE, RealPodman


def working(podman: RealPodman) -> set[str]:
    """The containers that builds work in."""
    return set(podman.containers("--all", "--external"))


def context(folder: Path, step: str) -> Path:
    """A folder to build from whose only step says ``begun`` and does not end."""
    folder.mkdir()
    (folder / "Containerfile").write_text(f"FROM {IMAGE}\nRUN echo begun; {step}\n")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("step", ["sleep 600", "while true; do echo 0123456789012345678901234567890123456789; done"])
def test_a_build_whose_client_leaves_is_tidied_away(real_podman: RealPodman, tmp_path: Path, step: str) -> None:
    layers = tmp_path / "layers"
    layers.mkdir()
    images, before = PodmanImages(real_podman.program, os.environ, tmp_path, layers), working(real_podman)

    def leave(line: str) -> None:
        if line == "begun":
            assert working(real_podman) > before
            assert list(layers.glob("*/buildah*"))
            raise ConflictError("the client is gone", "ask again")

    with pytest.raises(ConflictError):
        images.build(context(tmp_path / "from", step), "Containerfile", "localhost/left:1", leave, {})
    assert working(real_podman) == before
    assert images.find("localhost/left:1") is None
    assert list(layers.iterdir()) == []
    assert left_folders(tmp_path) == []


@pytest.mark.long
def test_a_build_of_a_killed_server_is_ended_by_the_next(real_podman: RealPodman, tmp_path: Path) -> None:
    before, folder = working(real_podman), context(tmp_path / "build-1", "sleep 600")
    order = [real_podman.program, "build", "--file", str(folder / "Containerfile"), str(folder)]
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as left:
        assert left.stdout is not None
        while left.stdout.readline().strip() != "begun":
            assert left.poll() is None
        end_builds_from(tmp_path / "build-")
        assert left.poll() is None, "another folder's"
        end_builds_from(folder)
    assert left.returncode != 0
    assert working(real_podman) == before


def test_a_build_that_does_not_come_to_its_end_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_TIDIES_WITHIN_S", 0.0)
    with subprocess.Popen(["sleep", "600"]) as program:
        end_build(program.pid)
    assert program.returncode == -signal.SIGTERM


LAYERS = """#!/bin/sh
[ "$1" = pull ] || exit 1
touch "$TMPDIR/layer"
echo fetching
exec sleep 600
"""


def slow_podman(folder: Path) -> tuple[PodmanImages, Path]:
    """One that begins to fetch and does not end; with the folder of its layers."""
    program, layers = folder / "podman", folder / "layers"
    program.write_text(LAYERS)
    program.chmod(0o755)
    layers.mkdir()
    return PodmanImages(str(program), {"PATH": os.environ["PATH"]}, folder, layers), layers


def test_layers_of_a_fetch_whose_client_leaves_are_removed(tmp_path: Path) -> None:
    images, layers = slow_podman(tmp_path)

    def leave(line: str) -> None:
        assert [path.name for path in layers.glob("*/*")] == ["layer"]
        raise ConflictError("the client is gone", "ask again")

    with pytest.raises(ConflictError):
        images.pull("registry.example.com/a:1", leave)
    assert list(layers.iterdir()) == []
    assert left_folders(tmp_path) == []


def test_layers_that_a_killed_server_left_are_removed_and_who_fetches_them_is_ended(tmp_path: Path) -> None:
    layers = tmp_path / "layers"
    layers.mkdir()
    scratch = scratch_folder(layers, tmp_path)
    with subprocess.Popen(["sleep", "600"], env=os.environ | scratch.__enter__()) as fetching:
        copy = tmp_path / "copy"
        copy.mkdir()
        [link] = left_folders(tmp_path)
        (copy / link.name).symlink_to(link.readlink())
        assert left_folders(copy) == [], "the original's"
        remove_left(link)
    assert fetching.returncode == -signal.SIGTERM
    assert list(layers.iterdir()) == []
    assert left_folders(tmp_path) == []
