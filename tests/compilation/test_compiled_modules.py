"""What is compiled, where it is found again, and when it is left aside. `make test-compiled` compiles it for real."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from millpond.compilation import building, finder, sources
from millpond.model.errors import UnavailableError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "millpond"


def compiled_modules() -> set[str]:
    return {path.as_posix() for path in sources.modules()}


def test_decisions_are_compiled_but_neither_kernels_nor_explanations_nor_packages() -> None:
    found = compiled_modules()
    assert {"millpond/scheduling/runs.py", "millpond/scheduling/cycle/admission_cycle.py"} <= found
    assert "millpond/scheduling/placement/search.py" not in found
    assert not any("/explaining/" in name or name.endswith("__init__.py") for name in found)


def test_a_changed_source_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "millpond"
    (root / "scheduling").mkdir(parents=True)
    (root / "__init__.py").touch()
    module = root / "scheduling" / "runs.py"
    module.write_text("A = 1\n")
    monkeypatch.setattr(sources, "ROOT", root)
    before = sources.folder()
    assert sources.folder() == before
    module.write_text("A = 2\n")
    assert sources.folder() != before


def test_modules_that_are_there_are_imported_as_compiled_and_all_others_as_ever(tmp_path: Path) -> None:
    module = tmp_path / "millpond" / "scheduling" / f"runs{sources.SUFFIX}"
    module.parent.mkdir(parents=True)
    module.touch()
    found = finder.CompiledModules(tmp_path)
    spec = found.find_spec("millpond.scheduling.runs", None)
    assert spec is not None
    assert (spec.origin, type(spec.loader)) == (str(module), ExtensionFileLoader)
    assert found.find_spec("millpond.scheduling.records", None) is None
    assert found.find_spec("runs", None) is None


def test_a_folder_that_others_could_write_into_is_left_aside() -> None:
    folder = sources.folder()
    assert finder.find_compiled() is None
    folder.mkdir(parents=True, mode=0o755)
    assert finder.find_compiled() == folder
    folder.chmod(0o775)
    assert finder.find_compiled() is None


def test_who_insists_on_the_compiled_scheduler_is_told_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "is_used", lambda: False)
    monkeypatch.setenv(finder.CHOICE, "compiled")
    with pytest.raises(ImportError, match="pond compile"):
        finder.use_compiled()


def test_what_is_missing_is_named_with_its_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="mypyc") as refused:
        building.build()
    assert "millpond[compile]" in refused.value.remedy
    assert not cache.exists()


def test_a_build_that_fails_leaves_nothing_and_says_why(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_SETUP", "import sys; print('runs.py:1: error: no'); sys.exit(1)")
    with pytest.raises(UnavailableError, match=r"runs\.py:1: error: no"):
        building.build()
    assert list(cache.iterdir()) == []


def fail_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_SETUP", "raise SystemExit('no')")
    with pytest.raises(UnavailableError):
        building.build()


def test_a_folder_that_was_never_locked_is_removed_after_a_day(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned, fresh = cache / "compiling-abandoned", cache / "compiling-now"
    for folder in (abandoned, fresh):
        folder.mkdir(parents=True)
    os.utime(abandoned, (0, 0))
    fail_to_build(monkeypatch)
    assert [path.name for path in cache.iterdir()] == ["compiling-now"]


@pytest.mark.long
def test_what_a_killed_build_left_is_removed_by_the_next_once_its_compiler_has_ended_too(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    for fifo in (begun, ended):
        os.mkfifo(fifo)
    compiler = f"open({str(begun)!r}, 'w').close(); open({str(ended)!r}).read()"
    program = f"from millpond.compilation import building as b; b._SETUP = {compiler!r}; b.build()"
    with subprocess.Popen([sys.executable, "-c", program]) as build:
        begun.read_bytes()
        build.kill()
    fail_to_build(monkeypatch)
    (scratch,) = cache.iterdir()
    with (scratch / "lock").open() as lock:
        ended.write_bytes(b"")
        fcntl.flock(lock, fcntl.LOCK_EX)  # free when the compiler has ended
    fail_to_build(monkeypatch)
    assert list(cache.iterdir()) == []
