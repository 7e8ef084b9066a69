"""For whom contents count on the disk: those that jobs were sent, and those that nothing refers to yet.

``STATE/blobs/sent/of-USER`` has a line ``DIGEST SIZE`` for each content that a user sent and that no job and no dataset
counts yet. What a killed server has not noted is removed by the next collections (``collector``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.server.storage.files.blobs import BLOBS_FOLDER, BLOCK_BYTES

_FOLDER: Final = "sent"
_PREFIX: Final = "of-"


class SentContents:
    """The contents of one state directory, by sender.

    Attributes:
        of_jobs: bytes of the contents that stored jobs refer to, by user and group, as of the last collection.
    """

    def __init__(self, state_dir: Path) -> None:
        self.of_jobs: Mapping[tuple[str, str], int] = {}
        self._folder = state_dir / BLOBS_FOLDER / _FOLDER
        self._lock = threading.Lock()
        self._held = {user: sum(size for _, size in lines) for user, lines in self._all()}

    def held(self) -> Mapping[str, int]:
        """Bytes that nothing else counts yet, by user."""
        with self._lock:
            return dict(self._held)

    def note(self, user: str, contents: Sequence[tuple[str, int]]) -> None:
        """Contents are here that were not before, with their sizes in bytes.

        Raises:
            UnavailableError: the disk takes no more.
        """
        if not contents:
            return
        contents = [(digest, max(size, BLOCK_BYTES)) for digest, size in contents]
        with self._lock:
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                with (self._folder / f"{_PREFIX}{user}").open("a") as file:
                    file.write("".join(f"{digest} {size}\n" for digest, size in contents))
            except OSError as error:
                raise UnavailableError(f"the server cannot keep contents ({error.strerror})", "see its disk") from error
            self._held[user] = self._held.get(user, 0) + sum(size for _, size in contents)

    def pending(self) -> frozenset[str]:
        """The digests of what nothing else counts yet, or did not at the last look."""
        with self._lock:
            return frozenset(digest for _, lines in self._all() for digest, _ in lines)

    def settle(self, is_pending: Callable[[str], bool]) -> None:
        """Forget what is counted otherwise by now, or gone."""
        with self._lock:
            held = {}
            for user, lines in self._all():
                kept = {digest: size for digest, size in lines if is_pending(digest)}
                path = self._folder / f"{_PREFIX}{user}"
                if kept:
                    fresh = self._folder / f"new-{user}"
                    fresh.write_text("".join(f"{digest} {size}\n" for digest, size in kept.items()))
                    fresh.rename(path)
                    held[user] = sum(kept.values())
                else:
                    path.unlink()
            self._held = held  # not earlier: what a full disk keeps from being looked at counts as before

    def _all(self) -> Iterable[tuple[str, list[tuple[str, int]]]]:
        for path in sorted(self._folder.glob(f"{_PREFIX}*")):
            lines = []
            for line in path.read_text(errors="replace").splitlines():
                with suppress(ValueError):  # a power cut left half of it, or zeroes
                    digest, size = line.split(" ")
                    lines.append((digest, int(size)))
            yield path.name.removeprefix(_PREFIX), lines
