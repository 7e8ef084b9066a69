"""Images of real registries: fetched, pinned, waited for, and not given to everybody. One walk, as starts take time."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from real_pond import PATIENCE_S, POND, Pond, until

from real_containers import IMAGE, RealPodman
from real_registry import LOGIN, RealRegistry, registry_program

pytestmark = pytest.mark.long


@dataclass(frozen=True, slots=True)
class Yard:
    """A server, its podman, and two registries that podman may speak to without TLS."""

    pond: Pond
    podman: RealPodman
    open: RealRegistry
    private: RealRegistry

    def push(self, text: str, reference: str, *options: str) -> None:
        """Have an image that says something in its file ``/said`` in a registry, and no more on this machine."""
        file = self.pond.state_dir.parent / "Containerfile"
        file.write_text(f"FROM {IMAGE}\nRUN echo {text} > /said\n")
        for arguments in (
            ("build", "--tag", reference, "--file", str(file), str(file.parent / "nothing")),
            ("push", *options, reference),
            ("rmi", "--force", reference),
        ):
            done = self.podman(*arguments)
            assert done.returncode == 0, done.stderr

    def listed(self, image: str) -> dict:
        """An image as ``pond image ls`` tells it."""
        found = json.loads(self.pond.printed("image", "ls", "-o", "json"))["images"]
        return next(each for each in found if each["reference"] == image)

    def why(self, job: str) -> dict:
        """What ``pond why`` says."""
        return json.loads(self.pond.printed("why", job, "-o", "json"))


@pytest.fixture(scope="module")
def yard(_real_podman: RealPodman | str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    program = registry_program()
    if isinstance(_real_podman, str) or not program:
        pytest.skip(_real_podman if isinstance(_real_podman, str) else "docker-registry is not installed")
    folder = tmp_path_factory.mktemp("registry")
    (folder / "nothing").mkdir()
    registries = [RealRegistry(program, folder / name, name == "private") for name in ("open", "private")]
    trusted = folder / "registries.conf"
    trusted.write_text("".join(f'[[registry]]\nlocation = "{one.address}"\ninsecure = true\n' for one in registries))
    env = _real_podman.env | {"CONTAINERS_REGISTRIES_CONF": str(trusted)}
    pond = Pond(folder / "state")
    pond.env |= env
    pond.up()
    yield Yard(pond, RealPodman(_real_podman.program, env), *registries)
    done = pond("down")
    assert done.returncode == 0, done.stderr
    for each in registries:
        each.stop()


def test_a_job_keeps_the_image_that_a_tag_meant_when_it_was_handed_in(yard: Yard) -> None:
    pond, reference = yard.pond, f"{yard.open.address}/team/words:1"
    yard.push("one", reference)
    added = pond("image", "add", "words:1", reference)
    assert added.returncode == 0, added.stderr
    assert "Copying blob" in added.stderr, "what the runtime says is followed"
    hold = pond.printed("run", "-d", "--gpus", "4", "--tasks", "2", "--", "sleep", "600")
    waiting = pond.printed("run", "-d", "--image", "words:1", "--gpus", "4", "--", "cat", "/said")
    yard.push("two", reference)
    assert pond("image", "add", "words:1", reference).stdout != added.stdout
    assert pond("stop", hold).returncode == 0
    assert pond("wait", waiting).returncode == 0
    assert pond("logs", waiting).stdout == "one\n"
    assert pond("run", "--image", "words:1", "--", "cat", "/said").stdout == "two\n"


def test_an_image_that_is_gone_from_the_machine_is_had_again_although_its_tag_has_moved(yard: Yard) -> None:
    pond, reference = yard.pond, f"{yard.open.address}/team/moves:1"
    yard.push("before", reference)
    assert pond("image", "add", "moves:1", reference).returncode == 0
    listed = yard.listed("moves:1")
    assert yard.podman("rmi", "--force", listed["digest"].removeprefix("sha256:")).returncode == 0
    yard.push("after", reference)
    assert yard.listed("moves:1")["nodes"] == {"fake-1": "absent", "fake-2": "absent"}
    run = pond("run", "--image", "moves:1", "--", "cat", "/said")
    assert run.stdout == "before\n", run.stderr
    assert listed["exact"] in pond("image", "ls", "-o", "wide").stdout
    fresh = pond("run", "--image", listed["exact"], "--", "cat", "/said")
    assert fresh.stdout == "before\n", fresh.stderr


def test_what_a_registry_does_not_have_ends_the_job_and_one_that_is_down_is_waited_for(yard: Yard) -> None:
    pond, reference = yard.pond, f"{yard.open.address}/team/later:1"
    yard.push("later", reference)
    missing = pond("run", "--image", f"{yard.open.address}/team/later:9", "--", "true")
    assert f"has no image {yard.open.address}/team/later:9" in missing.stderr
    yard.open.stop()
    job = pond.printed("run", "-d", "--image", reference, "--", "cat", "/said")
    refused = f"the registry {yard.open.address} cannot be reached (connection refused); it is tried again"
    until(lambda: refused in yard.why(job)["summary"])
    assert yard.why(job)["cause"] == "waiting-for-image"
    yard.open.start()
    assert pond("wait", job).returncode == 0
    assert pond("logs", job).stdout == "later\n"


def test_a_registry_that_asks_for_a_login_gets_it_from_a_secret_and_gives_to_nobody_else(yard: Yard) -> None:
    pond, reference = yard.pond, f"{yard.private.address}/team/secret:1"
    yard.push("secret", reference, "--creds", LOGIN)
    refused = pond("image", "add", "secret:1", reference)
    assert (refused.returncode, "not for everybody" in refused.stderr) == (2, True)
    assert "pond image add --login" in refused.stderr
    kept = [POND, "secret", "set", "REGISTRY", "--stdin"]
    subprocess.run(kept, input=LOGIN, env=pond.env, text=True, check=True, capture_output=True, timeout=PATIENCE_S)
    added = pond("image", "add", "secret:1", reference, "--login", "REGISTRY", "--visibility", "private")
    assert added.returncode == 0, added.stderr
    assert pond("run", "--image", "secret:1", "--", "cat", "/said").stdout == "secret\n"
    context = pond.state_dir.parent / "nothing"
    (context / "Containerfile").write_text("FROM secret:1\nRUN cat /said /said > /twice\n")
    assert pond("image", "build", "twice:1", str(context)).returncode == 0
    assert pond("run", "--image", "twice:1", "--", "cat", "/twice").stdout == "secret\nsecret\n"
    around = pond("run", "--image", reference, "--", "cat", "/said")
    assert (around.stdout, "not for everybody" in around.stderr) == ("", True), "the catalogue is the only way to it"
    exact = yard.listed("secret:1")["exact"]
    assert exact.startswith(f"{yard.private.address}/team/secret@sha256:")
    for sideways in (exact, exact.replace(yard.private.address, yard.open.address)):
        denied = pond("run", "--image", sideways, "--", "cat", "/said")
        assert denied.stdout == "", "nor does its digest lead to it, of whatever repository"
        assert "not for everybody" in denied.stderr or "has no image" in denied.stderr, denied.stderr
    assert not list(pond.state_dir.glob("login-*"))
    assert "hush" not in (pond.state_dir / "server.log").read_text()


def test_what_is_built_here_goes_to_a_registry_and_comes_back_from_there(yard: Yard) -> None:
    pond, reference = yard.pond, f"{yard.private.address}/team/made:1"
    kept = [POND, "secret", "set", "REGISTRY", "--stdin"]
    subprocess.run(kept, input=LOGIN, env=pond.env, text=True, check=True, capture_output=True, timeout=PATIENCE_S)
    (pond.state_dir.parent / "made").mkdir()
    (pond.state_dir.parent / "made/Containerfile").write_text(f"FROM {IMAGE}\nRUN echo made > /said\n")
    assert pond("image", "build", "made:1", str(pond.state_dir.parent / "made")).returncode == 0
    refused = pond("image", "push", "made:1", reference)
    assert (refused.returncode, f"does not take {reference}" in refused.stderr) == (2, True), refused.stderr
    pushed = pond("image", "push", "made:1", reference, "--login", "REGISTRY")
    assert pushed.returncode == 0, pushed.stderr
    assert pushed.stdout.startswith(f"{yard.private.address}/team/made@sha256:")
    assert yard.listed("made:1")["exact"] == pushed.stdout.strip()
    assert yard.podman("rmi", "--force", yard.listed("made:1")["digest"].removeprefix("sha256:")).returncode == 0
    run = pond("run", "--image", "made:1", "--", "cat", "/said")
    assert run.stdout == "made\n", run.stderr
    told = json.loads(pond.printed("audit", "--object", "made:1", "-o", "json"))["entries"]
    assert [entry["status"] for entry in told if entry["after"].startswith("sent to")] == [200, 422]
