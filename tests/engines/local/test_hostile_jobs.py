"""No job sees what is hidden from it, whatever it names: jobs put together by chance, as root and not as root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_walk import walk, walk_as

from millpond.node.sandbox_finding import SandboxMode, find_sandbox, trouble_with_identities

pytestmark = pytest.mark.end_to_end

ANOTHER = 65_533
"""An account that is not root's, and has nothing."""


@pytest.fixture(params=["/tmp", "/var/lib"], ids=["in-tmp", "elsewhere"])
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that every account can enter, in a directory that tasks have for themselves or beside it."""
    if not os.access(request.param, os.W_OK):
        pytest.skip(f"this account cannot write to {request.param}")
    made = Path(tempfile.mkdtemp(prefix="hostile-", dir=request.param))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def walked(folder: Path, mode: str, count: int, seed: int) -> dict[str, Any]:
    """A walk; ``mode`` says whose tasks they are on what kind of server."""
    sandbox, trouble = find_sandbox(SandboxMode.PREFERRED, ())
    if sandbox is None:
        pytest.skip(f"no sandbox here: {trouble}")
    if os.geteuid() != 0 and mode == "identity":
        pytest.skip("only root can start tasks as others")
    if os.geteuid() == 0 and mode in ("not root", "shared account"):
        os.chown(folder, ANOTHER, ANOTHER)
        return walk_as(ANOTHER, folder, count, seed, mode)
    if mode != "identity":
        return walk(folder, count, seed, mode)
    if trouble := trouble_with_identities(sandbox):
        pytest.skip(f"tasks cannot run as others here: {trouble}")
    return walk(folder, count, seed, mode)


@pytest.mark.parametrize("mode", ["owner", "identity", "not root", "shared account"])
@pytest.mark.parametrize(
    ("count", "seed"), [(20, 1), pytest.param(500, 2, marks=pytest.mark.long)], ids=["short", "thorough"]
)
def test_no_job_reads_or_changes_what_is_hidden_whatever_it_names(
    folder: Path, mode: str, count: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder / "srv"))
    found = walked(folder, mode, count, seed)
    assert found["leaks"] == []
    assert found["walked"] > count // 3
