"""Jobs in images, and the catalogue, with a real podman and the real programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_pond import Pond, until

from real_containers import IMAGE, RealPodman

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def yard(_real_podman: RealPodman | str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    """A server that finds the tests' podman."""
    if isinstance(_real_podman, str):
        pytest.skip(_real_podman)
    pond = Pond(tmp_path_factory.mktemp("images") / "state")
    pond.env |= _real_podman.env
    pond.up()
    yield pond
    done = pond("down")
    assert done.returncode == 0, done.stderr


def digest_of(pond: Pond, image: str) -> str:
    listed = json.loads(pond.printed("image", "ls", "-o", "json"))["images"]
    return next(each["digest"] for each in listed if each["reference"] == image)


def test_an_image_is_put_there_run_saved_built_upon_and_removed(yard: Pond, tmp_path: Path) -> None:
    added = yard("image", "add", "busy:1", IMAGE, "--description", "small")
    assert added.returncode == 0, added.stderr
    assert added.stdout == f"busy:1 {digest_of(yard, 'busy:1')}\n"
    run = yard("run", "--image", "busy:1", "--name", "first", "sh", "-c", "echo $0 > /made; echo in $PWD; ps")
    assert run.returncode == 0, run.stderr
    assert f"in {yard.state_dir.parent}" in run.stdout
    assert "pond-supervisor" not in run.stdout
    job = run.stderr.split()[2]

    saved = yard("image", "save", job, "busy:made")
    assert saved.returncode == 0, saved.stderr
    assert yard("run", "--image", "busy:made", "cat", "/made").stdout == "sh\n"

    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Containerfile").write_text(f"FROM {IMAGE}\nCOPY words /words\n")
    (folder / "words").write_text("to be\n")
    built = yard("image", "build", "busy:words", str(folder), "--visibility", "everyone")
    assert built.returncode == 0, built.stderr
    assert "COPY words" in built.stderr, "the log is followed"
    assert yard("run", "--image", "busy:words", "cat", "/words").stdout == "to be\n"

    table = yard("image", "ls", "-o", "wide").stdout
    assert all(
        word in table for word in ("busy:1", "busy:made", "busy:words", "small", "everyone", f"saved from {job}")
    )
    assert yard("image", "rm", "busy:words").stdout == "removed busy:words\n"
    gone = yard("run", "--image", "localhost/millpond/busy:words", "true")
    assert gone.returncode == 2
    assert "goes round the catalogue" in gone.stderr


def test_a_job_keeps_to_the_image_that_it_was_handed_in_with(
    yard: Pond, real_podman: RealPodman, tmp_path: Path
) -> None:
    assert yard("image", "add", "busy:1", IMAGE).returncode == 0
    first = digest_of(yard, "busy:1")
    hold = yard.printed("run", "-d", "--image", "busy:1", "--gpus", "4", "--tasks", "2", "sh", "-c", "sleep 600")
    waiting = yard.printed("run", "-d", "--image", "busy:1", "--gpus", "4", "cat", "/etc/passwd")
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Containerfile").write_text(f"FROM {IMAGE}\nCOPY passwd /etc/passwd\n")
    (folder / "passwd").write_text("another\n")
    assert yard("image", "build", "busy:1", str(folder)).returncode == 0
    assert digest_of(yard, "busy:1") != first
    assert yard("stop", hold).returncode == 0
    assert yard("wait", waiting).returncode == 0
    assert "another" not in yard.output(waiting)


def test_a_job_in_a_container_survives_the_server_and_can_be_stopped(yard: Pond, real_podman: RealPodman) -> None:
    assert yard("image", "add", "busy:1", IMAGE).returncode == 0
    job = yard.printed("run", "-d", "--image", "busy:1", "sh", "-c", "echo begun; sleep 600")
    until(lambda: yard.has_begun(job))
    assert yard("exec", job, "--", "sh", "-c", "echo inside; ps | grep -c sleep").stdout.splitlines()[0] == "inside"
    yard.kill_server()
    yard.up()
    assert yard.job(job)["state"] == "running"
    yard("stop", job)
    assert yard("wait", job).returncode != 0
    assert yard.job(job)["state"] == "cancelled"
    until(lambda: (ps := real_podman("ps", "--quiet")).returncode == 0 and ps.stdout == "")  # may fail as one goes away


def test_an_image_that_no_registry_gives_ends_the_job_with_what_was_said(yard: Pond) -> None:
    missing = yard("run", "--image", "localhost/never:1", "true")
    assert missing.returncode == 2
    assert "no image 'localhost/never:1' on this machine" in missing.stderr
    accepted = yard("run", "-d", "--image", "127.0.0.1:9/never:1", "true")
    assert accepted.returncode == 0, accepted.stderr
    job = accepted.stdout.strip()
    why = json.loads(yard.printed("why", job, "-o", "json"))
    assert why["cause"] in ("waiting-for-image", "cancelled")
    assert "127.0.0.1:9/never:1" in why["summary"] or "cannot be fetched" in why["summary"]
