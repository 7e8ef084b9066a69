"""Whether a library of the machine loads into the programs of an image, by what its loader says."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.model.errors import UnavailableError
from millpond.node.containers.detection import Containers
from millpond.node.containers.images import LocalImage
from millpond.node.containers.oci import Podman
from millpond.node.containers.preload_trial import trouble_with_preload

IMAGE = LocalImage("sha256:1", 0, "sha256:1")
TOO_OLD = "/lib/libc.so.6: version `GLIBC_2.99' not found (required by /gate.so)"
LACKS = "/gate.so: error while loading shared libraries: libdl.so.2: cannot open shared object file"


def containers_that(tmp_path: Path, answer: str) -> Containers:
    """A runtime whose every command does what a shell script says, and the machine's own things beside it."""
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    return Containers(Podman(str(program)), images=None, version="", env={}, card_trouble="")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        ("echo libc.so.6", ""),
        (f'echo "{TOO_OLD}" >&2'.replace("`", "\\`"), f"the C library of its image is too old: {TOO_OLD}"),
        (f'echo "{LACKS}" >&2; exit 127', f"its image lacks what the library needs: {LACKS}"),
        (
            'for word; do case $word in *ld-*) loader=$word;; esac; done; echo "no $loader" >&2; exit 127',
            "no GNU C library",
        ),
    ],
)
def test_what_the_loader_of_an_image_says_decides(answer: str, trouble: str, tmp_path: Path) -> None:
    said = trouble_with_preload(containers_that(tmp_path, answer), IMAGE, Path("/gate.so"))
    assert (trouble in said) if trouble else said == ""


def test_a_runtime_that_fails_says_nothing_of_the_image(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="could not be looked at: no space left"):
        trouble_with_preload(containers_that(tmp_path, "echo no space left >&2; exit 125"), IMAGE, Path("/gate.so"))
