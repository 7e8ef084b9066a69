"""A job file as it is being written: its text, what its form shows, and what is wrong with it.

The text is the one that counts. What is written into the form is an edit of the text, made here: nothing but this reads
or writes YAML. Whatever is wrong, the text that came is the text that is given back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from pydantic import Field

from millpond.model.errors import InvalidInputError
from millpond.server.phrases.phrasebook import phrase_in
from millpond.server.web.jobs.job_form import fields_by_name, job_form, long_form, read, shown, written_out
from millpond.specs.api.base import ErrorDetail
from millpond.specs.api.models import Body
from millpond.specs.errors import Problem, SpecError
from millpond.specs.escaped_text import escaped_json
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.job_spec import JobSpec, read_jobs
from millpond.specs.source_positions import LARGEST_TEXT, Path
from millpond.specs.validation import Shortened, model_at
from millpond.specs.yaml_edit import REMOVED, edited, one_document, yaml_text


class DraftEdit(Body):
    """What was written into a control of the form.

    Attributes:
        field: its path in a job file, with dots; entries of lists by their numbers from 0.
        value: the text of the control; empty: the field is left out.
    """

    field: Annotated[str, Field(pattern=r"^\w+(\.\w+)*$", max_length=200)]
    value: Annotated[str, Field(max_length=LARGEST_TEXT)]


QUICK: Final = 8 * 2**10
"""Characters that are read at once, for each change again; what is more is a long answer."""
MOST_READ: Final = 2**20
LARGEST_YAML: Final = 16 * 2**10
LARGEST_DRAFT: Final = 128 * 2**10
"""Characters. Reading YAML with its positions takes seconds for so many."""


class DraftRequest(Body):
    """A draft, and what is to be changed in it."""

    text: Annotated[str, Field(max_length=LARGEST_TEXT)]
    edits: Annotated[tuple[DraftEdit, ...], Field(max_length=200)] = ()


def is_quick(text: str, edits: Sequence[DraftEdit] = ()) -> bool:
    """Whether a text is read, for each change again, in no time.

    Raises:
        InvalidInputError: it takes longer than a page may ask for.
    """
    size = len(text) + sum(len(edit.value) for edit in edits)
    require_short(text, size * (1 + len(edits)))
    return size * (1 + len(edits)) <= QUICK


def require_short(text: str, reads: int = 0) -> None:
    """Refuse a job file that is too long for the page.

    Args:
        reads: characters that are read until all changes are made.

    Raises:
        InvalidInputError: it is.
    """
    if len(text) > LARGEST_DRAFT or reads > MOST_READ:
        raise InvalidInputError(
            f"the job file is too long for this page ({max(len(text), reads) // 2**10} KiB to be read)",
            "submit it with `pond submit`, or send long data as files",
        )


def file_text(document: Mapping[str, Any]) -> str:
    """A job file as text: YAML, or where it is long JSON, which is YAML too and is written a hundred times as fast."""
    plain = escaped_json(document)
    return plain if len(plain) > LARGEST_YAML else yaml_text(dict(document))


def shown_text(document: Mapping[str, Any]) -> str:
    """The same to be looked at: of what is very long the beginning."""
    text = file_text(document)
    return text if len(text) <= LARGEST_DRAFT else f"{text[:LARGEST_DRAFT]}\n…"


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft as it is now.

    Attributes:
        values: what each control of the form shows, by the name of its field, for those that are not empty; None where
            the text cannot be read.
        problems: what is wrong, in the order of the lines.
        refused: fields whose changes could not be made.
        jobs: how many jobs it asks for; 0 while something is wrong.
        document: the job file as JSON, to be sent; empty while something is wrong.
    """

    text: str
    values: dict[str, str] | None
    problems: list[ErrorDetail] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    jobs: int = 0
    document: str = ""

    def in_language(self, language: str) -> Draft:
        """The same draft, with what is wrong in the words of its reader as far as they are known."""
        problems = [
            replace(each, message=phrase_in(language, each.message), hint=phrase_in(language, each.hint))
            for each in self.problems
        ]
        return replace(self, problems=problems, warnings=[phrase_in(language, each) for each in self.warnings])


def draft_of(request: DraftRequest) -> Draft:
    """The draft with its changes made and checked; a change that cannot be made is left out and said to be wrong."""
    text, problems, refused = request.text, [], []
    for edit in request.edits:
        try:
            text = with_edit(text, edit.field, edit.value)
        except SpecError as error:
            refused.append(edit.field)
            problems += [replace(each, loc=each.loc or edit.field, line=0, column=0) for each in error.problems]
    try:
        document = one_document(text).value
    except SpecError as error:
        return Draft(text, None, _details(error.problems), refused)
    shown_values = {each.name: shown(each, written_out(document, each.path)) for each in job_form().all()}
    values = {name: value for name, value in shown_values.items() if value}
    try:
        spec = checked(text)
    except SpecError as error:
        return Draft(text, values, _details([*problems, *error.problems]), refused)
    if problems:
        return Draft(text, values, _details(problems), refused, list(spec.warnings))
    jobs = 1 if spec.members is None else len(spec.members)
    return Draft(text, values, [], [], list(spec.warnings), jobs, json.dumps(spec.document))


def with_edit(text: str, name: str, value: str) -> str:
    """A text with one field as it was written into its control.

    Raises:
        SpecError: the text cannot be read, or there is no place for the field in it.
    """
    known = fields_by_name().get(name)
    path: Path = tuple(int(step) if step.isdecimal() else step for step in name.split("."))
    meant = read(known, name, value)
    text = _written_out(text, path)
    text = edited(text, path, meant)
    section = path[:-1]
    if meant is REMOVED and section and issubclass(model_at(JobFile, section), Shortened):
        is_empty = written_out(one_document(text).value, section) == {}
        return edited(text, section, REMOVED) if is_empty else text
    return text


def checked(text: str) -> JobSpec:
    """The one job of a text.

    Raises:
        SpecError: with every fault found.
    """
    one_document(text)
    return read_jobs(text)[0].submitted_at(time.time())


def _written_out(text: str, path: Path) -> str:
    """The text with the sections on the way to a field in their long forms."""
    for depth in range(1, len(path)):
        value = written_out(one_document(text).value, path[:depth])
        whole = long_form(path[:depth], value)
        if whole is not value:
            text = edited(text, path[:depth], whole)
    return text


def _details(problems: Sequence[Problem]) -> list[ErrorDetail]:
    return [
        ErrorDetail(loc=each.loc, line=each.line, column=each.column, message=each.message, hint=each.hint)
        for each in sorted(problems, key=lambda each: (each.line, each.column))
    ]
