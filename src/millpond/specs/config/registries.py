"""Where images may come from, as the configuration names it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

Registries = list[Annotated[str, Field(min_length=1, max_length=300), AfterValidator(lambda text: text.rstrip("/"))]]
"""Registries and repositories, such as ``nvcr.io`` and ``docker.io/pytorch``."""
