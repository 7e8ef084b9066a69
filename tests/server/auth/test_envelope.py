"""Encrypted files: what comes back, what does not, and in which words."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.server.auth.vault.ciphers import NONCE_BYTES, Cipher, require_ciphers
from millpond.server.auth.vault.envelope import CHUNK_BYTES, MAGIC, OpeningReader, SealingWriter, needed_key
from millpond.server.auth.vault.keys import KeySource, key_in, own_key

CHEAP = {"n": 2**4, "r": 1, "p": 1}
KEY = KeySource(file=b"k" * 32)
PASSPHRASE = KeySource(passphrase="correct horse battery")

each_cipher = pytest.mark.parametrize("cipher", Cipher)


def seal(data: bytes, source: KeySource = KEY, cipher: Cipher = Cipher.AES_256_GCM, piece: int = 100_000) -> bytes:
    target = io.BytesIO()
    with SealingWriter(target, source, cipher, source.fresh(CHEAP)) as writer:
        for start in range(0, len(data), piece):
            writer.write(data[start : start + piece])
    return target.getvalue()


def unseal(sealed: bytes, source: KeySource = KEY) -> bytes:
    return OpeningReader(io.BytesIO(sealed), source).read()


@each_cipher
@pytest.mark.parametrize("source", [KEY, PASSPHRASE], ids=["key", "passphrase"])
@pytest.mark.parametrize("length", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_what_was_sealed_comes_back_whole(cipher: Cipher, source: KeySource, length: int) -> None:
    data = bytes(number % 251 for number in range(length))
    sealed = seal(data, source, cipher)
    assert length < CHUNK_BYTES - 1 or data[:50] not in sealed
    assert unseal(sealed, source) == data


def test_it_is_read_in_pieces_of_any_size() -> None:
    data = b"0123456789" * 60_000
    reader = OpeningReader(io.BytesIO(seal(data)), KEY)
    assert reader.read(7) + reader.read(CHUNK_BYTES) + reader.read() == data
    assert reader.read(5) == b""


def test_two_files_with_one_key_have_nothing_in_common() -> None:
    one, other = seal(b"x" * 1_000), seal(b"x" * 1_000)
    assert one[-900:] != other[-900:]


@each_cipher
def test_a_wrong_key_is_called_one(cipher: Cipher) -> None:
    with pytest.raises(InvalidInputError, match="the key is wrong"):
        unseal(seal(b"x", KEY, cipher), KeySource(file=b"j" * 32))
    with pytest.raises(InvalidInputError, match="the passphrase is wrong"):
        unseal(seal(b"x", PASSPHRASE, cipher), KeySource(passphrase="correct horse batterz"))


def test_the_other_kind_of_key_is_asked_for() -> None:
    with pytest.raises(InvalidInputError, match="use a passphrase"):
        unseal(seal(b"x", PASSPHRASE), KEY)
    assert needed_key(io.BytesIO(seal(b"x", PASSPHRASE))) == "passphrase"
    assert needed_key(io.BytesIO(seal(b"x"))) == "file"


@each_cipher
def test_a_bit_that_was_flipped_anywhere_is_noticed(cipher: Cipher) -> None:
    sealed = seal(b"x" * (CHUNK_BYTES + 100), KEY, cipher)
    body = sealed.index(b"}", sealed.index(b"check")) + 1
    for place in (0, len(MAGIC) + 10, body, body + CHUNK_BYTES // 2, body + CHUNK_BYTES + 20, len(sealed) - 1):
        damaged = bytearray(sealed)
        damaged[place] ^= 1
        with pytest.raises(InvalidInputError):
            unseal(bytes(damaged))


def test_every_part_of_the_header_is_bound_to_the_content() -> None:
    sealed = seal(b"x")
    start = len(MAGIC) + 4
    length = int.from_bytes(sealed[len(MAGIC) : start])
    header = json.loads(sealed[start : start + length])
    changed = json.dumps({**header, "note": 1}, separators=(",", ":")).encode()
    forged = MAGIC + len(changed).to_bytes(4) + changed + sealed[start + length :]
    with pytest.raises(InvalidInputError, match="changed or cut off"):
        unseal(forged)


@pytest.mark.parametrize("cut", [1, 50, CHUNK_BYTES + 16])
def test_a_file_that_was_cut_off_is_not_taken_for_a_shorter_one(cut: int) -> None:
    sealed = seal(b"x" * 3 * CHUNK_BYTES)
    with pytest.raises(InvalidInputError, match="changed or cut off"):
        unseal(sealed[:-cut])


def test_chunks_that_were_exchanged_are_noticed() -> None:
    sealed = seal(b"a" * CHUNK_BYTES + b"b" * CHUNK_BYTES + b"c")
    size = CHUNK_BYTES + 16
    first = len(sealed) - 2 * size - 17
    swapped = sealed[:first] + sealed[first + size : first + 2 * size] + sealed[first : first + size] + sealed[-17:]
    with pytest.raises(InvalidInputError, match="changed or cut off"):
        unseal(swapped)


def test_nothing_is_handed_out_that_was_not_proved() -> None:
    sealed = bytearray(seal(b"x" * 3 * CHUNK_BYTES))
    sealed[-1] ^= 1
    reader = OpeningReader(io.BytesIO(bytes(sealed)), KEY)
    assert reader.read(CHUNK_BYTES) == b"x" * CHUNK_BYTES
    with pytest.raises(InvalidInputError):
        reader.read()


@pytest.mark.parametrize(
    "data", [b"", b"plain text", MAGIC, MAGIC + b"\xff\xff\xff\xff", MAGIC + b"\x00\x00\x00\x02{}"]
)
def test_what_is_no_sealed_file_is_called_so(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="header is damaged, or it is no encrypted file"):
        unseal(data)


def test_a_format_of_later_days_is_left_to_later_versions() -> None:
    header = json.dumps({"format": 9, "cipher": "rot13", "key": {}}).encode()
    with pytest.raises(InvalidInputError, match="use the version that wrote it"):
        unseal(MAGIC + len(header).to_bytes(4) + header)


def test_a_key_that_would_cost_all_memory_is_not_derived() -> None:
    with pytest.raises(InvalidInputError, match="too costly"):
        PASSPHRASE.derive({"from": "passphrase", "salt": "00", "n": 2**40, "r": 8, "p": 1})


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(UnavailableError, match=r"pip install 'millpond\[crypto\]'"):
        require_ciphers(Cipher.AES_256_GCM)


def test_the_ciphers_are_the_published_ones() -> None:
    """McGrew and Viega, test case 13 (AES-256); RFC 8998, appendix A.1 (SM4)."""
    assert Cipher.AES_256_GCM.seal(bytes(32), bytes(NONCE_BYTES), b"", b"").hex() == "530f8afbc74536b9a963b4f1c4cb738b"
    key, nonce = bytes.fromhex("0123456789abcdeffedcba9876543210"), bytes.fromhex("00001234567800000000abcd")
    about = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    text = "".join(letter * 16 for letter in "abcdef") + "e" * 16 + "a" * 16
    sealed = Cipher.SM4_GCM.seal(key, nonce, bytes.fromhex(text), about)
    assert sealed[-16:].hex() == "83de3541e4c2b58177e065a9bf7b62ec"


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"k" * 32)
    path.chmod(0o644)
    with pytest.raises(InvalidInputError, match="others may read"):
        key_in(path)
    path.chmod(0o600)
    assert key_in(path) == b"k" * 32
    path.write_bytes(b"short")
    with pytest.raises(InvalidInputError, match="5 bytes, which is no key"):
        key_in(path)
    with pytest.raises(UnavailableError, match="cannot be read"):
        key_in(tmp_path / "none")


def test_the_servers_own_key_is_made_once_and_for_it_alone(tmp_path: Path) -> None:
    first = own_key(tmp_path / "secrets.key")
    assert own_key(tmp_path / "secrets.key") == first
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", [b"", bytes(32)], ids=["emptied", "zeroed"])
def test_a_key_of_the_server_that_was_damaged_is_not_replaced_and_a_backup_is_named_first(
    tmp_path: Path, left: bytes
) -> None:
    path = tmp_path / "secrets.key"
    own_key(path)
    path.write_bytes(left)
    with pytest.raises(InvalidInputError, match=r"put the secrets\.key of a backup there; if there is none"):
        own_key(path)
    assert path.read_bytes() == left


def test_a_key_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UnavailableError, match="No space left"):
            own_key(tmp_path / "secrets.key")
    assert list(tmp_path.iterdir()) == []
    assert own_key(tmp_path / "secrets.key")
