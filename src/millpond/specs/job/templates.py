"""Templates: ready job files with a line about them and what must be installed; Millpond's and the user's own.

A template is a YAML file of two documents: first ``about`` and ``needs``, then the job file. Packages that it needs are
an environment: a small job makes it in the home of its user on the machine where the job runs, unless it is there
already, and the template's own job waits for it. Its name follows from the packages, so templates with the same ones
share it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from millpond.model.errors import MillpondError, NotFoundError, UnavailableError
from millpond.specs.base_directories import config_home
from millpond.specs.errors import BadValueError, SpecError, suggest
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.job_spec import JobSpec, check_job, read_job
from millpond.specs.source_positions import Located, read_documents
from millpond.specs.validation import Strict, job_name, validate

_SUFFIX = ".yaml"
_FOLDER: Final = ".cache/millpond/environments"
"""Below the home of the user on the machine."""


class TemplateNeed(Strict):
    """Something that must be installed where the job runs.

    Attributes:
        program: a command that must be found.
        module: a Python module that the environment's Python must find.
        install: how to come by it.
    """

    program: str | None = None
    module: str | None = None
    install: str

    @model_validator(mode="after")
    def _one_of(self) -> TemplateNeed:
        if (self.program is None) == (self.module is None):
            raise BadValueError("a need with neither or both of program and module", "name one of them")
        return self

    @property
    def name(self) -> str:
        """What is needed."""
        return self.program or f"the Python module {self.module}"


class Header(Strict):
    """What a template says about itself.

    Attributes:
        environment: packages, as pip takes them, that have what it needs; it is made where the job runs.
    """

    about: str
    needs: list[TemplateNeed] = Field(default=[])
    environment: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][^\s;]*$")]] = Field(default=[])


@dataclass(frozen=True, slots=True)
class Template:
    """A ready job file.

    Attributes:
        text: the whole file.
        source: where it lies.
        own: it is the user's, not Millpond's.
    """

    name: str
    header: Header
    text: str
    source: str
    own: bool

    @property
    def job_text(self) -> str:
        """Its job file as it is written, with its remarks."""
        _, _, text = self.text.partition("\n---\n")
        return text

    def environment_job(self, document: dict[str, Any]) -> JobSpec:
        """The job that sees to its environment, in the pool and the queue of the job file that waits for it."""
        return making_job(self.name, self.header.environment, document)

    def job(
        self,
        base: Path,
        changes: Sequence[FieldEdit] = (),
        env: dict[str, str] | None = None,
        in_own_environment: bool = False,
    ) -> JobSpec:
        """Its job.

        Args:
            base: folder that its relative ``workdir`` refers to.
            changes: made to it before it is checked.
            env: variables that it gets unless it sets them itself.
            in_own_environment: its programs are those of the environment that it brings along.

        Raises:
            SpecError: it is wrong, or becomes so by the changes.
        """
        _, located = _parts(self.text, self.source)
        if isinstance(located.value, dict) and isinstance(written := located.value.setdefault("env", {}), dict):
            located.value["env"] = {**(env or {}), **written}
        if isinstance(located.value, dict):
            with contextlib.suppress(BadValueError):  # any file may be a template, but not all are names of jobs
                located.value.setdefault("name", job_name(self.name))
        if in_own_environment and isinstance(located.value, dict) and "command" in located.value:
            located.value["command"] = command_in(located.value["command"], self.header.environment)
        return read_job(located, base, changes)


def own_folder() -> Path:
    """Where the user's own templates lie."""
    return config_home() / "millpond" / "templates"


def all_templates(warn: Callable[[str], None] = lambda text: None, *, own: bool = True) -> list[Template]:
    """Millpond's and the user's own by name; one of the user's replaces Millpond's of the same name.

    Args:
        warn: called with why a file of the user's is skipped: it is wrong or cannot be read.
        own: with the user's.
    """
    found = (_first_usable(paths, warn) for _, paths in sorted(_paths(own).items()))
    return [template for template in found if template is not None]


def find_template(name: str, warn: Callable[[str], None] = lambda text: None) -> Template:
    """A template by its name; ``warn`` as in ``all_templates``, of files of this name alone.

    Raises:
        NotFoundError: there is none.
    """
    paths = _paths()
    template = _first_usable(paths.pop(name, []), warn)
    if template is None:
        raise NotFoundError(f"no template {name!r}", suggest(name, sorted(paths)))
    return template


def _paths(own: bool = True) -> dict[str, list[Path]]:
    """The files of each name, the user's own first."""
    installed = Path(str(importlib.resources.files("millpond") / "templates"))
    found: dict[str, list[Path]] = {}
    for folder in (own_folder(), installed) if own else (installed,):
        for path in folder.glob(f"*{_SUFFIX}"):
            found.setdefault(path.stem, []).append(path)
    return found


def _first_usable(paths: Sequence[Path], warn: Callable[[str], None]) -> Template | None:
    for path in paths:
        try:
            template = _read(path)
            template.job(Path.cwd())
        except MillpondError as error:
            warn(f"the template {path} is skipped:\n{error}")
        else:
            return template
    return None


def _read(path: Path) -> Template:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UnavailableError(f"cannot read {path} ({reason})", "mend it or remove it") from error
    header, _ = _parts(text, str(path))
    return Template(path.stem, validate(Header, header), text, str(path), own=path.parent == own_folder())


def _parts(text: str, source: str) -> tuple[Located, Located]:
    documents = read_documents(text, source)
    if len(documents) != 2:
        message = f"a template has two documents, this has {len(documents)}"
        raise SpecError([documents[0].problem((), message, "first about and needs, then --- and the job file")])
    return documents[0], documents[1]


def making_job(template: str, packages: Sequence[str], document: dict[str, Any]) -> JobSpec:
    """The job that makes an environment where there is none yet; it has to reach a package index.

    Args:
        document: the job file that waits for it.
    """
    script = importlib.resources.files("millpond.job").joinpath("environment.py").read_text(encoding="utf-8")
    return check_job(
        {
            "name": f"{template}-environment",
            "memory": "2GiB",
            "network": "host",
            "command": ["python3", "-c", script, _folder_of(packages), *packages],
            **{field: document[field] for field in ("pool", "queue") if field in document},
        }
    )


def command_in(command: str | Sequence[str], packages: Sequence[str]) -> str:
    """A command, as a shell line, with the programs of an environment before all others."""
    line = command if isinstance(command, str) else f"exec {shlex.join(command)}"
    return (
        f'ENVIRONMENT="$HOME/{_folder_of(packages)}"; [ -e "$ENVIRONMENT/complete" ] || '
        '{ echo "millpond: this machine does not have $ENVIRONMENT; submit the template again" >&2; exit 1; }; '
        f'export PATH="$ENVIRONMENT/bin:$PATH" VIRTUAL_ENV="$ENVIRONMENT"; {line}'
    )


def waiting_for(document: dict[str, Any], job: str) -> dict[str, Any]:
    """A job file whose job starts after another one has succeeded, besides those that it names itself."""
    after = document.get("after", [])
    if isinstance(after, dict):
        return {**document, "after": {**after, "ok": [*after.get("ok", ()), job]}}
    return {**document, "after": [*([after] if isinstance(after, str) else after), job]}


def _folder_of(packages: Sequence[str]) -> str:
    return f"{_FOLDER}/{hashlib.sha256(' '.join(sorted(packages)).encode()).hexdigest()[:16]}"
