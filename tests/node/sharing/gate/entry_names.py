"""The names of the driver's entry points: those that the gate stands before, and what a caller means by a name."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from fake_driver.building import SOURCE

HEADER = Path(str(resources.files("millpond"))) / "native" / "gate" / "hooks.h"
HOOKS = frozenset(re.findall(r"HOOK\((cu\w+|nvml\w+)\)", HEADER.read_text()))
ENTRIES = re.findall(r"(PER_THREAD_)?ENTRY\((\w+), (\w+), (\d+)\)", (SOURCE / "entries.h").read_text())
BASES = sorted({base for _, _, base, _ in ENTRIES})


def meant(base: str, version: int, per_thread: bool) -> str:
    """The symbol that a caller built for a version of CUDA means by a name; empty for none of the driver's.

    Args:
        per_thread: its default stream is the thread's own.
    """
    for kind in ("PER_THREAD_", "") if per_thread else ("",):
        known = [
            (int(since), symbol)
            for each, symbol, name, since in ENTRIES
            if each == kind and name == base and int(since) <= version
        ]
        if known:
            return max(known)[1]
    return ""
