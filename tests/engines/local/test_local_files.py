"""Files that are laid out before a task starts, and what is said when they cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_bench import Bench

from millpond.model.events import Refused
from millpond.node.task.workspace import DataMount, Workspace

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.end_all()


def refusal(bench: Bench, **parts: object) -> Refused:
    workspace = Workspace(str(bench.state_dir / "blobs"), str(bench.state_dir / "datasets"), **parts)  # type: ignore[arg-type]
    bench.define("j", "echo ran", workspace=workspace)
    bench.start("j")
    (event,) = bench.events(1)
    assert isinstance(event, Refused)
    return event


def test_a_job_whose_content_is_lost_is_refused_by_its_own_fault(bench: Bench) -> None:
    event = refusal(bench, snapshot="0" * 64)
    assert "cannot be laid out" in event.reason
    assert not event.device_fault


def test_a_job_whose_data_is_gone_is_refused_by_name(bench: Bench, tmp_path: Path) -> None:
    event = refusal(bench, data=(DataMount("train", path=str(tmp_path / "gone")),))
    assert "the data 'train' is not there" in event.reason
    assert str(tmp_path / "gone") in event.reason


def test_two_tasks_of_a_gang_share_one_output(bench: Bench) -> None:
    bench.define("j", "echo x > $MILLPOND_OUTPUT/$RANK", workspace=Workspace("/none", "/none"))
    bench.start("j", tasks=(0, 1))
    bench.events(3)
    output = bench.state_dir / "jobs/j/attempt-1/files/output"
    assert sorted(path.name for path in output.iterdir()) == ["0", "1"]
