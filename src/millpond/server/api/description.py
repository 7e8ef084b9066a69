"""The OpenAPI description, with the job file in it: its parts are shared components like everything else."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from millpond.specs.job import JobFile

JOB_FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobFile"}}},
    }
}
"""A job file as the body of a route that reads the body by itself, so that its errors are ours."""


class DescribedApi(FastAPI):
    """FastAPI whose description knows the job file."""

    def openapi(self) -> dict[str, Any]:
        """The description; made once."""
        if self.openapi_schema is None:
            schema = JobFile.model_json_schema(ref_template="#/components/schemas/{model}")
            parts = schema.pop("$defs", {})
            components = super().openapi()["components"]["schemas"]
            components.update(parts, JobFile=schema)
        return super().openapi()
