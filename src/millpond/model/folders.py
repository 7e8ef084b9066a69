"""What a folder is on its way: paths below it, contents that are called by their hash, many small ones in one text.

Many small contents travel together, each behind its length, eight bytes, the most significant first: a request of its
own for each costs hundreds of times what its bytes do. This is also part of the program that carries files into pods
(``node.carrier``), which old releases of Python 3 have to understand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

LARGEST_BATCHED: Final = 256 * 2**10
"""Bytes of a content that travels with others; a larger one has a request of its own."""
LARGEST_BATCH: Final = 8 * 2**20
"""Bytes of one batch, lengths included."""
MOST_BATCHED: Final = 1_000
_LENGTH_BYTES: Final = 8
_SHOWN: Final = 40
DEEPEST: Final = 200
"""Folders that a file may lie below: what goes through folders one in the other needs a bound."""
LONGEST_PATH: Final = 1_024
"""Characters: there is to be room for the path of the folder that it comes to lie in."""


def digest_of(data: bytes) -> str:
    """The name of a content."""
    return hashlib.sha256(data).hexdigest()


def is_inside(path: str) -> bool:
    """Whether a path, taken from a folder, names something below it by the shortest spelling."""
    if not path or "\0" in path or path.startswith("/"):
        return False
    return str(PurePosixPath(path)) == path and not {"..", "."} & set(path.split("/"))


def is_under(path: str, top: str) -> bool:
    """Whether a path is ``top``, or lies below it as a folder; both as ``is_inside`` has them."""
    return f"{path}/".startswith(f"{top}/")


def why_too_deep(path: str) -> str:
    """Why what lies at a path below a folder is not taken from it; empty where it is."""
    begins = f"{path[:_SHOWN]}…"
    if path.count("/") > DEEPEST:
        return f"{begins} lies below more than {DEEPEST} folders"
    return f"{begins} has a path of more than {LONGEST_PATH} characters" if len(path) > LONGEST_PATH else ""


def link_stays_inside(path: str, target: str) -> bool:
    """Whether a link at ``path`` can only lead to something in the folder.

    Its target is ``.``, its own folder, or some ``..`` and then plain names: a ``..`` behind a name could, if that name
    is a link itself, lead anywhere.
    """
    if target == ".":
        return True
    if not target or "\0" in target or target.startswith("/"):
        return False
    parts = target.split("/")
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return ups <= path.count("/") and not {"", ".", ".."} & set(parts[ups:])


def batch_of(contents: Iterable[bytes]) -> bytes:
    """The text of a batch."""
    return b"".join(part for content in contents for part in (len(content).to_bytes(_LENGTH_BYTES, "big"), content))


def batches(contents: Iterable[bytes]) -> Iterator[bytes]:
    """Contents in as few batches as may be, in their order.

    Args:
        contents: none larger than ``LARGEST_BATCHED``; taken one by one, so that they need not all be in memory.
    """
    waiting: list[bytes] = []
    size = 0
    for content in contents:
        weight = _LENGTH_BYTES + len(content)
        if waiting and (size + weight > LARGEST_BATCH or len(waiting) == MOST_BATCHED):
            yield batch_of(waiting)
            waiting, size = [], 0
        waiting.append(content)
        size += weight
    if waiting:
        yield batch_of(waiting)


def unpacked(data: bytes) -> list[bytes]:
    """The contents of a batch.

    Raises:
        ValueError: it is cut off.
    """
    contents: list[bytes] = []
    place = 0
    while place < len(data):
        begin = place + _LENGTH_BYTES
        place = begin + int.from_bytes(data[place:begin], "big")
        if begin > len(data) or place > len(data):
            raise ValueError("it is cut off")
        contents.append(data[begin:place])
    return contents
