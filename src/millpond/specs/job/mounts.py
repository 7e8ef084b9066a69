"""What a job file says about files and about other jobs: ``ship``, ``data``, ``output``, ``after``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from millpond.model.workloads import LONGEST_JOB_ID
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.dataset_refs import DATASET_PREFIX, dataset_ref
from millpond.specs.job.snapshots import DIGEST_PATTERN, is_digest
from millpond.specs.validation import Shortened, or_short

MOST_MOUNTS: Final = 50
MOST_DEPENDENCIES: Final = 1_000

_SENT_OR_NOT: Final[dict[str, Any]] = {"oneOf": [{"type": "boolean"}, {"type": "string", "pattern": DIGEST_PATTERN}]}


def _ship(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, str) and is_digest(value)):
        return value
    raise BadValueError(
        f"{as_written(value)} is neither true nor false", "write true to send the working directory with the job"
    )


def _data(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(DATASET_PREFIX):
        if dataset_ref(value) is None:
            raise BadValueError(f"{as_written(value)} is not a dataset", "write dataset/NAME or dataset/NAME@VERSION")
        return value
    return _absolute(value, "write an absolute path, or dataset/NAME")


def _path(value: Any) -> Any:
    return _absolute(value, "write an absolute path")


def _absolute(value: Any, remedy: str) -> Any:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise BadValueError(f"{as_written(value)} is not a path", "write the path of a folder of the machine")
    if not FilePath(value).is_absolute():
        raise BadValueError(f"the path {as_written(value)} is relative", remedy)
    return value


Ship = Annotated[bool | str, BeforeValidator(_ship), WithJsonSchema(_SENT_OR_NOT)]
"""True sends ``workdir`` with the job; a client turns it into the digest of what it sent."""

DataSource = Annotated[str, BeforeValidator(_data), WithJsonSchema({"type": "string", "examples": ["dataset/mini@3"]})]
HostPath = Annotated[str, BeforeValidator(_path), WithJsonSchema({"type": "string", "examples": ["/results"]})]
_JobIds = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=LONGEST_JOB_ID)]], Field(max_length=MOST_DEPENDENCIES)
]


class After(Shortened):
    """Jobs that must have ended before this one may start.

    Attributes:
        ok: they must have succeeded.
        any: however they ended.
        failed: they must have failed (work that cleans up, or notifies).
    """

    model_config = or_short({"type": "array", "items": {"type": "string"}}, {"type": "string", "minLength": 1})

    ok: _JobIds = Field(default=[])
    any: _JobIds = Field(default=[])
    failed: _JobIds = Field(default=[])

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """``[a, b]`` and ``a`` are jobs that must succeed."""
        if isinstance(value, str):
            return {"ok": [value]}
        if isinstance(value, list):
            return {"ok": value}
        raise BadValueError(
            f"{as_written(value)} names no jobs", "write [JOB, ...] or {ok: [JOB], any: [JOB], failed: [JOB]}"
        )

    @property
    def jobs(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys((*self.ok, *self.any, *self.failed)))

    def renamed(self, names: Mapping[str, str]) -> After:
        """The same with other names for some of the jobs."""
        kinds = {"ok": self.ok, "any": self.any, "failed": self.failed}
        return After(**{kind: [names.get(job, job) for job in jobs] for kind, jobs in kinds.items()})
