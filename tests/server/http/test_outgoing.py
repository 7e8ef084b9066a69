"""What the server asks of others: an end in time whatever they answer, and no way to inner addresses."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
from hostile_server import HEAD, Pieces, answering, endless_body, endless_head, silence
from notice_world import NoticeWorld

from millpond.model.errors import UnavailableError
from millpond.server.auth.oidc import provider
from millpond.server.auth.oidc.provider import OidcProvider
from millpond.server.http import outgoing
from millpond.server.http.outgoing import AddressScope, reach_of
from millpond.server.notifications import webhook_carrier
from millpond.specs.config.oidc import OidcRules
from millpond.specs.config.webhooks import Webhook
from oidc_provider import FakeProvider, served


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "TIMEOUT_S", 0.2)


def provider_at(port: int) -> OidcProvider:
    return OidcProvider(
        OidcRules(
            issuer=f"http://127.0.0.1:{port}", client_id="us", client_secret="secret", public_url="http://testserver"
        ),
        time.time,
    )


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("127.0.0.1", AddressScope.MACHINE),
        ("127.9.9.9", AddressScope.MACHINE),
        ("0.0.0.0", AddressScope.MACHINE),
        ("::1", AddressScope.MACHINE),
        ("::ffff:127.0.0.1", AddressScope.MACHINE),
        ("169.254.169.254", AddressScope.LINK),
        ("fe80::1%eth0", AddressScope.LINK),
        ("224.0.0.1", AddressScope.LINK),
        ("10.1.2.3", AddressScope.PRIVATE),
        ("192.168.0.1", AddressScope.PRIVATE),
        ("100.64.0.1", AddressScope.PRIVATE),
        ("fd00::1", AddressScope.PRIVATE),
        ("2002:0a01:0203::1", AddressScope.PRIVATE),
        ("64:ff9b::a9fe:a9fe", AddressScope.LINK),
        ("64:ff9b::7f00:1", AddressScope.MACHINE),
        ("64:ff9b:1::a9fe:a9fe", AddressScope.PRIVATE),
        ("64:ff9b::101:101", AddressScope.WORLD),
        ("1.1.1.1", AddressScope.WORLD),
        ("2606:4700::1111", AddressScope.WORLD),
    ],
)
def test_it_is_known_from_where_an_address_is_reached(address: str, reach: AddressScope) -> None:
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
    fake = FakeProvider(time.time)
    fake.described = lambda said: said.update({name: value})
    asked = OidcProvider(
        OidcRules(issuer=fake.issuer, client_id="us", client_secret="secret", public_url="http://testserver"),
        time.time,
        fake,
    )
    with pytest.raises(UnavailableError):
        asked.description()


def test_a_provider_out_in_the_world_sends_the_server_to_no_inner_address(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeProvider(time.time)
    where = {"127.0.0.1": AddressScope.MACHINE}
    monkeypatch.setattr(outgoing, "reach_of", where.__getitem__)
    with served(fake):
        rules = OidcRules(issuer=fake.issuer, client_id="us", client_secret="secret", public_url="http://testserver")
        inner = fake.issuer.replace("127.0.0.1", "localhost")
        fake.described = lambda said: said.update({"jwks_uri": f"{inner}/keys"})
        beside = OidcProvider(rules, time.time)
        where["127.0.0.1"] = AddressScope.LINK
        with pytest.raises(UnavailableError, match="answers with 404"):
            beside.keys()  # as near as the issuer, so it is asked: it knows nothing of that name
        far = OidcProvider(rules, time.time)
        where["127.0.0.1"] = AddressScope.WORLD
        far.description()
        where["127.0.0.1"] = AddressScope.MACHINE
        before = len(fake.asked)
        with pytest.raises(UnavailableError, match="inner address"):
            far.keys()
        assert len(fake.asked) == before, "nothing was sent there"


@pytest.mark.parametrize("pieces", [endless_body, endless_head, silence, redirecting])
def test_a_hostile_receiver_of_webhooks_is_given_up_in_time(
    tmp_path: Path, pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pieces in (endless_head, silence):
        monkeypatch.setattr(webhook_carrier, "ANSWER_WITHIN_S", 0.2)
    world = NoticeWorld(tmp_path)
    with answering(pieces) as port:
        world.hooks["team"] = Webhook("team", f"http://127.0.0.1:{port}/", ("job.cancelled",))
        world.server.submit("a")
        world.server.turn(1)
        world.server.loop.stop_job("a", "ada")
        world.server.turn(3)
        world.deliver()
        (delivery,) = world.store.deliveries.latest(10)
        assert (delivery.state == "delivered") is (pieces is endless_body), "its status came, the rest is not read"
    world.close()
