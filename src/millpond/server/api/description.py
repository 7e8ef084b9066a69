"""The OpenAPI description, with the job file and the body of errors in it: shared components like everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI

from millpond.specs.api.base import API_PREFIX, ErrorInfo
from millpond.specs.api.jobs import MOST_TOGETHER
from millpond.specs.job.job_file import JobFile

_SCHEMAS = "#/components/schemas/"

BYTES_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}
"""Bytes as they are."""

JOB_FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}JobFile"}}},
    }
}
"""A job file as the body of a route that reads the body by itself, so that its errors have the platform's form."""

JOB_FILES_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["jobs"],
                    "additionalProperties": False,
                    "properties": {
                        "jobs": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": MOST_TOGETHER,
                            "items": {"$ref": f"{_SCHEMAS}JobFile"},
                        }
                    },
                }
            }
        },
    }
}
"""The same for several that are taken together."""

REFUSAL: dict[str, Any] = {"content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}ErrorInfo"}}}}
"""An answer that is not a success. Not as a ``model``: FastAPI would build a validator of it for each route and status,
hundreds of them and most of what the first request after a start waited for, and none would be called."""
REFUSALS: dict[int | str, dict[str, Any]] = dict.fromkeys((400, 401, 403, 404, 408, 409, 413, 422, 503), REFUSAL)
"""Those that any route may answer with."""


def api_router(prefix: str = "", tags: Sequence[str] = ()) -> APIRouter:
    """A router below the API's prefix, which its routes carry from the start.

    A router that was included in another one under a prefix finds the route of each request twice, in two loops.
    """
    return APIRouter(prefix=API_PREFIX + prefix, tags=list(tags), responses=REFUSALS)


class DescribedApi(FastAPI):
    """FastAPI whose description knows the job file and what a refusal looks like."""

    def openapi(self) -> dict[str, Any]:
        """The description; made once."""
        if self.openapi_schema is None:
            components = super().openapi()["components"]["schemas"]
            for model in (JobFile, ErrorInfo):
                schema = model.model_json_schema(ref_template=_SCHEMAS + "{model}")
                components.update(schema.pop("$defs", {}))
                components[model.__name__] = schema
        return super().openapi()
