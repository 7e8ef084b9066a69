"""The pages of ``docs/reference`` as they should be: what the models and the sources say, with the pages' own examples.

An example stands in its page alone, a whole file but for the command of a job. ``python tests/docs/reference_pages.py``
writes the pages anew; a new field needs its heading and its example in the page before.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo

from millpond.specs.reference import REFERENCES, Reference, default_text, meanings, models_in, summary_of
from millpond.specs.reference_codes import codes
from millpond.specs.validation import Strict, people_fields, unit_in

Examples = Mapping[tuple[str, str], str]
"""By the model, empty for the whole file, and the field."""

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"
_PLAIN: Final = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
_SECTION: Final = re.compile(r"^(##+) (\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_EXAMPLE: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ABOUT: Final = (
    "The words by which programs tell reasons and errors apart. They stay from version to version; new ones may come. "
    "`pond schema codes` prints them as JSON, and this page with `--markdown`."
)
_WAITING: Final = (
    "`cause` of `pond why JOB -o json` and of `GET /api/v1/jobs/{job}/why`. Some of the words above are met there too, "
    "where their text says so. `numbers` has the numbers of the summary, `remedy` a field of a job file and the value "
    "that would help."
)
_TITLES: Final = {
    "decisions": ("Why something was decided", "`cause` of decisions in `pond get JOB -o json` and of `pond why`."),
    "waiting": ("Why a job waits", _WAITING),
    "nodes": ("What a node fails on", "The keys of `nodes` in a reason: on how many nodes it is the first thing."),
    "deadlines": ("Deadlines", "`deadline.verdict` of a job that has not ended; `met` of one that has succeeded."),
    "errors": ("Errors", "`error.code` in an answer of the API that refuses, beside `cause` and `remedy`."),
}


def codes_page() -> str:
    """The codes of reasons and errors as a page of Markdown."""
    parts = ["# Codes", "", _ABOUT]
    for section, words in codes().items():
        title, where = _TITLES[section]
        parts += ["", f"## {title}", "", where, "", "| code | meaning |", "| --- | --- |"]
        parts += [f"| `{word}` | {meaning} |" for word, meaning in words.items()]
    return "\n".join(parts) + "\n"


def examples_in(page: str) -> dict[tuple[str, str], str]:
    """The examples of all fields."""
    found: dict[tuple[str, str], str] = {}
    for level, name, text in _SECTION.findall(page):
        if level == "##":
            model = name
        if (example := _EXAMPLE.search(text)) is not None:
            found["" if level == "##" else model, name] = example[1].rstrip("\n")
    return found


def page_of(reference: Reference, examples: Examples) -> str:
    """The reference of a kind of file as a page of Markdown."""
    schema = reference.model.model_json_schema()
    parts = {reference.model.__name__: schema, **schema.get("$defs", {})}
    lines = [f"# {reference.title}: reference", "", *_wrapped(reference.about), ""]
    lines += [*_wrapped("This page is made of the program's own models; a test keeps it current."), ""]
    for model in models_in(reference.model):
        part = parts[model.__name__]
        fields = part if "properties" in part else part["anyOf"][-1]
        top = model is reference.model
        lines += [] if top else [f"## {model.__name__}", "", *_wrapped(summary_of(model)), ""]
        if "properties" not in part:
            lines += [*_wrapped(f"Short forms: {', '.join(_kind(form) for form in part['anyOf'][:-1])}."), ""]
        meaning = meanings(model)
        for field in people_fields(model):
            kind = _kind(fields["properties"][field])
            example = examples.get(("" if top else model.__name__, field))
            assert example, f"the page has no example of {field} of {model.__name__}"
            lines += [f"{'##' if top else '###'} {field}", "", *_entry(model, field, kind, meaning[field])]
            lines += ["```yaml", *example.splitlines(), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _entry(model: type[Strict], field: str, kind: str, meaning: str) -> list[str]:
    info = model.model_fields[field]
    explained = "left out:" in meaning
    default = "required" if info.is_required() else "" if explained else default_text(model, field)
    facts = [kind, *_bounds(info), *([default if info.is_required() else f"default `{default}`"] if default else [])]
    text = meaning.replace("``", "`")
    return [*_wrapped(f"{text[0].upper()}{text[1:]}"), "", *_wrapped(f"*{'; '.join(facts)}*"), ""]


def _bounds(info: FieldInfo) -> list[str]:
    """The bounds of a number."""
    unit = unit_in(info)
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return [
        f"{word} {unit.text(bound) if unit else bound}"
        for each in info.metadata
        for name, word in words.items()
        if (bound := getattr(each, name, None)) is not None
    ]


def _kind(schema: dict[str, Any]) -> str:
    """What may be written, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = [_kind(each) for each in schema[several] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"fields of any name with {_kind(inner)}" if isinstance(inner, dict) else "fields"
    return _PLAIN.get(str(schema.get("type")), "anything")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, width=120, break_long_words=False, break_on_hyphens=False)


def written_pages() -> dict[Path, str]:
    """Each page as it should be."""
    pages = {FOLDER / reference.page: reference for reference in REFERENCES.values()}
    made = {path: page_of(each, examples_in(path.read_text())) for path, each in pages.items()}
    return {**made, FOLDER / "codes.md": codes_page()}


if __name__ == "__main__":
    for path, text in written_pages().items():
        path.write_text(text)
