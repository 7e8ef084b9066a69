"""Text to plain data that remembers where each value stood, so that every error can say line and column.

YAML is read by the core rules of version 1.2 (``yes``, ``on`` and ``12:30`` are text, ``true`` is not), JSON by
Python's own reader; positions of both come from the YAML node tree, of which JSON is a subset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

import yaml

from millpond.specs.errors import Problem, SpecError
from millpond.specs.yaml_faults import yaml_fault

Path = tuple[str | int, ...]

LARGEST_TEXT: Final = 4 * 2**20
MOST_VALUES: Final = 200_000
"""Bounds what aliases of aliases can blow a small file up to."""
MOST_LEVELS: Final = 100
"""Of brackets in brackets: with each, PyYAML looks at all that are open."""


@dataclass(slots=True)
class Located:
    """One document.

    Attributes:
        value: plain data: dict, list, str, int, float, bool, None.
        values, keys: (line, column), from 1, of the value and of the key at each path.
        sources: paths whose part of the document came from elsewhere, and from where.
    """

    value: Any
    source: str = ""
    values: dict[Path, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Path, tuple[int, int]] = field(default_factory=dict)
    sources: dict[Path, str] = field(default_factory=dict)

    def graft(self, path: Path, part: Located, key: tuple[int, int]) -> None:
        """Note that what stands at ``path`` is now ``part``: faults in it are reported with its source and places.

        Args:
            key: where the last part of the path stands in the source of ``part``.
        """
        for places in (self.values, self.keys, self.sources):
            for known in [known for known in places if known[: len(path)] == path]:
                del places[known]
        self.values.update({(*path, *below): place for below, place in part.values.items()})
        self.keys.update({(*path, *below): place for below, place in part.keys.items()})
        self.keys[path] = key
        self.sources[path] = part.source

    def part(self, path: Path) -> Located:
        """What stands at ``path``, with its places, as a document of its own."""
        value = self.value
        for step in path:
            value = value[step]
        places = (_below(path, self.values), _below(path, self.keys))
        return Located(value, self._source_of(path), *places, _below(path, self.sources))

    def problem(self, path: Sequence[str | int], message: str, hint: str = "", *, at_key: bool = False) -> Problem:
        """A fault at ``path``, placed at the innermost part of it that was written.

        Below a single value (the ``tasks`` of ``tasks: 4``) the path ends at that value: nothing else was written.
        """
        path = self._as_written(tuple(path))
        place = self.keys.get(path) if at_key else None
        known = path
        while place is None and known not in self.values and known:
            known = known[:-1]
        line, column = place or self.values.get(known, (0, 0))
        return Problem(message, hint, ".".join(str(part) for part in path), line, column, self._source_of(known))

    def _source_of(self, path: Path) -> str:
        """Where the innermost part around ``path`` came from."""
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.sources:
                return self.sources[path[:depth]]
        return self.source

    def _as_written(self, path: Path) -> Path:
        value = self.value
        for depth, part in enumerate(path):
            if isinstance(value, dict):
                value = value.get(str(part), {})
            elif isinstance(value, list):
                value = value[part] if isinstance(part, int) and part < len(value) else {}
            else:
                return path[:depth]
        return path


T = TypeVar("T")


def _below(path: Path, noted: dict[Path, T]) -> dict[Path, T]:
    """What was noted at ``path`` and below it, by the path from there."""
    return {known[len(path) :]: note for known, note in noted.items() if known[: len(path)] == path}


def read_documents(text: str, source: str = "") -> list[Located]:
    """All documents of a YAML or JSON text.

    Raises:
        SpecError: the text is not YAML or JSON, repeats a key, is empty, or is too large.
    """
    if len(text) > LARGEST_TEXT:
        raise _fault(
            source, f"the text is larger than {LARGEST_TEXT // 2**20} MiB", "what a file says takes a page at most"
        )
    try:
        if text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
            documents = [_read_json(text.lstrip("\ufeff"), source)]
        else:
            documents = _read_yaml(text, source)
    except RecursionError as error:
        raise _fault(
            source, "it is nested too deeply", "take brackets away: what a file says is a few levels deep"
        ) from error
    if not documents:
        raise _fault(source, "it is empty", "write at least one field")
    return documents


def _fault(source: str, message: str, hint: str, line: int = 0, column: int = 0) -> SpecError:
    return SpecError([Problem(message, hint, "", line, column, source)])


def _read_json(text: str, source: str) -> Located:
    def no_constant(name: str) -> NoReturn:
        raise _fault(source, f"{name} is not a JSON value", "write a finite number")

    try:
        value = json.loads(text, parse_constant=no_constant)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{") and (documents := _flow_yaml(text, source)):
            return documents[0]
        raise _fault(source, f"not JSON: {error.msg}", "", error.lineno, error.colno) from error
    except ValueError as error:
        raise _fault(source, f"not JSON: {error}", "write smaller numbers") from error
    # A tab is white space in JSON and a fault in YAML; both are one column wide here.
    located = _read_yaml(text.replace("\t", " "), source)[0]
    located.value = value
    return located


def _flow_yaml(text: str, source: str) -> list[Located]:
    """A YAML file that begins with a brace; empty when it is not YAML either."""
    try:
        return _read_yaml(text, source)
    except SpecError:
        return []


def _read_yaml(text: str, source: str) -> list[Located]:
    documents: list[Located] = []
    try:
        for node in yaml.compose_all(text, Loader=CoreLoader):
            located = Located(None, source)
            located.value = _NodeReader(located).plain(node, ())
            documents.append(located)
    except yaml.MarkedYAMLError as error:
        fault = yaml_fault(error)
        raise _fault(source, f"not YAML: {fault.cause}", fault.remedy, fault.line, fault.column) from error
    except yaml.YAMLError as error:
        raise _fault(source, f"not YAML: {str(error).splitlines()[0]}", "save it as UTF-8 text") from error
    return [document for document in documents if document.value is not None]


_TAG: Final = "tag:yaml.org,2002:"


class CoreLoader(yaml.SafeLoader):
    """Resolves plain scalars by YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (the name and kind are PyYAML's)

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level == MOST_LEVELS:
            raise RecursionError
        super().fetch_flow_collection_start(token)


for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    CoreLoader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


class _NodeReader:
    """Turns a node tree into plain data and notes where everything stood."""

    def __init__(self, located: Located) -> None:
        self.located = located
        self.count = 0
        self.open: set[int] = set()

    def plain(self, node: yaml.Node | None, path: Path) -> Any:
        if node is None:
            return None
        self.located.values[path] = _place(node)
        self.count += 1
        if self.count > MOST_VALUES or id(node) in self.open:
            raise self.fault(node, "it refers to itself or repeats itself without end", "write the values out")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            raise self.fault(node, f"the tag {node.tag!r} is not supported", "write a plain value")
        self.open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            result: Any = self.mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            result = [self.plain(child, (*path, index)) for index, child in enumerate(node.value)]
        self.open.remove(id(node))
        return result

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                inherited = self.plain(value_node, path)
                for part in inherited if isinstance(inherited, list) else [inherited]:
                    if not isinstance(part, dict):
                        raise self.fault(value_node, "'<<' takes a mapping", "name an anchor of a mapping")
                    merged = {**part, **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fault(key_node, "a key that is not a word", "write 'name: value'")
            key = key_node.value
            if key in result:
                first = self.located.keys[(*path, key)]
                raise self.fault(key_node, f"{key!r} is written twice (first in line {first[0]})", "keep one of them")
            self.located.keys[(*path, key)] = _place(key_node)
            result[key] = self.plain(value_node, (*path, key))
        return {**merged, **result}

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text, kind = node.value, node.tag.removeprefix(_TAG)
        match kind:
            case "str":
                return text
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" | "float":
                try:
                    return _number(text, kind)
                except ValueError as error:
                    hint = "write a smaller or simpler number"
                    raise self.fault(node, f"{text[:40]!r} is not a number", hint) from error
            case _:
                raise self.fault(node, f"the tag {node.tag!r} is not supported", "write a plain value")

    def fault(self, node: yaml.Node, message: str, hint: str) -> SpecError:
        return _fault(self.located.source, message, hint, *_place(node))


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _number(text: str, kind: str) -> int | float:
    """A number of YAML's core schema."""
    if kind == "float":
        return float(text.replace(".inf", "inf").replace(".nan", "nan")) if text[-1:].isalpha() else float(text)
    if text.startswith(("0o", "0x")):
        return int(text, 0)
    return int(text)
