"""The reference pages and the JSON Schema of job and configuration files: current and complete; every example works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from jsonschema_rs import ValidationError, validator_for
from reference_pages import FOLDER, examples_in, written_pages

from millpond.client.cli.commands.library.schema import command
from millpond.specs.config.cluster import read_cluster
from millpond.specs.job.job_spec import read_jobs
from millpond.specs.reference import REFERENCES, models_in, schema_of
from millpond.specs.source_positions import read_documents
from millpond.specs.validation import people_fields

MODELS = {
    (kind, model.__name__): people_fields(model)
    for kind, reference in REFERENCES.items()
    for model in models_in(reference.model)
}
EXAMPLES = {kind: examples_in((FOLDER / reference.page).read_text()) for kind, reference in REFERENCES.items()}

SCHEMAS = {kind: validator_for(schema_of(reference)) for kind, reference in REFERENCES.items()}


def example(kind: str, model: str, field: str) -> str:
    text = EXAMPLES[kind]["" if model == REFERENCES[kind].model.__name__ else model, field]
    return text if kind == "config" or re.search("^command:", text, re.MULTILINE) else f"{text}\ncommand: work"


@pytest.mark.parametrize(("page", "text"), written_pages().items())
def test_the_page_is_what_the_models_and_the_sources_say(page: Path, text: str) -> None:
    assert page.read_text() == text, "python tests/docs/reference_pages.py"


@pytest.mark.parametrize("kind", [*REFERENCES, "codes"])
def test_the_page_is_printed_as_it_was_installed(kind: str) -> None:
    done = CliRunner().invoke(command, [kind, "--markdown"])
    page = "codes.md" if kind == "codes" else REFERENCES[kind].page
    assert (done.exit_code, done.output) == (0, (FOLDER / page).read_text())


@pytest.mark.parametrize(("kind", "model"), MODELS)
def test_each_example_is_read_and_uses_its_field(kind: str, model: str, tmp_path: Path) -> None:
    for name in ("server.pem", "server.key", "client-secret", "chat-key", "mail-password"):
        (tmp_path / name).write_text("secret")
        (tmp_path / name).chmod(0o600)
    for name in ("prices.csv", "carbon.csv"):
        (tmp_path / name).write_text("at,value\n2026-11-26T00:00Z,1\n")
    for field in MODELS[kind, model]:
        text = example(kind, model, field)
        assert field in text or model in ("Space", "ArrayFile") or (model, field) == ("SweepMetric", "name"), (
            f"the one of {field} shows another field"
        )
        text = text.replace("/etc/pond", str(tmp_path))
        if kind == "job":
            read_jobs(text, base=tmp_path)
        else:
            read_cluster(text)


@pytest.mark.parametrize(("kind", "model"), MODELS)
def test_each_example_is_valid_by_the_json_schema(kind: str, model: str) -> None:
    for field in MODELS[kind, model]:
        SCHEMAS[kind].validate(read_documents(example(kind, model, field))[0].value)


@pytest.mark.parametrize("kind", REFERENCES)
def test_the_schema_that_editors_read_describes_every_field_and_refuses_others(kind: str) -> None:
    done = CliRunner().invoke(command, [kind])
    assert done.exit_code == 0
    schema = json.loads(done.output)
    assert all(field.get("description") for field in schema["properties"].values())
    assert "Attributes:" not in done.output, "what a field means stands with the field"
    with pytest.raises(ValidationError):
        validator_for(schema).validate({"gpsu": 1})
    assert not {"payload", "pinned", "adopted"} & set(schema["properties"]), "programs fill these in"


def test_a_number_of_gpus_is_a_guarantee_and_a_limit() -> None:
    short, long = (
        read_cluster(yaml.safe_dump({"queues": [{"name": "vision", "guarantee": six, "limit": six}]}))
        for six in (6, {"gpus": 6})
    )
    assert short.queues == long.queues
    assert short.queues[0].guarantee.gpu_milli == 6_000
