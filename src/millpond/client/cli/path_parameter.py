"""Paths among arguments and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from millpond.model.errors import InvalidInputError


class PathParameter(click.Path):
    """A path that is not empty: ``Path("")``, as of ``"$FILE"`` where it is unset, is the working directory."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(path_type=Path, **attributes)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value and param is not None:
            name = param.human_readable_name if isinstance(param, click.Argument) else max(param.opts, key=len)
            raise InvalidInputError(f"{name} names nothing", "write a path; a variable of the shell may be empty")
        return super().convert(value, param, ctx)
