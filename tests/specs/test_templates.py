"""Templates: ours are all valid, the user's own stand beside and before them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from millpond.client.cli.commands.submission import template_needs
from millpond.model.errors import NotFoundError, UnavailableError
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.job_spec import check_job
from millpond.specs.job.templates import all_templates, find_template, waiting_for

OWN = "about: mine\nneeds: [{program: no-such-program, install: ask ada}]\n---\nkind: dev\ncommand: work\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own templates."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "millpond" / "templates"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("template", all_templates(), ids=lambda template: template.name)
def test_every_template_of_ours_is_a_valid_job_where_it_is_used(template, tmp_path: Path) -> None:
    spec = template.job(tmp_path)
    assert spec.document["workdir"] == str(tmp_path)
    assert spec.file.name == template.name
    assert spec.file.serves == (spec.file.kind != "train")


def test_changes_and_variables_reach_the_job_and_its_own_variables_win(tmp_path: Path) -> None:
    changes = [FieldEdit.parse("gpus=0.25"), FieldEdit.parse("env.LOGDIR=runs")]
    spec = find_template("tensorboard").job(tmp_path, changes, {"PATH": "/here", "LOGDIR": "elsewhere"})
    assert spec.document["gpus"] == 0.25
    assert spec.document["env"] == {"PATH": "/here", "LOGDIR": "runs"}


def test_the_job_of_a_template_that_names_none_is_called_as_the_template(own: Path, tmp_path: Path) -> None:
    (own / "mine.yaml").write_text(OWN)
    (own / "named.yaml").write_text(OWN.replace("kind: dev", "kind: dev\nname: other"))
    assert find_template("mine").job(tmp_path).file.name == "mine"
    assert find_template("mine").job(tmp_path, [FieldEdit.parse("name=mined")]).file.name == "mined"
    assert find_template("named").job(tmp_path).file.name == "other"
    (own / "two words.yaml").write_text(OWN)
    assert find_template("two words").job(tmp_path).file.name is None


def test_an_own_template_stands_in_for_ours_of_the_same_name(own: Path) -> None:
    (own / "shell.yaml").write_text(OWN)
    (own / "mine.yaml").write_text(OWN)
    found = {template.name: template.own for template in all_templates()}
    assert (found["shell"], found["mine"], found["jupyterlab"]) == (True, True, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"about: bad\nneeds: [{install: x}]\n---\ncommand: work\n", r"bad.yaml:2:9.*program and module"),
        (b"about: bad\n", "two documents"),
        (b"about: bad\n---\ncommand: work\ngpsu: 1\n", r"bad.yaml:4:1.*gpus"),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "it is empty"),
        (b"{[", "bad.yaml"),
    ],
)
def test_a_wrong_own_template_is_skipped_with_a_warning_and_breaks_no_other(own: Path, text: bytes, told: str) -> None:
    (own / "bad.yaml").write_bytes(text)
    (own / "shell.yaml").write_bytes(text.replace(b"bad", b"shell"))
    (own / "mine.yaml").write_text(OWN)
    (own / "gone.yaml").symlink_to(own / "nowhere")
    warnings: list[str] = []
    found = {template.name: template.own for template in all_templates(warnings.append)}
    assert (found["shell"], found["mine"]) == (False, True)
    assert not {"bad", "gone"} & set(found)
    assert len(warnings) == 3
    assert re.search(told, warnings[0], re.DOTALL)
    assert find_template("shell").name == "shell"
    with pytest.raises(NotFoundError):
        find_template("bad")


def test_a_wrong_own_template_is_told_where_it_is_meant_and_nowhere_else(own: Path) -> None:
    (own / "shell.yaml").write_text("about: wrong\n")
    warnings: list[str] = []
    find_template("jupyterlab", warnings.append)
    assert warnings == []
    assert not find_template("shell", warnings.append).own
    assert len(warnings) == 1


def test_an_unknown_template_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="jupyterlab"):
        find_template("jupiterlab")


def test_where_no_template_has_a_like_name_all_are_listed_in_order() -> None:
    with pytest.raises(NotFoundError) as refused:
        find_template("zzz")
    assert refused.value.remedy == f"use one of {', '.join(template.name for template in all_templates())}"


def test_what_is_not_installed_is_named_with_the_way_to_it(own: Path) -> None:
    (own / "mine.yaml").write_text(OWN)
    with pytest.raises(UnavailableError, match=r"needs no-such-program.*ask ada"):
        template_needs.brings_environment(find_template("mine"), "/usr/bin:/bin", here=True)
    assert not template_needs.brings_environment(find_template("shell"), "", here=True)


def test_a_python_module_is_looked_for_in_the_python_of_the_path(own: Path) -> None:
    text = "about: a\nneeds: [{module: json, install: x}, {module: no_such_module, install: y}]\n---\ncommand: work\n"
    (own / "mine.yaml").write_text(text)
    with pytest.raises(UnavailableError, match="needs the Python module no_such_module"):
        template_needs.brings_environment(find_template("mine"), "/usr/bin:/bin:/usr/local/bin", here=True)


BRINGS = OWN.replace("---", "environment: [one~=1.0, two]\n---").replace("no-such-program", "sh")


def test_a_template_brings_its_environment_where_its_programs_are_not_found_or_the_job_runs_elsewhere(
    own: Path,
) -> None:
    (own / "mine.yaml").write_text(BRINGS)
    template = find_template("mine")
    assert not template_needs.brings_environment(template, "/usr/bin:/bin", here=True)
    assert template_needs.brings_environment(template, "/nowhere", here=True)
    assert template_needs.brings_environment(template, "/usr/bin:/bin", here=False)


def test_a_job_in_its_own_environment_finds_the_programs_of_that_and_says_where_there_is_none(
    own: Path, tmp_path: Path
) -> None:
    (own / "mine.yaml").write_text(BRINGS.replace("command: work", "command: [my-program, 'a b']"))
    template = find_template("mine")
    command = template.job(tmp_path, in_own_environment=True).file.command
    job = template.job(tmp_path, [FieldEdit.parse("pool=dev"), FieldEdit.parse("queue=vision")])
    making = template.environment_job(job.document).file
    assert (making.network, making.kind, making.pool, making.queue) == ("host", "train", "dev", "vision")
    assert isinstance(making.command, tuple)
    assert making.command[-2:] == ("one~=1.0", "two")
    shell = ["/bin/sh", "-c", str(command)]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(shell, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "this machine does not have" in done.stderr) == (1, True)
    place = tmp_path / making.command[3]
    (place / "bin").mkdir(parents=True)
    (place / "complete").touch()
    program = place / "bin" / "my-program"
    program.write_text('#!/bin/sh\necho "$1" in $VIRTUAL_ENV\n')
    program.chmod(0o755)
    done = subprocess.run(shell, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == f"a b in {place}\n"


@pytest.mark.parametrize("after", [[], "a-abcde", ["a-abcde"], {"any": ["a-abcde"]}, {"ok": ["a-abcde"]}])
def test_a_job_waits_for_its_environment_besides_what_it_names_itself(after: object) -> None:
    waiting = check_job(waiting_for({"command": "work", **({"after": after} if after else {})}, "e-abcde")).file.after
    assert "e-abcde" in waiting.ok
    assert waiting.jobs == ["a-abcde", "e-abcde"] or not after or waiting.any == ["a-abcde"]


@pytest.mark.parametrize("written", ["--index-url=http://evil", "a b", "a;b", ""])
def test_what_is_no_package_is_no_part_of_an_environment(own: Path, written: str) -> None:
    (own / "mine.yaml").write_text(OWN.replace("---", f"environment: ['{written}']\n---"))
    warnings: list[str] = []
    all_templates(warnings.append)
    assert "environment" in warnings[0]
