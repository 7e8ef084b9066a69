"""Many small contents in one request: each behind its length, eight bytes, the most significant first.

A request of its own for each small file costs hundreds of times what its bytes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from millpond.model.errors import InvalidInputError

LARGEST_BATCHED: Final = 256 * 2**10
"""Bytes of a content that travels with others; a larger one has a request of its own."""
LARGEST_BATCH: Final = 8 * 2**20
"""Bytes of one batch, lengths included."""
MOST_BATCHED: Final = 1_000

_LENGTH_BYTES: Final = 8


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


def read_batch(data: bytes) -> list[bytes]:
    """The contents of a batch.

    Raises:
        InvalidInputError: it is none, or has more or larger contents than one may have.
    """
    contents: list[bytes] = []
    place = 0
    while place < len(data):
        begin = place + _LENGTH_BYTES
        place = begin + int.from_bytes(data[place:begin], "big")
        if begin > len(data) or place > len(data):
            raise InvalidInputError("the batch of contents is cut off", "send it again")
        if place - begin > LARGEST_BATCHED or len(contents) == MOST_BATCHED:
            raise InvalidInputError(
                f"a batch has at most {MOST_BATCHED} contents of at most {LARGEST_BATCHED // 2**10} KiB",
                "send larger contents by themselves",
            )
        contents.append(data[begin:place])
    return contents
