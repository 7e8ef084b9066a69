"""The older flat job file (the form of OpenPAI's first versions), translated into the present one.

Source: OpenPAI v0.14, "Job tutorial", section "Write a job JSON configuration file".
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from millpond.specs.job.fields import MOST_CARDS, MOST_TASKS
from millpond.specs.source_positions import Located, Path
from millpond.specs.validation import Strict, validate

_FIELDS = {
    "name": "jobName",
    "queue": "virtualCluster",
    "gpu_models": "gpuType",
    "retries": "retryCount",
    "roles": "taskRoles",
}
_WHOLE_FIELDS = {"image": "image", "data": "dataDir", "output": "outputDir"}
_ROLE_FIELDS = {
    "tasks": "taskNumber",
    "cpus": "cpuNumber",
    "memory": "memoryMB",
    "gpus": "gpuNumber",
}


class LegacyRole(Strict):
    """One entry of ``taskRoles``."""

    name: str
    taskNumber: Annotated[int, Field(ge=1, le=MOST_TASKS)]  # noqa: N815 (the format's own names)
    cpuNumber: Annotated[int, Field(ge=0, le=1_000_000)]  # noqa: N815
    memoryMB: Annotated[int, Field(ge=0, le=2**40)]  # noqa: N815
    gpuNumber: Annotated[int, Field(ge=0, le=MOST_CARDS)] = 0  # noqa: N815
    command: str
    shmMB: int | None = None  # noqa: N815
    minFailedTaskCount: int | None = None  # noqa: N815
    minSucceededTaskCount: int | None = None  # noqa: N815
    portList: list[Any] | None = None  # noqa: N815


class LegacyJob(Strict):
    """The whole file."""

    jobName: str  # noqa: N815
    image: str | None = None
    authFile: str | None = None  # noqa: N815
    codeDir: str | None = None  # noqa: N815
    dataDir: str | None = None  # noqa: N815
    outputDir: str | None = None  # noqa: N815
    virtualCluster: str | None = None  # noqa: N815
    gpuType: str | None = None  # noqa: N815
    retryCount: Annotated[int, Field(ge=0)] | None = None  # noqa: N815
    taskRoles: Annotated[list[LegacyRole], Field(min_length=1)]  # noqa: N815
    killAllOnCompletedTaskNumber: int | None = None  # noqa: N815
    jobEnvs: dict[str, Any] | None = None  # noqa: N815
    extras: dict[str, Any] | None = None


def is_flat(document: Any) -> bool:
    """Whether a document is of the flat form."""
    return isinstance(document, dict) and ("taskRoles" in document or "jobName" in document)


def translate(located: Located) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The document in the present form, and a warning for each field that has no effect.

    ``dataDir`` and ``outputDir`` become ``data`` and ``output`` where they are folders of the machine. All directories
    become ``PAI_*_DIR`` variables too, as commands written for that form expect. Files of that form name an image,
    whether or not they need one, so it is optional.

    Raises:
        SpecError: it is not a valid flat job file.
    """
    job = validate(LegacyJob, located)
    env = {
        variable: value
        for variable, value in (
            ("PAI_JOB_NAME", job.jobName),
            ("PAI_CODE_DIR", job.codeDir),
            ("PAI_DATA_DIR", job.dataDir),
            ("PAI_OUTPUT_DIR", job.outputDir),
        )
        if value
    }
    document: dict[str, Any] = {
        "name": job.jobName,
        "env": {**env, **(job.jobEnvs or {})},
        "roles": [
            {
                "name": role.name,
                "tasks": role.taskNumber,
                "cpus": role.cpuNumber,
                "memory": f"{role.memoryMB}MiB",
                "gpus": role.gpuNumber,
                "command": role.command,
            }
            for role in job.taskRoles
        ],
    }
    optional = {
        "queue": job.virtualCluster,
        "gpu_models": job.gpuType and [job.gpuType],
        "retries": job.retryCount,
        "image": job.image and {"name": job.image, "optional": True},
        "data": {"data": job.dataDir} if _is_folder(job.dataDir) else None,
        "output": job.outputDir if _is_folder(job.outputDir) else None,
    }
    document |= {field: value for field, value in optional.items() if value}
    return document, _warnings(job)


def written(path: Path) -> Path:
    """Where the flat file has what the present form has at ``path``."""
    if not path:
        return path
    head = _FIELDS.get(str(path[0]), path[0])
    if path[0] == "env":
        return ("jobEnvs", *path[1:])
    if path[0] in _WHOLE_FIELDS:
        return (_WHOLE_FIELDS[str(path[0])],)
    if path[0] != "roles" or len(path) < 3:
        return (head, *path[1:])
    return (head, path[1], _ROLE_FIELDS.get(str(path[2]), path[2]))


def _is_folder(directory: str | None) -> bool:
    """Whether a directory is one of the machine, not of a distributed file system (``hdfs://``)."""
    return directory is not None and directory.startswith("/")


def _warnings(job: LegacyJob) -> tuple[str, ...]:
    warnings: list[str] = []
    for name, value in (("codeDir", job.codeDir), ("dataDir", job.dataDir), ("outputDir", job.outputDir)):
        if value and (name == "codeDir" or not _is_folder(value)):
            warnings.append(f"{name} is not mounted; its value is in the variable PAI_{name[:-3].upper()}_DIR")
    ignored: list[tuple[str, Any]] = [
        ("authFile", job.authFile),
        ("killAllOnCompletedTaskNumber", job.killAllOnCompletedTaskNumber),
        ("extras", job.extras),
    ]
    for index, role in enumerate(job.taskRoles):
        at = f"taskRoles.{index}"
        ignored += [
            (f"{at}.shmMB", role.shmMB),
            (f"{at}.minFailedTaskCount", role.minFailedTaskCount),
            (f"{at}.minSucceededTaskCount", role.minSucceededTaskCount),
            (f"{at}.portList", role.portList),
        ]
    warnings += [f"{name} is ignored" for name, value in ignored if value]
    return tuple(warnings)
