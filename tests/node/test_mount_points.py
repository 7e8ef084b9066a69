"""Where a directory is found besides its own path, as one file system is mounted at several places."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.node.sandbox.detection import other_places

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 254:0 /home /data/homes rw,relatime - ext4 /dev/vda rw
41 27 254:0 / /mnt/all\040of\040it rw,relatime shared:1 - ext4 /dev/vda rw
42 27 254:0 /home/ada/state/jobs /jobs rw,relatime - ext4 /dev/vda rw
43 27 254:16 / /home/bob rw,relatime - ext4 /dev/vdb rw
44 27 254:16 / /backup rw,relatime - ext4 /dev/vdb rw
45 27 254:0 /etc /etc/again rw,relatime - ext4 /dev/vda rw
"""


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("/home/ada/state", ["/data/homes/ada/state", "/jobs", "/mnt/all of it/home/ada/state"]),
        ("/home/bob/state", ["/backup/state"]),
        ("/srv/state", ["/mnt/all of it/srv/state"]),
    ],
)
def test_all_places_of_a_directory_and_of_what_lies_in_it_are_found(
    tmp_path: Path, path: str, others: list[str]
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    assert list(map(str, other_places(Path(path), tmp_path / "mountinfo"))) == others
