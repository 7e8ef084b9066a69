"""A job file that is written in a form and as text at once."""

from __future__ import annotations

import json
import re

import pytest

from millpond.model.errors import InvalidInputError
from millpond.server.web.jobs.drafts import (
    LARGEST_DRAFT,
    Draft,
    DraftEdit,
    DraftRequest,
    draft_of,
    file_text,
    is_quick,
)
from millpond.server.web.jobs.job_form import FIRST, Control, job_form
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.templates import all_templates
from millpond.specs.reference import REFERENCES, schema_of
from millpond.specs.validation import people_fields
from millpond.specs.yaml_edit import one_document

JOB = "command: echo hello\n"


def written(text: str, **edits: str) -> Draft:
    """A draft with fields as somebody wrote them; ``__`` stands for a dot."""
    changes = tuple(DraftEdit(field=name.replace("__", "."), value=value) for name, value in edits.items())
    return draft_of(DraftRequest(text=text, edits=changes))


def test_every_field_of_a_job_file_has_a_control() -> None:
    form = job_form()
    top = [each.name for each in form.first + sum(form.groups.values(), ()) if "." not in each.name]
    assert sorted(top) == sorted(people_fields(JobFile))
    assert tuple(each.name for each in form.first) == FIRST
    assert all(each.meaning for each in form.all())
    assert all(each.choices for each in form.all() if each.control is Control.CHOICE)


def test_what_is_said_of_a_field_names_no_class_of_the_program() -> None:
    classes = {JobFile.__name__, *schema_of(REFERENCES["job"])["$defs"]}
    said = {each.name: set(re.findall(r"`+([^`]+)`+", each.meaning)) for each in job_form().all()}
    assert {name: words & classes for name, words in said.items() if words & classes} == {}
    assert "0.25" in said["gpus"]


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("name", "1e5", "name: '1e5'"),
        ("kind", "dev", "kind: dev"),
        ("gpus", "0.25", "gpus: 0.25"),
        ("gpus", "{memory: 4GiB}", "gpus: {memory: 4GiB}"),
        ("gpu_models", "V100, A100-80GB", "gpu_models: [V100, A100-80GB]"),
        ("gpu_models", "[V100]", "gpu_models: [V100]"),
        ("env", "SEED: 7\nMODE: fast", "env: {SEED: 7, MODE: fast}"),
        ("retry_on", "17, SIGKILL", "retry_on: [17, SIGKILL]"),
        ("preemptible", "beyond-min", "preemptible: beyond-min"),
        ("preemptible", "false", "preemptible: false"),
        ("checkpoint.grace", "60s", "checkpoint: {grace: 60s}"),
        ("gpus.memory", "4GiB", "gpus: {memory: 4GiB}"),
        ("memory", "8GiB", "memory: 8GiB"),
    ],
)
def test_what_is_written_into_the_form_stands_in_the_text_and_comes_back(field: str, value: str, line: str) -> None:
    draft = written(JOB, **{field.replace(".", "__"): value})
    assert draft.text == f"{JOB}{line}\n"
    assert draft.values is not None
    assert draft.values[field] == ("V100" if value == "[V100]" else value)


def test_a_command_of_several_lines_is_a_program_and_a_list_is_a_list() -> None:
    draft = written("", command="cd a\npython b.py")
    assert draft.text == "command: |-\n  cd a\n  python b.py\n"
    assert draft.values == {"command": "cd a\npython b.py"}
    assert written("", command="[sleep, 60]").text == "command: [sleep, 60]\n"
    assert written("", command="[ -f a ] && b").text == "command: '[ -f a ] && b'\n"


def test_a_part_of_a_section_that_is_written_short_writes_it_out() -> None:
    draft = written(JOB + "gpus: 0.25 # a quarter\n", gpus__memory="4GiB")
    assert "gpus: {compute: 0.25, memory: 4GiB} # a quarter\n" in draft.text
    assert written(JOB + "gpus: 0.25\n").values == {
        "command": "echo hello",
        "gpus": "0.25",
        "gpus.compute": "0.25",
    }
    assert written("command: a\ngpus: {memory: 4GiB}\n", gpus__memory="").text == "command: a\n"


def test_a_field_that_is_emptied_is_left_out() -> None:
    assert written(JOB + "env: {A: b}\n", env=" \n").text == JOB
    assert written(JOB + "serve: {path: rest}\nkind: dev\n", serve__path="").text == JOB + "serve: {}\nkind: dev\n"


def test_faults_have_their_places_and_take_nothing_from_the_text() -> None:
    draft = written("gpus: 1.5\n  odd: [\n")
    assert draft.text == "gpus: 1.5\n  odd: [\n"
    assert draft.values is None
    assert [(each.line, each.column) for each in draft.problems] == [(2, 6)]
    draft = written("gpus: 1.5\ncomand: x\n")
    assert [(each.line, each.column, each.loc) for each in draft.problems] == [(1, 7, "gpus"), (2, 1, "comand")]
    assert "did you mean 'command'?" in draft.problems[1].hint
    assert draft.values == {"gpus": "1.5"}
    assert (draft.jobs, draft.document) == (0, "")


def test_what_cannot_be_done_is_said_and_the_rest_is_done() -> None:
    draft = written(JOB, env="A: [", name="good")
    assert draft.text == f"{JOB}name: good\n"
    assert [(each.loc, each.line) for each in draft.problems] == [("env", 0)]
    assert draft.refused == ["env"]
    assert draft.document == ""


@pytest.mark.parametrize("text", ["a: 1\n---\nb: 2\n", "- a\n", "words"])
def test_what_is_not_one_job_is_no_draft(text: str) -> None:
    draft = written(text, name="x")
    assert (draft.text, draft.values, draft.jobs) == (text, None, 0)
    assert draft.problems


def test_a_draft_without_faults_can_be_sent() -> None:
    draft = written(JOB, gpus="0.25", array="")
    assert (draft.problems, draft.jobs) == ([], 1)
    assert json.loads(draft.document) == {"command": "echo hello", "gpus": 0.25}


def test_an_array_says_how_many_jobs_it_is() -> None:
    assert written(JOB, array="0-9").jobs == 10


@pytest.mark.parametrize("template", all_templates(own=False), ids=lambda each: each.name)
def test_each_template_comes_back_from_the_form_as_it_is(template: object) -> None:
    text = template.job_text  # type: ignore[attr-defined]
    draft = written(text)
    assert draft.problems == []
    assert draft.values is not None
    for name, value in draft.values.items():
        if "." not in name:
            again = draft_of(DraftRequest(text=text, edits=(DraftEdit(field=name, value=value),)))
            assert again.document == draft.document, name


def test_a_long_job_file_is_written_as_json_which_is_read_back_as_the_same() -> None:
    document = {"command": "work", "env": {f"A{number}": "wörter: #1\t\n\u202e" for number in range(500)}}
    text = file_text(document)
    assert "\u202e" not in text, "a mark that turns the direction of writing is written by its number"
    assert json.loads(text) == document
    assert one_document(text).value == document
    assert file_text({"command": "work"}) == "command: work\n"


@pytest.mark.parametrize(("size", "changes"), [(LARGEST_DRAFT + 1, 0), (10_000, 150)])
def test_what_a_page_cannot_read_in_time_is_refused_with_the_way_that_can(size: int, changes: int) -> None:
    with pytest.raises(InvalidInputError, match="too long for this page") as caught:
        is_quick("#" * size, [DraftEdit(field="name", value="n")] * changes)
    assert "pond submit" in caught.value.remedy


def test_a_text_and_a_few_changes_are_read_at_once_and_a_longer_one_in_turn() -> None:
    assert is_quick("#" * 1_000, [DraftEdit(field="name", value="n")] * 3)
    assert not is_quick("#" * 20_000)
