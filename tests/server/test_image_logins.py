"""Images of registries that ask who one is: a secret says it, and nobody else gets the image by its reference."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_world import Api

from millpond.model.errors import InvalidInputError, NotFoundError, UnavailableError
from millpond.node.containers.finding import Containers
from millpond.node.containers.images import LocalImage, OciImages, PodmanImages, Tell
from millpond.node.containers.logins import Login, login_file
from millpond.node.containers.podman import Podman
from millpond.node.containers.pulling import pull_error
from millpond.server.auth.roles import Caller
from millpond.server.provisions import host
from millpond.server.provisions.catalogue import CatalogueImage
from millpond.server.provisions.images import ImageService
from millpond.server.store.audit import AuditEntry
from millpond.specs.image_bodies import ImageAdd

REFERENCE = "registry.example.com/team/torch:1"
WISH = ImageAdd(name="torch", reference=REFERENCE, login="REGISTRY", visibility="private")
ADA = Caller("ada")


class PrivateRegistry:
    """Gives its one image to ann; knows what this machine calls the images that it has."""

    def __init__(self) -> None:
        self.digest = "sha256:" + "1" * 64
        self.names: dict[str, str] = {}

    def find(self, reference: str) -> LocalImage | None:
        here = self.names.get(reference, reference if reference in self.names.values() else None)
        return None if here is None else LocalImage(here, 1, here)

    def pull(self, reference: str, tell: Tell, login: Login | None = None) -> LocalImage:
        if login != Login("ann", "hush"):
            raise pull_error(reference, "unauthorized: authentication required")
        self.names[reference] = self.digest
        return LocalImage(self.digest, 1, self.digest)

    def name(self, image: LocalImage, name: str) -> None:
        self.names[name] = image.digest

    def drop(self, name: str) -> None:
        self.names.pop(name, None)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> PrivateRegistry:
    made = PrivateRegistry()
    monkeypatch.setattr(host, "find_containers", lambda *_: Containers(Podman("podman"), "podman 5", made, {}))  # type: ignore[arg-type]
    return made


@pytest.fixture
def api(tmp_path: Path, registry: PrivateRegistry) -> Iterator[Api]:
    made = Api(tmp_path / "state")
    made.vault.put("user", "ada", "REGISTRY", "ann:hush", "ada")
    yield made
    made.close()


def add(images: ImageService, wish: ImageAdd) -> None:
    images.add(wish, ADA, "")(lambda line: None)


def test_a_secret_lets_the_registry_give_an_image_that_others_cannot_have_by_its_reference(
    api: Api, registry: PrivateRegistry
) -> None:
    add(api.service.images, WISH)
    assert registry.names == {"localhost/millpond/torch:latest": registry.digest}
    (entry,) = api.outfit.catalogue.all()
    assert (entry.origin, entry.login, entry.digest) == (REFERENCE, "REGISTRY", registry.digest)
    with pytest.raises(InvalidInputError, match="not for everybody"):
        add(api.service.images, WISH.model_copy(update={"login": None}))


def test_an_image_that_is_gone_from_the_machine_is_fetched_again_with_the_login(
    api: Api, registry: PrivateRegistry
) -> None:
    add(api.service.images, WISH)
    registry.names.clear()
    api.service.images.pull("torch", "latest")(lambda line: None)
    assert registry.names == {"localhost/millpond/torch:latest": registry.digest}
    registry.names.clear()
    api.vault.drop("user", "ada", "REGISTRY")
    with pytest.raises(NotFoundError, match="no secret 'REGISTRY'"):
        api.service.images.pull("torch", "latest")(lambda line: None)


def test_a_tag_that_was_moved_meanwhile_is_refused_and_leaves_nothing(api: Api, registry: PrivateRegistry) -> None:
    add(api.service.images, WISH)
    registry.names.clear()
    registry.digest = "sha256:" + "2" * 64
    with pytest.raises(InvalidInputError, match="is another image now"):
        api.service.images.pull("torch", "latest")(lambda line: None)
    assert registry.names == {}


@pytest.mark.parametrize("value", ["hush", ":hush", ""])
def test_a_secret_that_is_no_login_is_refused_before_anything_is_fetched(api: Api, value: str) -> None:
    api.vault.put("user", "ada", "REGISTRY", value, "ada")
    with pytest.raises(InvalidInputError, match="the secret 'REGISTRY' is no login") as caught:
        api.service.images.add(WISH, ADA, "")
    assert "hush" not in str(caught.value)


def test_an_image_of_the_machine_takes_no_login(api: Api) -> None:
    with pytest.raises(InvalidInputError, match="takes no login"):
        api.service.images.add(WISH.model_copy(update={"reference": "localhost/torch:1"}), ADA, "")


@pytest.mark.parametrize(
    ("registry_name", "key"), [("127.0.0.1:5000", "127.0.0.1:5000"), ("docker.io", "https://index.docker.io/v1/")]
)
def test_the_runtime_reads_a_login_from_a_file_that_is_gone_afterwards(
    tmp_path: Path, registry_name: str, key: str
) -> None:
    with login_file(Login("ann", "hu:sh"), registry_name, tmp_path) as variables:
        file = Path(variables["REGISTRY_AUTH_FILE"])
        assert file == Path(variables["DOCKER_CONFIG"]) / "config.json"
        assert file.parent.stat().st_mode & 0o077 == 0, "others of the machine cannot get there"
        assert json.loads(file.read_text()) == {"auths": {key: {"auth": "YW5uOmh1OnNo"}}}
    assert list(tmp_path.iterdir()) == []
    assert "hush" not in repr(Login("ann", "hush"))


def test_what_a_killed_server_left_of_its_logins_and_builds_is_removed(api: Api) -> None:
    for name in ("login-x", "build-y"):
        (api.state_dir / name).mkdir()
    api.close()
    again = Api(api.state_dir)
    assert not {"login-x", "build-y"} & {path.name for path in api.state_dir.iterdir()}
    again.close()


def test_who_may_use_an_image_of_the_catalogue_may_build_upon_it_and_nobody_else(api: Api) -> None:
    add(api.service.images, WISH)
    base = api.outfit.provisions.base
    assert base("torch", ADA, "", print) == "localhost/millpond/torch:latest"
    assert base("torch", Caller("mia"), "", print) == "docker.io/library/torch:latest"
    with pytest.raises(InvalidInputError, match="goes round the catalogue"):
        base("localhost/millpond/torch", ADA, "", print)


def test_podman_is_told_what_short_names_mean_as_it_would_look_among_all_images_first(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho sha256:{"1" * 64} 1\n')
    program.chmod(0o755)
    short = {"torch": "docker.io/library/torch:latest", "docker": "docker.io/library/docker:latest"}
    bases = {**short, "quay.io/a": "quay.io/a:latest", "localhost/b:1": "localhost/b:1"}
    made = PodmanImages(str(program), {}, tmp_path).build(tmp_path, "Containerfile", "name", print, bases)
    assert made.digest == "sha256:" + "1" * 64
    told = (tmp_path / "calls").read_text().splitlines()[0].split()
    assert [word for word in told if "context" in word] == [
        f"--build-context={base}=docker-image://{meant}" for base, meant in short.items()
    ]
    with pytest.raises(UnavailableError, match="docker cannot build upon 'torch:1'"):
        OciImages(str(program), {}, tmp_path).build(
            tmp_path, "Containerfile", "name", print, {"torch:1": "localhost/millpond/torch:1"}
        )


def written_down(api: Api) -> list[tuple[int, str]]:
    """What the audit log says of images: status and account, the oldest first."""
    api.security.audit.add_now(AuditEntry(0.0, "", "", "", "mark", "", "", "", "", "", 0)).result(5)
    found = api.client.get("/api/v1/audit").json()["entries"]
    return [(entry["status"], entry["after"]) for entry in reversed(found) if entry["object"] == "torch:latest"]


def test_the_audit_log_tells_how_it_came_out_although_the_answer_began_well(
    api: Api, registry: PrivateRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = {"name": "torch", "reference": REFERENCE}
    assert api.client.post("/api/v1/images", json=wish).status_code == 200
    assert api.client.post("/api/v1/images", json=wish | {"login": "REGISTRY"}).status_code == 200
    assert api.client.post("/api/v1/images", json=wish | {"login": "NONE"}).status_code == 404
    monkeypatch.setattr(registry, "find", lambda _reference: {}["a defect"])
    assert api.client.post("/api/v1/images/torch/latest/pull").status_code == 200
    refused, added, without, broken = written_down(api)
    assert (refused[0], without[0]) == (422, 404)
    assert refused[1].startswith(f"from {REFERENCE}: the registry registry.example.com does not give")
    assert added == (200, f"from {REFERENCE}: {registry.digest}")
    assert broken == (500, "fetched: a defect")


def test_what_was_left_by_whoever_asked_is_told_as_it_ended(api: Api, registry: PrivateRegistry) -> None:
    images, goes_on = api.service.images, threading.Event()
    ended: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()

    def work(tell: Tell) -> CatalogueImage:
        tell("begun")
        goes_on.wait()
        tell("")
        raise AssertionError

    async def leave() -> None:
        steps = images.steps(work, lambda *how: ended.put(how))
        assert (await anext(steps)).line == "begun"
        await steps.aclose()
        assert ended.empty()
        goes_on.set()

    asyncio.run(leave())
    assert ended.get(timeout=5) == (409, "whoever asked for it is gone")
    assert ended.empty()


def test_what_was_left_before_its_turn_came_is_told_too(api: Api) -> None:
    images, goes_on = api.service.images, threading.Event()
    ended: list[tuple[int, str]] = []

    def work(_tell: Tell) -> CatalogueImage:
        goes_on.wait()
        raise NotFoundError("none", "")

    async def crowd() -> None:
        crowded = [asyncio.ensure_future(anext(images.steps(work, lambda *_: None))) for _ in range(4)]
        last = asyncio.ensure_future(anext(images.steps(work, lambda *how: ended.append(how))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        last.cancel()
        with pytest.raises(asyncio.CancelledError):
            await last
        assert ended == [(409, "whoever asked for it is gone")]
        goes_on.set()
        await asyncio.gather(*crowded)

    asyncio.run(crowd())
