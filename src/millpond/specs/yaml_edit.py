"""YAML text is written and edited: one field is changed where it stands, and all other lines stay as they are.

What is written is read back the same by ``specs.source_positions``. An edit is checked in that way; where the way that
a text is written leaves no place for it, such as in JSON or behind an alias, the whole text is written anew.

A text can hold characters that move a cursor or turn the direction of writing, so that a line reads otherwise than
it is (Unicode Technical Report 36, section 2.10.3). They are written by their numbers.
"""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import yaml

from millpond.specs.errors import SpecError
from millpond.specs.source_positions import CoreLoader, Located, Path, read_documents

REMOVED: Final = object()
"""The value of a field that is left out."""
_ONE_LINE: Final = 90
"""A list or mapping of so many characters stands on one line."""
_WHOLE: Final = 2**30
"""Lines are never broken: what stands on one line is edited on one line."""


class _Dumper(yaml.SafeDumper):
    """Puts in quotes what would otherwise read as a number or a truth value, by the rules of YAML 1.1 and of 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 (the name and kind are PyYAML's)
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()),
            *CoreLoader.yaml_implicit_resolvers.get(first, ()),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *CoreLoader.yaml_implicit_resolvers}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        self.allow_unicode = not _hides_letters(text)
        super().write_double_quoted(text, split)
        self.allow_unicode = True


def _hides_letters(text: str) -> bool:
    """Whether it has characters that cannot be seen, or that YAML takes for the end of a line."""
    return not all(letter.isprintable() or letter in "\n\t" for letter in text)


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = '"' if _hides_letters(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def yaml_text(document: dict[str, Any]) -> str:
    """A document as YAML, one field after the other; empty where it has none."""
    return "".join(_entry(name, value) for name, value in document.items())


def inline_text(value: Any) -> str:
    """A value on one line, as it may stand in a list."""
    return _dumped([value], flow=True)[1:-2]


def block_text(value: Any) -> str:
    """A list or mapping with one entry on each line."""
    return _dumped(value, flow=False).removesuffix("\n").removesuffix("\n...")


def _dumped(value: Any, *, flow: bool) -> str:
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=flow, width=_WHOLE, sort_keys=False, allow_unicode=True)
    return str(text)


def edited(text: str, path: Path, value: Any) -> str:
    """A text with one field changed; what is on the way there is made.

    Args:
        text: one document; empty: none yet.
        value: plain data, or ``REMOVED``.

    Raises:
        SpecError: the text is not YAML, or holds several documents, or the way leads through a single value.
    """
    target = copy.deepcopy(one_document(text).value)
    _put(target, path, value)
    for depth in range(len(path), 0, -1):
        candidate = _spliced(text, path[:depth], _at(target, path[:depth]))
        if candidate is not None and _says(candidate, target):
            return candidate
    return yaml_text(target)


def one_document(text: str) -> Located:
    """The one document of a text, which has fields; without any where the text is empty.

    Raises:
        SpecError: the text is not YAML, or holds several documents, or no fields.
    """
    if not _has_content(text):
        return Located({})
    documents = read_documents(text)
    first = documents[0]
    if len(documents) > 1:
        second = documents[1].problem((), "a second job begins here", "one job is edited at a time")
        raise SpecError([second])
    if not isinstance(first.value, dict):
        raise SpecError([first.problem((), "a list of 'name: value' fields is expected here", "write name: value")])
    return first


def _has_content(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith("#") for line in lines)


def _says(text: str, target: dict[str, Any]) -> bool:
    try:
        return json.dumps(one_document(text).value, sort_keys=True) == json.dumps(target, sort_keys=True)
    except SpecError:
        return False


def _put(place: Any, path: Path, value: Any) -> None:
    *way, last = path
    for depth, step in enumerate(way):
        if isinstance(place, dict) and place.get(step) is None:
            if value is REMOVED:
                return
            place[step] = {}
        place = _step(place, step, path[:depth])
    if isinstance(place, dict) and value is REMOVED:
        place.pop(last, None)
    elif isinstance(place, dict):
        place[last] = value
    else:
        _step(place, last, path[:-1])
        place[last] = None if value is REMOVED else value


def _step(place: Any, step: str | int, path: Path) -> Any:
    if isinstance(place, dict):
        return place[step]
    if isinstance(place, list) and isinstance(step, int) and step < len(place):
        return place[step]
    raise SpecError([Located({}).problem(path, f"it has no {step!r}", "change the field itself")])


def _at(target: Any, path: Path) -> Any:
    for step in path:
        if isinstance(target, dict) and step not in target:
            return REMOVED
        target = target[step]
    return target


def _spliced(text: str, path: Path, value: Any) -> str | None:
    """The text with one entry of a mapping replaced, added or taken out; None where that cannot be done."""
    if not _has_content(text):
        return None if len(path) > 1 or value is REMOVED else _joined(text, _entry(path[0], value))
    parent = _node_at(yaml.compose(text, Loader=CoreLoader), path[:-1])
    if not isinstance(parent, yaml.MappingNode) or parent.flow_style or not parent.value:
        return None
    for key, node in parent.value:
        if key.value == path[-1]:
            begin, end = key.start_mark.index, _end(node, text)
            before = text[text.rfind("\n", 0, begin) + 1 : begin]
            if value is not REMOVED:
                return f"{text[:begin]}{_entry(key.value, value, key.start_mark.column)[:-1]}{text[end:]}"
            if before.strip():
                return None
            rest = text.find("\n", end)
            return f"{text[: begin - len(before)]}{text[rest + 1 :] if rest >= 0 else ''}"
    if value is REMOVED:
        return text
    rest = text.find("\n", _end(parent.value[-1][1], text))
    lines = text if rest < 0 else text[: rest + 1]
    column = parent.value[0][0].start_mark.column
    added = " " * column + _entry(path[-1], value, column)
    return _joined(lines, added) + text[len(lines) :]


def _joined(text: str, added: str) -> str:
    return f"{text}\n{added}" if text and not text.endswith("\n") else text + added


def _node_at(node: yaml.Node | None, path: Path) -> yaml.Node | None:
    for step in path:
        if isinstance(node, yaml.MappingNode):
            node = next((inner for key, inner in node.value if key.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
        else:
            return None
    return node


def _end(node: yaml.Node, text: str) -> int:
    """Where the last character of a value stands; what YAML calls its end is behind the comments that follow."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last, text)
    return node.start_mark.index + len(text[node.start_mark.index : node.end_mark.index].rstrip())


def _entry(name: str | int, value: Any, column: int = 0) -> str:
    """A field as lines; all but the first are indented by ``column``."""
    if isinstance(value, dict | list):
        line = inline_text(value)
        if not value or (len(line) <= _ONE_LINE and "\\n" not in line and "\n" not in line):
            return f"{inline_text(name)}: {line}\n"
    first, *others = block_text({name: value}).split("\n")
    return "".join(f"{line}\n" for line in (first, *(" " * column + line if line else "" for line in others)))
