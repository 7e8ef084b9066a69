"""Images of registries that ask who one is: a secret says it, and nobody else gets the image by its reference."""

from __future__ import annotations

import asyncio
import base64
import json
import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from api_world import Api

from millpond.model.errors import InvalidInputError, MillpondError, NotFoundError, UnavailableError
from millpond.node.containers.detection import Containers
from millpond.node.containers.images import LocalImage, OciImages, PodmanImages
from millpond.node.containers.logins import RegistryLogin, login_file
from millpond.node.containers.oci import Podman
from millpond.node.containers.programs import Notify
from millpond.node.containers.pull_errors import pull_error, push_error
from millpond.server.auth.roles import Caller
from millpond.server.storage.provisioning import host
from millpond.server.storage.provisioning.cache import CopyProgress
from millpond.server.storage.provisioning.catalogue import CatalogueImage
from millpond.server.storage.provisioning.image_sources import ImageRules
from millpond.server.storage.provisioning.images import ImageService
from millpond.server.storage.provisioning.staging import Item
from millpond.specs.api.accounts.accounts import AuditInfo
from millpond.specs.api.jobs.images import ImageAdd, ImagePush
from millpond.specs.config.provisioning import ProvisioningRules
from millpond.specs.config.queue_documents import read_queue_rules
from millpond.specs.job.job_spec import check_job

REFERENCE = "registry.example.com/team/torch:1"
FIRST, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
EXACT = "registry.example.com/team/torch@sha256:" + "e" * 64
WISH = ImageAdd(name="torch", reference=REFERENCE, login="REGISTRY", visibility="private")
ADA = Caller("ada")


class PrivateRegistry:
    """Gives its one image to ann; knows what this machine calls the images that it has.

    Attributes:
        is_open: it gives it to everybody.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.digest = FIRST
        self.names: dict[str, str] = {}
        self.pulled: list[str] = []
        self.pushed: list[tuple[str, str]] = []
        self.has = {REFERENCE, EXACT}
        self.adds: list[str] = []

    def find(self, reference: str) -> LocalImage | None:
        here = self.names.get(reference, reference if reference in self.names.values() else None)
        return None if here is None else LocalImage(here, 1, here)

    def digests(self) -> frozenset[str]:
        return frozenset(self.names.values())

    def pull(self, reference: str, tell: Notify, login: RegistryLogin | None = None) -> LocalImage:
        if not self.is_open and login != RegistryLogin("ann", "hush"):
            raise pull_error(reference, "unauthorized: authentication required")
        self.pulled.append(reference)
        if reference not in self.has:
            raise pull_error(reference, "manifest unknown")
        digest = FIRST if reference == EXACT else self.digest
        self.names[reference] = digest
        return LocalImage(digest, 1, digest, (EXACT,) if digest == FIRST else ())

    def push(self, image: LocalImage, reference: str, _tell: Notify, login: RegistryLogin | None) -> str:
        if login != RegistryLogin("ann", "hush"):
            raise push_error(reference, "unauthorized: authentication required")
        self.pushed.append((reference, image.digest))
        return EXACT

    def triggers(self, image: LocalImage) -> list[str]:
        return self.adds

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
    (entry,) = api.provisioning.catalogue.all()
    assert (entry.origin, entry.login, entry.digest) == (REFERENCE, "REGISTRY", registry.digest)
    with pytest.raises(InvalidInputError, match="not for everybody"):
        add(api.service.images, WISH.model_copy(update={"login": None}))


def test_an_image_that_took_no_login_goes_with_its_entry_unless_it_was_here_before(
    api: Api, registry: PrivateRegistry
) -> None:
    registry.is_open, wish, images = True, WISH.model_copy(update={"login": None}), api.service.images
    add(images, wish)
    assert registry.names == {"localhost/millpond/torch:latest": registry.digest}
    images.remove("torch", "latest")
    assert registry.names == {}
    registry.names[REFERENCE] = FIRST
    add(images, wish)
    images.remove("torch", "latest")
    assert registry.names == {REFERENCE: FIRST}


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


def test_an_image_whose_tag_was_moved_is_had_again_exactly(api: Api, registry: PrivateRegistry) -> None:
    add(api.service.images, WISH)
    (entry,) = api.client.get("/api/v1/images").json()["images"]
    assert entry["exact"] == EXACT
    registry.names.clear()
    registry.digest = "sha256:" + "2" * 64
    api.service.images.pull("torch", "latest")(lambda line: None)
    assert registry.names == {"localhost/millpond/torch:latest": FIRST}


def test_what_a_registry_keeps_no_more_is_had_by_its_tag_while_that_is_what_it_was(
    api: Api, registry: PrivateRegistry
) -> None:
    add(api.service.images, WISH)
    registry.names.clear()
    registry.has = {REFERENCE}
    told: list[str] = []
    api.service.images.pull("torch", "latest")(told.append)
    assert told == [f"{EXACT} is there no more"]
    assert registry.names == {"localhost/millpond/torch:latest": FIRST}
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
    with login_file(RegistryLogin("ann", "hu:sh"), registry_name, tmp_path) as variables:
        file = Path(variables["REGISTRY_AUTH_FILE"])
        assert file == Path(variables["DOCKER_CONFIG"]) / "config.json"
        assert file.parent.stat().st_mode & 0o077 == 0, "others of the machine cannot get there"
        assert json.loads(file.read_text()) == {"auths": {key: {"auth": "YW5uOmh1OnNo"}}}
    assert list(tmp_path.iterdir()) == []
    assert "hush" not in repr(RegistryLogin("ann", "hush"))


def test_what_a_killed_server_left_of_its_logins_and_builds_is_removed(api: Api) -> None:
    for name in ("login-x", "build-y"):
        (api.state_dir / name).mkdir()
    api.close()
    again = Api(api.state_dir)
    for ending in [each for each in threading.enumerate() if each.name == "builds"]:
        ending.join()
    assert not {"login-x", "build-y"} & {path.name for path in api.state_dir.iterdir()}
    again.close()


@pytest.mark.parametrize("line", ["COPY --from=localhost/millpond/others:1 / /", "RUN --mount=from=e/f:1 make"])
def test_an_image_that_has_builds_upon_it_use_further_images_is_not_built_upon(
    api: Api, registry: PrivateRegistry, line: str
) -> None:
    registry.is_open, registry.adds = True, ["RUN make", "COPY . /src"]
    assert api.provisioning.sources.base(REFERENCE, ADA, "", print).digest == FIRST
    registry.adds.append(line)
    with pytest.raises(InvalidInputError, match=r"what is built upon .* uses other images"):
        api.provisioning.sources.base(REFERENCE, ADA, "", print)


@pytest.mark.parametrize("config", ['{"config": {"OnBuild": ["RUN x"]}}', '{"Config": {"ONBUILD": ["RUN x"], "a": 1}}'])
def test_what_an_image_adds_to_builds_is_read_where_podman_keeps_it(tmp_path: Path, config: str) -> None:
    images, image = PodmanImages("podman", {}, tmp_path, configs=tmp_path), LocalImage(FIRST, 1, FIRST)
    with pytest.raises(UnavailableError, match=r"adds to a build cannot be read: .*No such file"):
        images.triggers(image)
    kept = tmp_path / FIRST.removeprefix("sha256:") / f"={base64.b64encode(FIRST.encode()).decode()}"
    kept.parent.mkdir()
    kept.write_text(config)
    assert images.triggers(image) == ["RUN x"]
    kept.write_text('{"config": {"OnBuild": null}, "history": [{"created_by": "OnBuild"}]}')
    assert images.triggers(image) == []
    kept.write_text('{"config": 1}')
    with pytest.raises(UnavailableError, match="adds to a build cannot be read"):
        images.triggers(image)


def test_docker_says_itself_what_an_image_adds_to_builds(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho '[\"RUN x\"]'\n")
    program.chmod(0o755)
    assert OciImages(str(program), {}, tmp_path).triggers(LocalImage(FIRST, 1, FIRST)) == ["RUN x"]


def test_who_may_use_an_image_of_the_catalogue_may_build_upon_it_and_nobody_else(
    api: Api, registry: PrivateRegistry
) -> None:
    add(api.service.images, WISH)
    base, registry.is_open = api.provisioning.sources.base, True
    assert base("torch", ADA, "", print).digest == FIRST
    assert "docker.io/library/torch:latest" not in registry.names
    registry.has.add("docker.io/library/torch:latest")
    registry.digest = "sha256:" + "2" * 64
    assert base("torch", Caller("mia"), "", print).digest == registry.digest
    with pytest.raises(InvalidInputError, match="goes round the catalogue"):
        base("localhost/millpond/torch", ADA, "", print)


def test_podman_is_told_what_names_mean_as_another_image_may_have_them_meanwhile(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho sha256:{"1" * 64} 1 null\n')
    program.chmod(0o755)
    bases = {name: LocalImage(digest, 1, digest) for name, digest in (("torch", FIRST), ("quay.io/a:1", OTHER))}
    made = PodmanImages(str(program), {}, tmp_path).build(tmp_path, "Containerfile", "name", print, bases)
    assert made.digest == "sha256:" + "1" * 64
    told = (tmp_path / "calls").read_text().splitlines()[0].split()
    assert [word for word in told if "context" in word] == [
        f"--build-context=torch=docker-image://{'1' * 64}",
        f"--build-context=quay.io/a:1=docker-image://{'2' * 64}",
    ]
    docker = OciImages(str(program), {}, tmp_path)  # to which all names are the first image
    with pytest.raises(UnavailableError, match=r"docker cannot build upon 'quay\.io/a:1'"):
        docker.build(tmp_path, "Containerfile", "name", print, bases)
    del bases["quay.io/a:1"]
    assert docker.build(tmp_path, "Containerfile", "name", print, bases).digest == FIRST


PUSH = "/api/v1/images/made/1/push"
MADE = CatalogueImage("made", "1", "built by ada", FIRST, 1, "ada", "", "private", "", 0.0)


def pushed(api: Api, registry: PrivateRegistry, **wish: str) -> dict[str, Any]:
    """The last line of a push of what was built here."""
    registry.names[MADE.held_as] = FIRST
    answer = api.client.post(PUSH, json={"reference": REFERENCE, **wish})
    assert answer.status_code == 200, answer.text
    last: dict[str, Any] = json.loads(answer.text.splitlines()[-1])
    return last


def test_what_was_built_here_goes_to_a_registry_and_is_had_again_from_there(
    api: Api, registry: PrivateRegistry
) -> None:
    api.provisioning.catalogue.put(MADE)
    refused = pushed(api, registry)["error"]
    assert "does not take" in refused["cause"]
    assert "--login" in refused["remedy"]
    assert pushed(api, registry, login="REGISTRY")["image"]["exact"] == EXACT
    assert registry.pushed == [(REFERENCE, FIRST)]
    registry.names.clear()
    api.service.images.pull("made", "1")(lambda line: None)
    assert registry.pulled == [EXACT]
    assert registry.names == {MADE.held_as: FIRST}
    found = [entry for entry in api.client.get("/api/v1/audit").json()["entries"] if entry["object"] == "made:1"]
    assert [(entry["verb"], entry["status"]) for entry in found] == [("change-images", 200), ("change-images", 422)]
    assert found[0]["after"] == f"sent to {REFERENCE}: {FIRST}"


def test_what_another_pushes_is_not_fetched_with_the_secrets_of_its_owner(api: Api, registry: PrivateRegistry) -> None:
    api.provisioning.catalogue.put(replace(MADE, user="mia"))
    assert pushed(api, registry, login="REGISTRY")["image"]["exact"] == EXACT
    (entry,) = api.provisioning.catalogue.all()
    assert (entry.exact, entry.login) == ("", "")


def test_where_an_image_came_from_is_not_forgotten_when_it_goes_elsewhere_too(
    api: Api, registry: PrivateRegistry
) -> None:
    api.provisioning.catalogue.put(replace(MADE, origin="quay.io/team/torch:1", exact=""))
    pushed(api, registry, login="REGISTRY")
    (entry,) = api.provisioning.catalogue.all()
    assert (entry.exact, entry.sources) == ("", ("quay.io/team/torch:1",))


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("team/torch:1", "names no registry"),
        ("torch", "names no registry"),
        ("localhost/torch:1", "names no registry"),
        ("localhost/millpond/other:1", "goes round the catalogue"),
        (EXACT, "has a digest"),
        ("--all", "is not the name of an image"),
        ("https://registry.example.com/x:1", "is not the name of an image"),
    ],
)
def test_an_image_goes_to_a_registry_that_is_named_and_nowhere_else(
    api: Api, registry: PrivateRegistry, reference: str, words: str
) -> None:
    api.provisioning.catalogue.put(MADE)
    answer = api.client.post(PUSH, json={"reference": reference, "login": "REGISTRY"})
    assert answer.status_code == 422
    assert words in answer.text
    assert registry.pushed == []


def test_what_is_not_in_the_catalogue_or_lets_nobody_in_is_refused_before_anything_is_sent(
    api: Api, registry: PrivateRegistry
) -> None:
    assert api.client.post(PUSH, json={"reference": REFERENCE}).status_code == 404
    api.provisioning.catalogue.put(MADE)
    assert api.client.post(PUSH, json={"reference": REFERENCE, "login": "NONE"}).status_code == 404
    assert registry.pushed == []


def test_a_queue_gives_to_the_registries_that_it_may_have_from(tmp_path: Path, registry: PrivateRegistry) -> None:
    paths = read_queue_rules({"team": {"images": ["quay.io/team"]}})
    api = Api(tmp_path / "state", paths=lambda: paths)
    try:
        for reference, is_allowed in (("quay.io/team/a:1", True), ("quay.io/teams/a:1", False), (REFERENCE, False)):
            wish = ImagePush(reference=reference)
            if is_allowed:
                api.service.images.push(MADE, wish, ADA, "team")
            else:
                with pytest.raises(InvalidInputError, match=r"from: quay\.io/team"):
                    api.service.images.push(MADE, wish, ADA, "team")
            api.service.images.push(MADE, wish, ADA, "")
    finally:
        api.close()


DIGEST = "sha256:" + "d" * 64


def test_podman_sends_an_image_as_nobody_unless_a_login_is_given(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncat $REGISTRY_AUTH_FILE >> {tmp_path}/calls\n'
        f"echo >> {tmp_path}/calls\nprintf {DIGEST} > $3\n"
    )
    program.chmod(0o755)
    image = LocalImage(FIRST, 1, FIRST)
    images = PodmanImages(str(program), {}, tmp_path)
    assert images.push(image, REFERENCE, print, None) == f"registry.example.com/team/torch@{DIGEST}"
    images.push(image, REFERENCE, print, RegistryLogin("ann", "hush"))
    first, nobody, _, ann = (tmp_path / "calls").read_text().splitlines()
    assert first.split()[0] == "push"
    assert first.endswith(f" {FIRST} docker://{REFERENCE}")
    assert json.loads(nobody) == {"auths": {}}
    assert list(json.loads(ann)["auths"]) == ["registry.example.com"]
    assert not list(tmp_path.glob("login-*"))


@pytest.mark.parametrize("is_held", [True, False])
def test_a_name_with_a_digest_is_dropped_only_where_an_image_has_it(tmp_path: Path, is_held: bool) -> None:
    program, held = tmp_path / "podman", EXACT if is_held else "localhost/millpond/torch@" + EXACT.partition("@")[2]
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho \'{FIRST} 1 ["{held}"]\'\n')
    program.chmod(0o755)
    PodmanImages(str(program), {}, tmp_path).drop(EXACT)
    assert (f"rmi {EXACT}" in (tmp_path / "calls").read_text().splitlines()) is is_held


@pytest.mark.parametrize("is_known", [True, False])
def test_docker_sends_what_has_the_name_and_has_it_no_longer_than_before(tmp_path: Path, is_known: bool) -> None:
    program, second = tmp_path / "docker", "sha256:" + "2" * 64
    known = f'echo "{second} 1 []"' if is_known else "exit 1"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncase "$1" in image) {known};;'
        f' push) echo "1: digest: {DIGEST} size: 9";; esac\n'
    )
    program.chmod(0o755)
    images = OciImages(str(program), {}, tmp_path)
    assert images.push(LocalImage(FIRST, 1, FIRST), REFERENCE, print, None).endswith(f"@{DIGEST}")
    said = [line for line in (tmp_path / "calls").read_text().splitlines() if not line.startswith("image")]
    after = f"tag {second} {REFERENCE}" if is_known else f"rmi {REFERENCE}"
    assert said == [f"tag {FIRST} {REFERENCE}", f"push {REFERENCE}", after]


def written_down(api: Api) -> list[tuple[int, str]]:
    """What the audit log says of images: status and account, the oldest first."""
    mark = AuditInfo(**dict(zip(AuditInfo.model_fields, (0.0, "", "", "", "mark", "", "", "", "", "", 0), strict=True)))
    api.security.audit.add_now(mark).result(60)
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


def test_the_last_line_comes_when_the_audit_log_has_the_entry(api: Api) -> None:
    heard, kept = threading.Event(), Future[None]()

    def ended(*_how: object) -> Future[None]:
        heard.set()
        return kept

    def work(_tell: Notify) -> CatalogueImage:
        raise NotFoundError("none", "")

    async def ask() -> None:
        last = asyncio.ensure_future(anext(api.service.images.steps(work, "ann", ended)))
        await asyncio.to_thread(heard.wait)
        assert await asyncio.wait({last}, timeout=0.05) == (set(), {last})
        kept.set_result(None)
        assert (await last).error is not None

    asyncio.run(ask())


def test_what_was_left_by_whoever_asked_is_told_as_it_ended(api: Api, registry: PrivateRegistry) -> None:
    images, goes_on = api.service.images, threading.Event()
    ended: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()

    def work(tell: Notify) -> CatalogueImage:
        tell("begun")
        goes_on.wait()
        tell("")
        raise AssertionError

    async def leave() -> None:
        steps = images.steps(work, "ann", lambda *how: ended.put(how))
        assert (await anext(steps)).line == "begun"
        await steps.aclose()
        assert ended.empty()
        goes_on.set()

    asyncio.run(leave())
    assert ended.get(timeout=60) == (409, "the client that asked for it is gone")
    assert ended.empty()


def test_what_was_left_before_its_turn_came_is_told_too(api: Api) -> None:
    images, goes_on = api.service.images, threading.Event()
    ended: list[tuple[int, str]] = []

    def work(_tell: Notify) -> CatalogueImage:
        goes_on.wait()
        raise NotFoundError("none", "")

    async def crowd() -> None:
        crowded = [asyncio.ensure_future(anext(images.steps(work, user, lambda *_: None))) for user in "abcdefgh"]
        last = asyncio.ensure_future(anext(images.steps(work, "i", lambda *how: ended.append(how))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        last.cancel()
        with pytest.raises(asyncio.CancelledError):
            await last
        assert ended == [(409, "the client that asked for it is gone")]
        goes_on.set()
        await asyncio.gather(*crowded)

    asyncio.run(crowd())


@pytest.mark.parametrize(
    ("reference", "is_within"),
    [
        ("127.0.0.1:5000/a:1", True),
        ("127.1.2.3/a:1", True),
        ("localhost:5000/a:1", True),
        ("[::1]:5000/a:1", True),
        ("169.254.169.254/latest/meta-data:1", True),
        ("0.0.0.0:80/a:1", True),
        ("localhost/a:1", False),
        ("10.0.0.5:5000/a:1", False),
        ("docker.io/library/a:1", False),
        ("registry.example.com/a:1", False),
    ],
)
def test_nobody_but_an_admin_has_the_servers_own_machine_asked_for_images(reference: str, is_within: bool) -> None:
    lists: dict[str, tuple[str, ...] | None] = {"open": None, "listed": (reference.partition("/")[0],)}
    queues = SimpleNamespace(images=lists.__getitem__)
    rules = ImageRules(queues, ProvisioningRules, None)  # type: ignore[arg-type]
    for whose, by_admin in (("listed", False), ("open", True), ("", False)):
        rules.check(reference, whose, by_admin=by_admin)
    if is_within:
        with pytest.raises(InvalidInputError, match="own machine"):
            rules.check(reference, "open")
    else:
        rules.check(reference, "open")


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the name of the registry stands for."""
    found: list[str] = []

    def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        assert host == "registry.example.com"
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return found


@pytest.mark.parametrize("inner", [["127.0.0.1"], ["93.184.216.34", "169.254.169.254"], ["::1"]])
def test_a_registry_whose_name_leads_to_the_servers_own_machine_is_not_asked(
    api: Api, registry: PrivateRegistry, addresses: list[str], inner: list[str]
) -> None:
    add(api.service.images, WISH)  # without a rule, as an admin does
    (entry,) = api.provisioning.catalogue.all()
    asked, images, provisions = list(registry.pulled), api.service.images, api.provisioning.provisions
    push = ImagePush(reference=REFERENCE, login="REGISTRY")
    addresses += inner
    for act in (
        lambda: images.add(WISH, ADA, "default")(lambda line: None),
        lambda: images.push(entry, push, ADA, "default")(lambda line: None),
        lambda: api.provisioning.sources.base(REFERENCE, ADA, "default", lambda line: None),
        lambda: provisions.fetch(Item("image", REFERENCE), CopyProgress(), lambda: None),
    ):
        with pytest.raises(InvalidInputError, match="own machine or of its link"):
            act()
    assert (registry.pulled, registry.pushed) == (asked, [])


@pytest.mark.parametrize("outer", [["93.184.216.34", "10.0.0.5"], []])
def test_a_registry_elsewhere_or_behind_a_proxy_that_knows_its_name_is_asked(
    api: Api, registry: PrivateRegistry, addresses: list[str], outer: list[str]
) -> None:
    addresses += outer
    api.service.images.add(WISH, ADA, "default")(lambda line: None)
    assert registry.pulled == [REFERENCE]


def test_the_job_of_an_admin_may_have_an_image_of_the_servers_own_machine(
    api: Api, registry: PrivateRegistry, addresses: list[str]
) -> None:
    addresses.append("127.0.0.1")
    provisions = api.provisioning.provisions
    spec = check_job({"command": "x", "image": REFERENCE})
    for admin, refusal in ((False, "own machine"), (True, "not for everybody")):
        document = provisions.settle(spec.file, spec.document, Caller("ada", admin=admin)).document
        with pytest.raises(MillpondError, match=refusal):
            provisions.fetch(provisions.items(document)["image"], CopyProgress(), lambda: None)
