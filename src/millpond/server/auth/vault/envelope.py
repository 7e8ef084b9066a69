"""Encrypted files of any length, written and read as streams.

A header in the clear says how: the format's version, the cipher, how the key is derived. Behind it comes the content in
chunks, each sealed by itself together with the whole header. Nonces count the chunks and mark the last, so chunks can
be neither exchanged nor left out (the STREAM construction: Hoang, Reyhanitabar, Rogaway, Vizar, CRYPTO 2015). Nothing
is handed out that was not proved. A key serves one file: its salt is drawn anew for each.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
from typing import IO, Any, Final

from millpond.model.errors import InvalidInputError
from millpond.server.auth.vault.ciphers import NONCE_BYTES, TAG_BYTES, Cipher, require_ciphers
from millpond.server.auth.vault.keys import KeySource

MAGIC: Final = b"millpond sealed file\n"
FORMAT: Final = 1
CHUNK_BYTES: Final = 2**18

_LONGEST_HEADER: Final = 4_096
_LENGTH_BYTES: Final = 4


class SealingWriter(io.RawIOBase):
    """Encrypts what is written to it; whole only once it was closed.

    Args:
        target: stays open.

    Raises:
        UnavailableError: the cipher cannot be used here.
    """

    def __init__(self, target: IO[bytes], source: KeySource, cipher: Cipher, how: dict[str, Any] | None = None) -> None:
        super().__init__()
        require_ciphers(cipher)
        how = source.fresh() if how is None else how
        secret = source.derive(how)
        header = {"format": FORMAT, "cipher": cipher.value, "key": how, "check": _check(secret)}
        self._about = json.dumps(header, separators=(",", ":")).encode()
        self._target = target
        self._seal = _Chunks(cipher, secret, self._about)
        self._waiting = bytearray()
        target.write(MAGIC + len(self._about).to_bytes(_LENGTH_BYTES) + self._about)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Take a piece."""
        self._waiting += data
        while len(self._waiting) > CHUNK_BYTES:  # the last chunk is never known before the end
            self._target.write(self._seal.seal(bytes(self._waiting[:CHUNK_BYTES]), last=False))
            del self._waiting[:CHUNK_BYTES]
        return len(data)

    def close(self) -> None:
        """Write the last chunk."""
        if not self.closed:
            self._target.write(self._seal.seal(bytes(self._waiting), last=True))
        super().close()


class OpeningReader(io.RawIOBase):
    """Decrypts what it reads.

    Args:
        source: at its beginning; stays open.

    Raises:
        InvalidInputError: it is no sealed file, of another format, or the key is another.
        UnavailableError: its cipher cannot be used here.
    """

    def __init__(self, source: IO[bytes], key: KeySource) -> None:
        super().__init__()
        header, about = _header(source)
        cipher = Cipher(header["cipher"])
        require_ciphers(cipher)
        secret = key.derive(header["key"])
        if not hmac.compare_digest(_check(secret), str(header.get("check"))):
            word = "key" if key.file else "passphrase"
            raise InvalidInputError(f"the {word} is wrong", "use the one that it was encrypted with")
        self._source = source
        self._chunks = _Chunks(cipher, secret, about)
        self._ahead = source.read(CHUNK_BYTES + TAG_BYTES)
        self._open = b""
        self._is_over = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, proved.

        Raises:
            InvalidInputError: the file was changed or cut off.
        """
        pieces, wanted = [], size
        while wanted != 0 and self._fill():
            piece = self._open if wanted < 0 else self._open[:wanted]
            self._open = self._open[len(piece) :]
            wanted -= len(piece) if wanted > 0 else 0
            pieces.append(piece)
        return b"".join(pieces)

    def finish(self) -> None:
        """Read to the end, so that all of it is proved.

        Raises:
            InvalidInputError: the file was changed or cut off.
        """
        while self.read(CHUNK_BYTES):
            continue

    def _fill(self) -> bool:
        """Whether there is anything to hand out."""
        while not self._open and not self._is_over:
            sealed, self._ahead = self._ahead, self._source.read(CHUNK_BYTES + TAG_BYTES)
            self._is_over = not self._ahead
            found = self._chunks.open(sealed, last=self._is_over)
            if found is None:
                raise InvalidInputError("it was changed or cut off since it was encrypted", "use another copy")
            self._open = found
        return bool(self._open)


def is_sealed(start: bytes) -> bool:
    """Whether a file that starts so is an encrypted one."""
    return start.startswith(MAGIC)


def needed_key(source: IO[bytes]) -> str:
    """What opens a sealed file: ``file`` or ``passphrase``.

    Raises:
        InvalidInputError: it is no sealed file, or of another format.
    """
    header, _ = _header(source)
    return str(header["key"].get("from"))


class _Chunks:
    """Seals or opens chunk after chunk."""

    def __init__(self, cipher: Cipher, secret: bytes, about: bytes) -> None:
        self._cipher = cipher
        self._key = cipher.key_from(secret, b"file")
        self._about = about
        self._number = 0

    def seal(self, data: bytes, *, last: bool) -> bytes:
        return self._cipher.seal(self._key, self._nonce(last), data, self._about)

    def open(self, sealed: bytes, *, last: bool) -> bytes | None:
        return self._cipher.open(self._key, self._nonce(last), sealed, self._about)

    def _nonce(self, last: bool) -> bytes:
        self._number += 1
        return self._number.to_bytes(NONCE_BYTES - 1) + bytes([last])


def _check(secret: bytes) -> str:
    """Distinguishes a wrong key from a damaged file; it says no more about a passphrase than any chunk does."""
    return hmac.new(secret, b"check", hashlib.sha256).hexdigest()[:16]


def _header(source: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    start = source.read(len(MAGIC) + _LENGTH_BYTES)
    length = int.from_bytes(start[len(MAGIC) :])
    about = source.read(length) if is_sealed(start) and length <= _LONGEST_HEADER else b""
    try:
        header = json.loads(about)
        known = header["format"] == FORMAT and header["cipher"] in list(Cipher) and isinstance(header["key"], dict)
    except (ValueError, KeyError, TypeError):
        raise InvalidInputError("its header is damaged, or it is no encrypted file", "use another copy") from None
    if not known:
        raise InvalidInputError(
            f"it is encrypted in a way that this Millpond does not know ({header['format']}, {header['cipher']})",
            "use the version that wrote it",
        )
    return header, about
