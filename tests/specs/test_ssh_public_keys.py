"""Public keys of SSH: what is taken, and by which name it goes."""

from __future__ import annotations

import base64

import pytest

from millpond.model.errors import InvalidInputError
from millpond.specs.api.accounts.ssh import PublicKey

BLOB = "AAAAC3NzaC1lZDI1NTE5AAAAIFUDoiUoxrADmV2ZLLBQ1OUMdKUVdHoFKlrGqIzsFcyo"
FINGERPRINT = "SHA256:8CJTe323Ig+iKOr/e5eSj6L72oIfhxgBZUP9gNFvct4"


def rsa(bits: int) -> str:
    modulus = (1 << (bits - 1)).to_bytes(bits // 8 + 1)
    blob = b"".join(len(field).to_bytes(4) + field for field in (b"ssh-rsa", b"\x01\x00\x01", modulus))
    return f"ssh-rsa {base64.b64encode(blob).decode()}"


def test_a_line_of_a_file_is_a_key_whose_fingerprint_is_that_of_ssh_keygen() -> None:
    key = PublicKey.parse(f"  ssh-ed25519   {BLOB} me@here and more\x1b[2J\n")
    assert (key.kind, key.blob) == ("ssh-ed25519", BLOB)
    assert key.comment == "me@here and more[2J"
    assert key.fingerprint == FINGERPRINT
    assert PublicKey.parse(f"ssh-ed25519 {BLOB}").id == key.id


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "no public key"),
        ("ssh-dss AAAA", "no public key"),
        ('command="sh" ssh-ed25519 AAAA', "no public key"),
        (f"ssh-ed25519 {BLOB[:-3]}", "damaged"),
        (f"ssh-ed25519 {BLOB[:40]}", "damaged"),
        (f"ssh-rsa {BLOB}", "damaged"),
        ("ssh-ed25519 ", "damaged"),
        (rsa(1024), "fewer than 2048 bits"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nx", "private key"),
    ],
)
def test_what_is_no_key_or_a_weak_one_is_refused(text: str, cause: str) -> None:
    with pytest.raises(InvalidInputError, match=cause) as error:
        PublicKey.parse(text)
    assert error.value.remedy


def test_an_rsa_key_of_enough_bits_is_taken() -> None:
    assert PublicKey.parse(rsa(3072)).kind == "ssh-rsa"
