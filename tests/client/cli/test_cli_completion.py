"""What the shell is offered to complete, and what stands for the words of other tools."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from millpond.client.cli.command_suggestions import FOREIGN_WORDS
from millpond.client.cli.command_table import COMMANDS
from millpond.client.cli.commands.inspection.help import VARIABLE
from millpond.client.cli.main import cli

POND = Path(sys.executable).with_name("pond")


@pytest.fixture
def offered(client, monkeypatch):
    """The words that are offered for the last one of a command line."""
    monkeypatch.setattr("millpond.client.cli.connection.Client", lambda **_: client)

    def offer(*words):
        return [
            item.value for item in BashComplete(cli, {}, "pond", VARIABLE).get_completions(list(words[:-1]), words[-1])
        ]

    return offer


def test_commands_are_offered_without_importing_them(offered, monkeypatch):
    monkeypatch.setattr("millpond.client.cli.main.importlib.import_module", None)
    assert offered("lo") == ["logs", "login", "logout"]
    assert set(offered("")) == COMMANDS.keys()
    assert "--version" in offered("--")


def test_options_and_commands_of_groups_are_offered(offered):
    assert offered("logs", "--ta") == ["--task", "--tail"]
    assert offered("data", "g") == ["get"]


@pytest.mark.parametrize(("begun", "found"), [("tr", ["train-a", "train-b"]), ("Bi", ["Big"]), ("x", [])])
def test_jobs_are_offered_by_id_and_where_that_differs_by_name(offered, server, make_job, begun, found):
    jobs = [make_job("train-b", name="train"), make_job("train-a", name="train"), make_job("big-1", name="Big")]
    server.will(200, {"jobs": [asdict(job) for job in jobs]})
    assert offered("logs", begun) == found


@pytest.mark.parametrize(
    ("command", "ended"), [("logs", "true"), ("get", "true"), ("stop", "false"), ("exec", "false")]
)
def test_jobs_that_have_ended_are_offered_where_that_makes_sense(offered, server, command, ended):
    server.will(200, {"jobs": []})
    offered(command, "a")
    assert server.requests[0].url.params["all"] == ended


def test_help_offers_the_commands_that_it_explains(offered):
    assert offered("help", "lo") == ["logs", "login", "logout"]
    assert set(offered("help", "queue", "")) == {"add", "set", "delete", "show"}
    assert offered("help", "queue", "show", "") == []


def test_states_are_offered_one_behind_the_other(offered):
    assert offered("ps", "--state", "su") == ["suspended", "succeeded"]
    assert offered("ps", "--state", "running,qu") == ["running,queued"]


def test_templates_are_offered_and_for_dev_jobs_those_that_are_some(offered, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "millpond/templates"
    own.mkdir(parents=True)
    (own / "jupyterhub.yaml").write_text("about: mine\n---\nkind: dev\ncommand: cat\n")
    (own / "nothing.yaml").write_text("wrong")
    assert offered("template", "show", "ju") == ["jupyterhub", "jupyterlab"]
    assert offered("dev", "-t", "ju") == ["jupyterhub", "jupyterlab"]
    assert offered("apply", "--template", "shel") == offered("dev", "--template", "shel") == ["shell"]
    assert set(offered("dev", "-t", "")) < set(offered("apply", "-t", ""))


def test_without_a_server_nothing_is_offered_and_nothing_is_said(tmp_path):
    words = {"COMP_WORDS": "pond logs tr", "COMP_CWORD": "2", VARIABLE: "bash_complete"}
    done = subprocess.run(
        [POND], env={"MILLPOND_STATE": str(tmp_path), "PATH": "", **words}, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(run_pond, shell):
    code, out, err = run_pond("completion", shell)
    assert (code, err) == (0, "")
    assert f"{VARIABLE}={shell}_complete" in out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("describe", "get"), ("rm", "delete"), ("list", "ps"), ("cancel", "stop"), ("kill", "stop")),
        *(("limits", "whoami"), ("drain", "nodes drain"), ("uncordon", "nodes uncordon")),
        *(("status", "ps"), ("squeue", "ps"), ("sbatch", "submit"), ("sinfo", "nodes"), ("lgos", "logs")),
        *(
            ("data list", "data ls"),
            ("data delete", "data rm"),
            ("data download", "data get"),
            ("queue ls", "queue show"),
        ),
    ],
)
def test_the_words_of_other_tools_are_answered_with_ours(run_pond, typed, meant):
    code, _, err = run_pond(*typed.split(), "x")
    assert (code, err.splitlines()[0].partition("; ")[2]) == (2, f"did you mean `pond {meant}`?")


def test_no_word_of_another_tool_leads_nowhere():
    for typed, own in FOREIGN_WORDS.items():
        assert typed not in COMMANDS or typed in ("delete", "start"), typed
        assert any(name.split()[0] in COMMANDS for name in own) or typed in ("upload", "push"), typed
