"""What the server asks of others: an end in time whatever they answer, and no way to inner addresses."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hostile_server import HEAD, Pieces, answering, endless_body, endless_head, silence
from server_world import Clock, Server, World

from millpond.model.errors import UnavailableError
from millpond.server import outgoing
from millpond.server.auth.oidc import provider
from millpond.server.auth.oidc.provider import Provider
from millpond.server.inbox import wall_clock
from millpond.server.outgoing import Reach, reach_of
from millpond.server.vault.ciphers import Cipher
from millpond.server.vault.secrets import Vault
from millpond.server.webhooks import courier
from millpond.server.webhooks.courier import Courier
from millpond.specs.oidc import OidcRules
from millpond.specs.webhooks import Webhook
from oidc_provider import FakeProvider, served


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "TIMEOUT_S", 0.2)


def provider_at(port: int) -> Provider:
    return Provider(OidcRules(f"http://127.0.0.1:{port}", "us", "secret", "http://testserver"), wall_clock)


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("127.0.0.1", Reach.MACHINE),
        ("127.9.9.9", Reach.MACHINE),
        ("0.0.0.0", Reach.MACHINE),
        ("::1", Reach.MACHINE),
        ("::ffff:127.0.0.1", Reach.MACHINE),
        ("169.254.169.254", Reach.LINK),
        ("fe80::1%eth0", Reach.LINK),
        ("224.0.0.1", Reach.LINK),
        ("10.1.2.3", Reach.PRIVATE),
        ("192.168.0.1", Reach.PRIVATE),
        ("100.64.0.1", Reach.PRIVATE),
        ("fd00::1", Reach.PRIVATE),
        ("2002:0a01:0203::1", Reach.PRIVATE),
        ("64:ff9b::a9fe:a9fe", Reach.LINK),
        ("64:ff9b::7f00:1", Reach.MACHINE),
        ("64:ff9b:1::a9fe:a9fe", Reach.PRIVATE),
        ("64:ff9b::101:101", Reach.WORLD),
        ("1.1.1.1", Reach.WORLD),
        ("2606:4700::1111", Reach.WORLD),
    ],
)
def test_it_is_known_from_where_an_address_is_reached(address: str, reach: Reach) -> None:
    assert reach_of(address) is reach


def compressed() -> Pieces:
    content = gzip.compress(b" " * 2**24)
    yield HEAD + f"Content-Encoding: gzip\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def redirecting() -> Pieces:
    yield b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n"


def nested() -> Pieces:
    content = b"[" * 500_000
    yield HEAD + f"Content-Length: {len(content)}\r\n\r\n".encode() + content


def huge_number() -> Pieces:
    content = b'{"issuer": ' + b"9" * 500_000 + b"}"
    yield HEAD + f"Content-Length: {len(content)}\r\n\r\n".encode() + content


@pytest.mark.parametrize(
    "pieces",
    [endless_body, endless_head, silence, compressed, redirecting, nested, huge_number],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.usefixtures("impatient")
def test_a_hostile_provider_is_given_up_in_time_and_in_words(pieces) -> None:
    with answering(pieces) as port, pytest.raises(UnavailableError) as refused:
        provider_at(port).description()
    assert refused.value.remedy


@pytest.mark.parametrize("value", [None, 1, [], {}, "x", "https://", "http://169.254.169.254/", "file:///etc/passwd"])
@pytest.mark.parametrize("name", ["jwks_uri", "token_endpoint", "authorization_endpoint", "issuer"])
def test_a_provider_that_describes_itself_wrongly_is_refused(name: str, value: object) -> None:
    fake = FakeProvider(wall_clock)
    fake.described = lambda said: said.update({name: value})
    asked = Provider(OidcRules(fake.issuer, "us", "secret", "http://testserver"), wall_clock, fake)
    with pytest.raises(UnavailableError):
        asked.description()


def test_a_provider_out_in_the_world_sends_the_server_to_no_inner_address(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeProvider(wall_clock)
    where = {"127.0.0.1": Reach.MACHINE}
    monkeypatch.setattr(outgoing, "reach_of", where.__getitem__)
    with served(fake):
        rules = OidcRules(fake.issuer, "us", "secret", "http://testserver")
        inner = fake.issuer.replace("127.0.0.1", "localhost")
        fake.described = lambda said: said.update({"jwks_uri": f"{inner}/keys"})
        beside = Provider(rules, wall_clock)
        where["127.0.0.1"] = Reach.LINK
        with pytest.raises(UnavailableError, match="answers with 404"):
            beside.keys()  # as near as the issuer, so it is asked: it knows nothing of that name
        far = Provider(rules, wall_clock)
        where["127.0.0.1"] = Reach.WORLD
        far.description()
        where["127.0.0.1"] = Reach.MACHINE
        before = len(fake.asked)
        with pytest.raises(UnavailableError, match="inner address"):
            far.keys()
        assert len(fake.asked) == before, "nothing was sent there"


@pytest.mark.parametrize("pieces", [endless_body, endless_head, silence, redirecting])
def test_a_hostile_receiver_of_webhooks_is_given_up_in_time(
    tmp_path: Path, pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pieces in (endless_head, silence):
        monkeypatch.setattr(courier, "ANSWER_WITHIN_S", 0.2)
    server = Server(tmp_path, World(), Clock())
    vault = Vault(server.store.secrets, tmp_path, lambda: Cipher.AES_256_GCM, server.clock)
    with answering(pieces) as port:
        hook = Webhook("team", f"http://127.0.0.1:{port}/", ("job.cancelled",))
        telling = Courier(server.store, lambda: {"team": hook}, vault, server.clock)
        server.loop.address = telling.address
        server.submit("a")
        server.turn(1)
        server.loop.stop_job("a", "ada")
        server.turn(3)
        telling.deliver_due()
        (delivery,) = server.store.deliveries.latest(10)
        assert (delivery.state == "delivered") is (pieces is endless_body), "its status came, the rest is not read"
        telling.close()
    server.store.close()
