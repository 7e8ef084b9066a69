"""The gate's library on a machine whose compiler fails or does not end."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millpond.model.errors import UnavailableError
from millpond.node.sharing.gate.building import LIBRARY, library


@pytest.mark.parametrize(
    ("compiler", "cause"),
    [
        ("echo gate.c: warning: odd >&2; echo gate.c: error: no such header >&2; exit 1", "error: no such header"),
        ("exit 1", "says nothing"),
        ("echo gate.c: warning: odd >&2; exec sleep 60", "takes longer than 0.2 s"),
    ],
)
def test_why_there_is_no_library_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, cause: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gcc").write_text(f"#!/bin/sh\n{compiler}\n")
    (programs / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr("millpond.node.sharing.gate.building._BUILD_TIMEOUT_S", 0.2 if "sleep" in compiler else 60)
    with pytest.raises(UnavailableError, match=cause) as raised:
        library(tmp_path / "cache")
    assert raised.value.remedy
    assert [path.name for path in (tmp_path / "cache").iterdir()] == []


def test_starts_that_need_the_library_at_the_same_time_build_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / "built"
    compiler = tmp_path / "bin" / "gcc"
    compiler.parent.mkdir()
    compiler.write_text(f"""#!/bin/sh
echo . >> {built}
sleep 0.1
for argument; do [ "$before" = -o ] && : > "$argument"; before=$argument; done
""")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent), prepend=":")
    with ThreadPoolExecutor(4) as starts:
        libraries = set(starts.map(library, [tmp_path / "cache"] * 4))
    assert [path.is_file() for path in libraries] == [True]
    assert built.read_text() == ".\n"


def test_the_library_is_on_disk_before_it_comes_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, fsync, forced = tmp_path / "bin" / "gcc", os.fsync, list[int]()
    compiler.parent.mkdir()
    compiler.write_text("""#!/bin/sh
for argument; do [ "$before" = -o ] && echo built > "$argument"; before=$argument; done
""")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent), prepend=":")

    def record(file: int) -> None:
        assert not list((tmp_path / "cache").glob(f"gate-????????????????/{LIBRARY}"))
        forced.append(os.fstat(file).st_ino)
        fsync(file)

    monkeypatch.setattr(os, "fsync", record)
    assert library(tmp_path / "cache").stat().st_ino == forced[0]
