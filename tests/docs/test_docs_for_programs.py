"""What programs read: the list of pages, the codes of reasons and errors, the description of all commands."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pages import DOCS, PACKAGE

from millpond.client.cli.command_table import COMMANDS
from millpond.client.cli.main import cli
from millpond.model.reasons import Cause, DeadlineVerdict, Filter
from millpond.server.http.error_responses import _STATUS
from millpond.specs.api.base import ERROR_CODES
from millpond.specs.reference_codes import codes


def test_the_list_of_pages_has_each_once_and_no_other() -> None:
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", (DOCS / "llms.txt").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_codes_are_those_of_the_sources() -> None:
    found = json.loads(CliRunner().invoke(cli, ["schema", "codes"]).output)
    assert found == codes()
    assert [*found["decisions"], *found["waiting"]] == [cause.value for cause in Cause]
    assert list(found["nodes"]) == [each.value for each in Filter]
    assert list(found["deadlines"]) == [each.value for each in DeadlineVerdict]


def test_every_error_of_the_server_has_a_code_that_is_explained_and_no_other_is() -> None:
    sources = "\n".join(path.read_text() for path in (PACKAGE / "server").rglob("*.py"))
    written = set(re.findall(r'\bcode="([\w-]+)"', sources)) | {kind.code for kind, _ in _STATUS}
    assert written == set(ERROR_CODES)


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["help", "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)["commands"]
    return found


def test_every_command_is_described_with_all_its_options(described: dict[str, Any]) -> None:
    assert {words.split()[0] for words in described} == set(COMMANDS)
    for words, each in described.items():
        found: click.Command | None = cli
        for word in words.split():
            assert isinstance(found, click.Group)
            found = found.get_command(click.Context(found), word)
        assert found is not None
        names = {name for option in each["options"] for name in option["names"]}
        taken = {name for param in found.params if isinstance(param, click.Option) for name in param.opts}
        hidden = {
            name for param in found.params if isinstance(param, click.Option) and param.hidden for name in param.opts
        }
        assert taken - hidden <= names, words
        assert each["summary"], words
        assert all(option["help"] for option in each["options"]), words


def test_options_say_what_they_take(described: dict[str, Any]) -> None:
    (by,) = (option for option in described["usage"]["options"] if option["name"] == "--by")
    assert "month" in by["choices"]
    (job,) = described["why"]["arguments"]
    assert (job["name"], job["required"]) == ("JOB", True)
    (stop,) = described["stop"]["arguments"]
    assert stop["values"] == "any number"
    assert "group add" in described


def test_help_of_a_command_is_its_own_help() -> None:
    runner = CliRunner()
    asked = runner.invoke(cli, ["group", "add", "--help"], prog_name="pond").output
    assert runner.invoke(cli, ["help", "group", "add"]).output == asked
    assert "-h, --help" in asked
    assert "pond run" in runner.invoke(cli, ["help"]).output
    wrong = runner.invoke(cli, ["help", "grup"], standalone_mode=False)
    assert "no command 'grup'" in str(wrong.exception)
