"""What an id says of its job: an array's member, or a service's revision.

The member 17 of ``train-abcde`` is the job ``train-abcde.17``; no other id ends in a dot and digits alone. The second
revision of ``chat-abcde`` is ``chat-abcde.r2``, and its first is ``chat-abcde`` itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

REVISION_MARK: Final = ".r"
"""Between the id of a service and the number of its revision, in the id of the revision's job."""
_MEMBER: Final = re.compile(r"([^.\[\]]+)(?:\.(\d{1,10})|\[(\d{1,10})\])")


def member_id(array: str, index: int) -> str:
    """The id of a member."""
    return f"{array}.{index}"


def split_member(text: str) -> tuple[str, int] | None:
    """Array and index of ``ARRAY.17`` or ``ARRAY[17]``; None when it is neither."""
    match = _MEMBER.fullmatch(text)
    return None if match is None else (match[1], int(match[2] or match[3]))


def array_id(job: str) -> str:
    """The array that a job is a member of; of any other job, its own id."""
    member = split_member(job)
    return job if member is None else member[0]


def service_of(job: str) -> str:
    """The service that a job is a revision of: the id of its first job, and its address; for others the id itself."""
    service, mark, number = job.rpartition(REVISION_MARK)
    return service if mark and number.isdecimal() else job


def revision_job(service: str, number: int) -> str:
    """The id of the job that is a revision of a service, from the second on."""
    return f"{service}{REVISION_MARK}{number}"


def name_of_program(command: str | Sequence[str]) -> str:
    """What a job is called that was given no name: its program, in letters, digits and dashes."""
    words = command.split() if isinstance(command, str) else command
    return re.sub(r"[^a-z0-9]+", "-", Path(words[0]).stem.lower()).strip("-")[:40] or "job"
