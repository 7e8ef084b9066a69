"""What `pip install millpond` and `millpond[server]` bring is enough for the programs that are theirs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from millpond.client.cli.command_table import SECTIONS

PROGRAM = """
import importlib, sys

class Absent:
    names = set(sys.argv[1].split(","))

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is of an extra that is not installed", name=name)

sys.meta_path.insert(0, Absent())
for module in sys.argv[2:]:
    importlib.import_module(module)
"""

COMMANDS = {entry.target.partition(":")[0] for section in SECTIONS.values() for entry in section.values()}


def _brought_by(extra: str) -> set[str]:
    """The distributions that an installation with that extra has; without one where it is empty."""
    pending, seen = [("millpond", extra)], set()
    while pending:
        name, asked = each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        for needed in map(Requirement, requires(name) or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": asked}):
                pending += [(canonicalize_name(needed.name), more) for more in ("", *needed.extras)]
    return {name for name, _ in seen}


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("", sorted(COMMANDS)),
        ("server", ["millpond.server.startup.process", "millpond.server.operations.cluster_check"]),
    ],
)
def test_a_program_needs_no_package_that_its_installation_does_not_bring(extra: str, modules: list[str]) -> None:
    brought = _brought_by(extra)
    absent = [
        module
        for module, owners in packages_distributions().items()
        if brought.isdisjoint(map(canonicalize_name, owners))
    ]
    done = subprocess.run([sys.executable, "-c", PROGRAM, ",".join(absent), *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
