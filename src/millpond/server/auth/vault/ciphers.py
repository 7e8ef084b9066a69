"""Authenticated ciphers by name: AES-256-GCM, and SM4-GCM for those who have to use it.

GCM: NIST SP 800-38D. SM4: GB/T 32907-2016; in GCM: RFC 8998. Both come from the package ``cryptography``, an extra.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum
from typing import Any

from millpond.model.errors import UnavailableError

NONCE_BYTES = 12
TAG_BYTES = 16


class Cipher(StrEnum):
    """What can be chosen."""

    AES_256_GCM = "aes-256-gcm"
    SM4_GCM = "sm4-gcm"

    @property
    def key_bytes(self) -> int:
        """The length of its keys."""
        return 32 if self is Cipher.AES_256_GCM else 16

    def seal(self, key: bytes, nonce: bytes, data: bytes, about: bytes) -> bytes:
        """The data encrypted, with the tag that proves it and ``about`` unchanged; a nonce serves a key once."""
        encryptor = _gcm(self, key, nonce).encryptor()
        encryptor.authenticate_additional_data(about)
        return bytes(encryptor.update(data) + encryptor.finalize() + encryptor.tag)

    def open(self, key: bytes, nonce: bytes, sealed: bytes, about: bytes) -> bytes | None:
        """The data again; None where it or ``about`` was changed, or the key is another."""
        from cryptography.exceptions import InvalidTag

        if len(sealed) < TAG_BYTES:
            return None
        decryptor = _gcm(self, key, nonce, sealed[-TAG_BYTES:]).decryptor()
        decryptor.authenticate_additional_data(about)
        try:
            return bytes(decryptor.update(sealed[:-TAG_BYTES]) + decryptor.finalize())
        except InvalidTag:
            return None

    def key_from(self, secret: bytes, purpose: bytes) -> bytes:
        """A key of its own for each purpose, from one secret of full strength (HKDF's second step, RFC 5869)."""
        return hmac.new(secret, purpose + b"\x00" + self.value.encode() + b"\x01", hashlib.sha256).digest()[
            : self.key_bytes
        ]


def require_ciphers(cipher: Cipher) -> None:
    """Check that a cipher can be used here.

    Raises:
        UnavailableError: it cannot.
    """
    _gcm(cipher, bytes(cipher.key_bytes), bytes(NONCE_BYTES))


def _gcm(cipher: Cipher, key: bytes, nonce: bytes, tag: bytes | None = None) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers import Cipher as Gcm
        from cryptography.hazmat.primitives.ciphers import algorithms, modes
    except ImportError as error:
        raise UnavailableError("the package cryptography is not installed", "pip install 'millpond[crypto]'") from error
    try:
        algorithm = algorithms.AES(key) if cipher is Cipher.AES_256_GCM else algorithms.SM4(key)
        made = Gcm(algorithm, modes.GCM(nonce, tag))
        made.encryptor() if tag is None else made.decryptor()
    except UnsupportedAlgorithm as error:
        raise UnavailableError(
            f"the installed cryptography does not know {cipher.value}", "update it, or choose another cipher"
        ) from error
    return made
