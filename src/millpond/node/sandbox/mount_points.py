"""Find all places of a directory, as one file system can be mounted at several.

Source: proc(5), ``/proc/pid/mountinfo``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class _MountPoint:
    """Attributes: ``root``: the folder of the file system ``device`` that is found at ``place``."""

    device: str
    root: Path
    place: Path


def other_places(path: Path, mountinfo: Path = MOUNTINFO) -> list[Path]:
    """Where a directory, or a part of it, is found besides its own path.

    Args:
        path: absolute, free of links.
    """
    mounted = [_read(line) for line in mountinfo.read_text().splitlines()]
    above = [mount for mount in mounted if path.is_relative_to(mount.place)]
    if not above:
        return []
    # The last line counts of two with the same place: it was mounted over the other.
    own = max(enumerate(above), key=lambda item: (len(item[1].place.parts), item[0]))[1]
    inside = own.root / path.relative_to(own.place)
    found = set()
    for mount in mounted:
        if mount.device != own.device:
            continue
        if inside.is_relative_to(mount.root):
            found.add(mount.place / inside.relative_to(mount.root))
        elif mount.root.is_relative_to(inside):
            found.add(mount.place)
    return sorted(place for place in found if not place.is_relative_to(path))


def _read(line: str) -> _MountPoint:
    _, _, device, root, place, *_ = line.split(" ")
    return _MountPoint(device, _unescaped(root), _unescaped(place))


def _unescaped(text: str) -> Path:
    return Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), text))
