"""What the pages on architecture say about layers, folders and messages is what the code has."""

from __future__ import annotations

import re
import tomllib
from graphlib import TopologicalSorter

import grimp
import pytest
from pages import DOCS, PACKAGE, ROOT, block, section, table

from millpond.model import decisions, events

PAGE = DOCS / "architecture.md"
CORE = DOCS / "architecture" / "core.md"
SERVER = DOCS / "architecture" / "server.md"


def layers_of(container):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each.get("containers") == [container]]
    return contract["layers"]


@pytest.fixture
def layers():
    return layers_of("millpond")


def test_the_layers_are_those_of_the_import_contract(layers):
    assert block(PAGE, "Layers") == layers


def test_the_floors_of_the_server_are_those_of_the_import_contract_and_are_all_its_rooms():
    floors = layers_of("millpond.server")
    rooms = [path for path in (PACKAGE / "server").iterdir() if not path.name.startswith("__")]

    assert block(SERVER, "Floors") == floors
    assert sorted(room for floor in floors for room in floor.split(" | ")) == sorted(path.stem for path in rooms)


def test_every_part_of_the_package_is_a_layer_and_explained(layers):
    parts = [part.strip() for layer in layers for part in layer.split("|")]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}

    assert {part.split(".")[0] for part in parts} == packages
    assert sorted(name.strip("`") for name, _ in table(PAGE, "Layers")) == sorted(parts)


def test_no_modules_import_each_other_in_a_circle_be_it_within_functions():
    graph = grimp.build_graph("millpond", cache_dir=None, exclude_type_checking_imports=True)

    TopologicalSorter({each: graph.find_modules_directly_imported_by(each) for each in graph.modules}).prepare()


def test_every_event_is_in_the_table_and_no_other():
    named = {name for names, _ in table(CORE, "Events") for name in re.findall(r"`(\w+)`", names)}

    assert named == {kind.__name__ for kind in events.Event.__subclasses__()}


def test_every_decision_is_named():
    text = section(CORE, "Events")

    assert [kind.__name__ for kind in decisions.Decision.__subclasses__() if f"`{kind.__name__}`" not in text] == []


def test_causes_that_nothing_uses_are_the_ones_admitted_to():
    code = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    reasons = (PACKAGE / "model" / "reasons.py").read_text()
    causes = re.findall(r"^    ([A-Z_]+) = ", reasons.split("class Filter")[0], re.MULTILINE)
    unused = {cause for cause in causes if f"Cause.{cause}" not in code}

    assert unused == set(re.findall(r"`([A-Z]+_[A-Z_]+)`", section(PAGE, "Not there yet")))
