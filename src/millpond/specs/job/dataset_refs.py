"""How a job file names a dataset. Apart from what checks job files, which the command line does not load to run one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DATASET_PREFIX: Final = "dataset/"
_DATASET: Final = re.compile(r"dataset/([A-Za-z0-9][A-Za-z0-9._-]{0,99})(?:@([1-9][0-9]{0,8}))?")


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """A dataset that a job reads; without a version, the latest at the moment of submission."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return f"{DATASET_PREFIX}{self.name}" + ("" if self.version is None else f"@{self.version}")


def dataset_ref(text: str) -> DatasetRef | None:
    """The dataset that a value of ``data`` names; None when it is a path."""
    match = _DATASET.fullmatch(text)
    if match is None:
        return None
    return DatasetRef(match.group(1), int(match.group(2)) if match.group(2) else None)
