"""From an array to its members: which there are, and the job file of each."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from millpond.specs.errors import suggest
from millpond.specs.job.arrays import ArrayFile, Members, written_indices
from millpond.specs.job.job_file import JobFile
from millpond.specs.job.sweeps import Parameters, SweepFile, Value

PARAMETERS_VARIABLE: Final = "MILLPOND_PARAMETERS"
_PLACE: Final = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_OWN_FIELDS: Final = ("array", "sweep", "after", "idempotency_key")
"""What is said of the array and not of each member."""


def members_of(file: JobFile) -> Members | None:
    """The members that a job file asks for; None when it is one job."""
    return _members(file.array, file.sweep)


def member_document(document: Mapping[str, Any], index: int, file: JobFile | None = None) -> dict[str, Any]:
    """The job file of one member.

    Its command has the index for ``{index}`` and the parameters of a trial for ``{name}``, quoted where it is a line
    for the shell; its variables say the same.

    Args:
        document: the array's, as it was accepted.
        file: the same, where it was checked already; else its indices and parameters are.
    """
    if file is not None:
        array, sweep = file.array, file.sweep
    elif document.get("sweep") is not None:
        array, sweep = None, SweepFile.model_validate(document["sweep"])
    else:
        array, sweep = ArrayFile.model_validate(document.get("array")), None
    members = _members(array, sweep)
    assert members is not None, "it is an array"
    parameters: Parameters = {} if sweep is None else sweep.trial(index)
    words = {"index": index, **parameters}
    own = {name: value for name, value in document.items() if name not in _OWN_FIELDS}
    if "command" in own:
        own["command"] = _filled(own["command"], words)
    if "roles" in own:
        own["roles"] = [
            {**role, "command": _filled(role["command"], words)} if "command" in role else role for role in own["roles"]
        ]
    return {**own, "env": {**own.get("env", {}), **_variables(members, index, parameters)}}


def _members(array: ArrayFile | None, sweep: SweepFile | None) -> Members | None:
    if array is not None:
        return array.members
    return None if sweep is None else sweep.members


def member_file(file: JobFile, index: int) -> JobFile:
    """The same of a file that was checked already: a member differs from its array in words, which need no check.

    Args:
        file: the array's.
    """
    members = members_of(file)
    assert members is not None, "it is an array"
    parameters: Parameters = {} if file.sweep is None else file.sweep.trial(index)
    words = {"index": index, **parameters}
    changed: dict[str, Any] = {name: JobFile.model_fields[name].get_default() for name in _OWN_FIELDS}
    changed["env"] = {**file.env, **_variables(members, index, parameters)}
    if file.command is not None:
        changed["command"] = _filled_checked(file.command, words)
    if file.roles is not None:
        changed["roles"] = [
            role if role.command is None else role.model_copy(update={"command": _filled_checked(role.command, words)})
            for role in file.roles
        ]
    named = (file.model_fields_set - set(_OWN_FIELDS)) | {"env"}
    return JobFile.model_construct(named, **{**dict(file), **changed})


def _variables(members: Members, index: int, parameters: Parameters) -> dict[str, str]:
    """Those of a member's programs."""
    variables = {
        "MILLPOND_ARRAY_INDEX": str(index),
        "MILLPOND_ARRAY_COUNT": str(len(members)),
        "MILLPOND_ARRAY_MIN": str(members.first),
        "MILLPOND_ARRAY_MAX": str(members.last),
    }
    if parameters:
        variables |= {f"MILLPOND_PARAM_{name.upper()}": written(value) for name, value in parameters.items()}
        variables[PARAMETERS_VARIABLE] = json.dumps(parameters)
    return variables


def only_members(document: Mapping[str, Any], indices: Iterable[int]) -> dict[str, Any]:
    """An array's job file with these members alone; trials keep their numbers, and so their parameters."""
    chosen = written_indices(indices)
    if document.get("sweep") is not None:
        return {**document, "sweep": {**document["sweep"], "only": chosen}}
    parallel = ArrayFile.model_validate(document["array"]).parallel
    return {**document, "array": {"indices": chosen} | ({} if parallel is None else {"parallel": parallel})}


def written(value: Value) -> str:
    """A value as text, for commands and variables."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _filled(command: Any, words: Mapping[str, Value]) -> Any:
    """A command with the words put in their places; ``${name}`` is the shell's own and stays."""
    places = re.compile(r"(?<!\$)\{(" + "|".join(map(re.escape, words)) + r")\}")
    if isinstance(command, str):
        return places.sub(lambda place: shlex.quote(written(words[place[1]])), command)
    return [places.sub(lambda place: written(words[place[1]]), str(part)) for part in command]


def _filled_checked(command: str | tuple[str, ...], words: Mapping[str, Value]) -> str | tuple[str, ...]:
    filled = _filled(command, words)
    return filled if isinstance(filled, str) else tuple(filled)


def unfilled(file: JobFile) -> Iterator[str]:
    """Of a sweep, what to say about places in its commands that no parameter fills."""
    if file.sweep is None:
        return
    known = ["index", *file.sweep.parameters]
    commands = [file.command, *(role.command for role in file.roles or ())]
    parts = [part for command in commands for part in ([command] if isinstance(command, str) else command or ())]
    for name in dict.fromkeys(name for part in parts for name in _PLACE.findall(part)):
        if name not in known:
            near = suggest(name, known)
            yield f"{{{name}}} in the command stays as it is, as the sweep has no such parameter; {near}"
