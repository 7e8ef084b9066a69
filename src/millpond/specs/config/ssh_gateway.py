"""The ``specs.api.ssh`` section of the server's configuration: where people come into their jobs with SSH."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from millpond.specs.validation import Strict


class SshFile(Strict):
    """The gateway; where the section is left out, there is none.

    Attributes:
        port: that it listens on; 0 takes a free one.
        host: the address that it listens on.
    """

    port: Annotated[int, Field(ge=0, le=65_535)]
    host: Annotated[str, Field(min_length=1, max_length=253)] = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class SshRules:
    """Where the gateway listens; port 0 takes a free one."""

    host: str
    port: int
