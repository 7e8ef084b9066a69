"""Real jobs with files: a folder that is sent, data that is read, output that is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_pond import Pond

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.sh").write_text("#!/bin/sh\ncat words; echo changed > words; ls\n")
    (folder / "train.sh").chmod(0o755)
    (folder / "words").write_text("as sent\n")
    (folder / "huge.bin").write_text("not sent")
    (folder / ".gitignore").write_text("*.bin\n")
    return folder


def blobs(pond: Pond) -> int:
    return sum(1 for _ in (pond.state_dir / "blobs").rglob("??*/*"))


def test_a_sent_folder_runs_as_it_was_sent_and_is_sent_once(shared: Pond, project: Path) -> None:
    first = shared("run", "--ship", "./train.sh", cwd=project)
    assert (first.returncode, first.stdout) == (0, "as sent\ntrain.sh\nwords\n"), first.stderr
    assert (project / "words").read_text() == "as sent\n"
    kept = blobs(shared)
    again = shared("run", "--ship", "./train.sh", cwd=project)
    assert again.stdout == first.stdout
    assert blobs(shared) == kept
    (project / "words").write_text("new words\n")
    assert shared("run", "--ship", "./train.sh", cwd=project).stdout.startswith("new words\n")
    assert blobs(shared) == kept + 2, "one file and the new list"


def test_data_is_read_by_name_and_output_is_fetched(shared: Pond, project: Path, tmp_path: Path) -> None:
    put = shared("data", "put", "mini", str(project))
    assert put.stdout == "dataset/mini@1\n", put.stderr
    assert shared("data", "put", "mini", str(project)).stdout == "dataset/mini@1\n"
    script = 'cat "$MILLPOND_DATA_SET/words" "$MILLPOND_DATA_HERE/words" > "$MILLPOND_OUTPUT/both"'
    data = ("--data", "set=dataset/mini", "--data", f"here={project}")
    run = shared("run", "--detach", *data, "sh", "-c", script, cwd=tmp_path)
    job = run.stdout.strip()
    assert shared("wait", job).returncode == 0
    assert "both" in shared("output", "ls", job).stdout
    fetched = shared("get-output", job, "-o", "results", cwd=tmp_path)
    assert fetched.stdout == "results/both\n", fetched.stderr
    assert (tmp_path / "results/both").read_text() == "as sent\nas sent\n"
    listed = shared("data", "ls").stdout
    assert "dataset/mini@1" in listed
    assert shared("data", "rm", "mini@1").returncode == 0
    assert "dataset/mini" not in shared("data", "ls").stdout


def test_files_that_cannot_be_laid_out_end_the_job_with_the_reason(shared: Pond, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    gone = shared("run", "--data", f"a={tmp_path}/nowhere", "true", cwd=tmp_path)
    assert gone.returncode == 2
    assert "nothing at the data path" in gone.stderr
