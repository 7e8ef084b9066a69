"""What a program that works on an image says, as the user is told it."""

from __future__ import annotations

import os
import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from millpond.model.errors import UnavailableError
from millpond.node.containers.images import OciImages
from millpond.node.containers.sif_images import SifImages

LONGEST = 2 * 4_096


def told(tmp_path: Path, script: str) -> list[str]:
    """All lines of a build that fails."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\nexit 1\n")
    program.chmod(0o755)
    lines: list[str] = []
    with pytest.raises(UnavailableError):
        OciImages(str(program), {"PATH": os.environ["PATH"]}, tmp_path).build(tmp_path, "f", "n", lines.append, {})
    return lines


def test_a_line_without_end_is_told_in_pieces(tmp_path: Path) -> None:
    lines = told(tmp_path, "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end")
    assert "".join(lines) == "x" * 300_000 + "end"
    assert lines[-1] == "end"
    assert max(map(len, lines)) <= LONGEST


def test_a_server_with_very_many_open_connections_still_hears_it(tmp_path: Path) -> None:
    many = 1_100
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2 * many:
        pytest.skip("the limit of open files is too low")
    with ExitStack() as stack:
        for _ in range(many):
            stack.callback(os.close, os.dup(0))
        assert told(tmp_path, "echo begun") == ["begun"]


def test_a_file_of_apptainer_is_discarded_once_no_name_leads_to_it(tmp_path: Path) -> None:
    images, digests = SifImages("apptainer", {}, tmp_path), [f"sha256:{letter * 64}" for letter in "ab"]
    for digest in digests:
        (tmp_path / f"{digest.removeprefix('sha256:')}.sif").touch()
        images.name(images.at(digest), "localhost/millpond/made:1")
    for digest in digests:
        images.discard(digest)
    assert images.digests() == {digests[1]}


def images_by(tmp_path: Path, script: str) -> OciImages:
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return OciImages(str(program), {"PATH": os.environ["PATH"]}, tmp_path)


def test_an_image_is_absent_only_where_the_program_works(tmp_path: Path) -> None:
    working = images_by(tmp_path, '[ "$1" = images ] && exit 0; echo "Error: no such image" >&2; exit 125')
    assert working.find("localhost/own:1") is None
    failing = images_by(tmp_path, "echo 'Error: no space left on device' >&2; exit 125")
    for ask in (lambda: failing.find("localhost/own:1"), failing.digests, lambda: failing.names("localhost/")):
        with pytest.raises(UnavailableError, match="podman cannot be asked for images: Error: no space left on device"):
            ask()


def test_images_are_listed_where_one_of_them_was_replaced_in_the_first_listing(tmp_path: Path) -> None:
    been = tmp_path / "been"
    images = images_by(tmp_path, f"[ -e {been} ] && exec echo ab; touch {been}; echo 'image not known' >&2; exit 125")
    assert images.digests() == {"sha256:ab"}


def test_a_program_that_is_gone_says_nothing_of_images(tmp_path: Path) -> None:
    images = OciImages(str(tmp_path / "podman"), {}, tmp_path)
    with pytest.raises(UnavailableError, match=r"podman cannot be asked for images: .*No such file"):
        images.find("localhost/own:1")


def test_an_image_of_apptainer_is_on_disk_before_it_comes_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apptainer, fsync, forced = tmp_path / "apptainer", os.fsync, list[int]()
    apptainer.write_text('#!/bin/sh\necho image >"$2"\n')
    apptainer.chmod(0o755)

    def record(file: int) -> None:
        assert not list((tmp_path / "images").glob("*.sif"))
        forced.append(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", record)
    image = SifImages(str(apptainer), {}, tmp_path / "images").pull("docker.io/library/busybox", lambda _: None)
    assert forced == [Path(image.place).stat().st_ino]
