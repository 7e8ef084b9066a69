"""Python and C agree on every word of the gate's files."""

from __future__ import annotations

import ctypes
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from fake_driver.building import what_is_missing
from millpond.node.sharing.gate import layout

NAMES = {
    "gate_control": layout.SliceControl,
    "gate_slot": layout.Slot,
    "gate_usage": layout.TaskUsage,
    "gate_turn": layout.Turn,
    "gate_member": layout.CardMember,
    "gate_card": layout.Card,
}
NUMBERS = {"GATE_MAGIC": layout.MAGIC, "GATE_VERSION": layout.VERSION, "GATE_SLOTS": layout.SLOTS}


def test_offsets_and_sizes_are_those_of_the_header(tmp_path: Path) -> None:
    if missing := what_is_missing():
        pytest.skip(missing)
    checks = [f"{name} == {value}ull" for name, value in NUMBERS.items()]
    for name, structure in NAMES.items():
        checks.append(f"sizeof(struct {name}) == {ctypes.sizeof(structure)}")
        for field, *_ in structure._fields_:
            place = getattr(structure, field)
            checks.append(f"offsetof(struct {name}, {field}) == {place.offset}")
            checks.append(f"sizeof(((struct {name} *)0)->{field}) == {place.size}")
    source = tmp_path / "probe.c"
    asserts = (f'_Static_assert({check}, "{check}");' for check in checks)
    source.write_text('#include <stddef.h>\n#include "layout.h"\n' + "\n".join(asserts))
    header = Path(str(resources.files("millpond"))) / "native" / "gate"
    done = subprocess.run(
        ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{header}", str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
