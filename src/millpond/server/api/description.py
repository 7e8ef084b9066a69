"""The OpenAPI description, with the job file and the body of errors in it: shared components like everything else."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import cached_property
from html import escape
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.utils import get_typed_return_annotation
from fastapi.routing import APIRoute
from pydantic import ConfigDict

from millpond.server.api.permits import permits_of, routes_of
from millpond.specs.api.base import API_PREFIX, ErrorInfo
from millpond.specs.api.jobs.images import ImageStep
from millpond.specs.api.jobs.jobs import MOST_TOGETHER
from millpond.specs.api.jobs.logs import LogChunk
from millpond.specs.api.models import adapter_of
from millpond.specs.job.job_file import JobFile

_SCHEMAS = "#/components/schemas/"

_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
BYTES_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": _BYTES}}
"""Bytes as they are."""
BYTES_ANSWER: dict[int | str, dict[str, Any]] = {200: {"content": _BYTES}}
"""The same as an answer."""

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
REFUSALS: dict[int | str, dict[str, Any]] = dict.fromkeys((400, 401, 403, 404, 408, 409, 413, 422, 429, 503), REFUSAL)
"""Those that any route may answer with."""
FILE_ANSWERS: dict[int | str, dict[str, Any]] = {
    **BYTES_ANSWER,
    206: {"content": _BYTES, "description": "The part that ``Range`` asks for"},
    **dict.fromkeys((412, 416), REFUSAL),
}
"""Those of routes with a file of which a part may be asked for."""


def lines_of(model: type) -> dict[int | str, dict[str, Any]]:
    """An answer of JSON, one value a line."""
    schema = {"$ref": _SCHEMAS + model.__name__}
    return {200: {"content": {"application/x-ndjson": {"schema": schema}}, "description": "One per line"}}


class _ApiRoute(APIRoute):
    """A route that prepares to write its answers when it is first asked; to do so for all took a tenth of a start."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        answer = get_typed_return_annotation(endpoint)
        if isinstance(answer, type) and is_dataclass(answer):
            answer.__pydantic_config__ = ConfigDict(defer_build=True)  # type: ignore[attr-defined]
        super().__init__(path, endpoint, **options)


def api_router(prefix: str = "", tags: Sequence[str] = ()) -> APIRouter:
    """A router below the API's prefix, which its routes carry from the start.

    A router that was included in another one under a prefix finds the route of each request twice, in two loops.
    """
    return APIRouter(prefix=API_PREFIX + prefix, tags=list(tags), responses=REFUSALS, route_class=_ApiRoute)


class DescribedApi(FastAPI):
    """FastAPI whose description knows the job file and what a refusal looks like."""

    _making: Final = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """The description; made once, for whichever thread asks first."""
        with self._making:
            if self.openapi_schema is None:
                described = super().openapi()
                described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                described["security"] = [{"token": []}]
                for route in routes_of(self):
                    if isinstance(route, APIRoute) and route.include_in_schema and permits_of(route)[0].verb is None:
                        for method in route.methods or ():
                            described["paths"][route.path_format][method.lower()]["security"] = []
                components = described["components"]["schemas"]
                for model in (JobFile, ErrorInfo, LogChunk, ImageStep):
                    schema = adapter_of(model).json_schema(ref_template=_SCHEMAS + "{model}")
                    components.update(schema.pop("$defs", {}))
                    components[model.__name__] = schema
            return super().openapi()

    @cached_property
    def as_json(self) -> bytes:
        """The description as it is sent: everybody may ask for it, and to write it takes tens of milliseconds."""
        return json.dumps(self.openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    @cached_property
    def as_page(self) -> bytes:
        """The same as a page for people."""
        return _reference_page(self.openapi()).encode()


_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-top: 1px solid color-mix(in srgb, currentColor 25%, transparent); padding-top: 1rem; }
code, h2 { font-family: ui-monospace, monospace; } h2 { font-size: 1.05rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .2rem 1rem .2rem 0; }
td { vertical-align: top; border-top: 1px solid color-mix(in srgb, currentColor 12%, transparent); }
"""


def _reference_page(openapi: dict[str, Any]) -> str:
    """One page: every route with its parameters, every body with its fields."""
    title = escape(f"{openapi['info']['title']} {openapi['info']['version']}")
    routes = [
        _route(method, path, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    bodies = [_body(name, schema) for name, schema in sorted(openapi["components"]["schemas"].items())]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1>{title}</h1>'
        f"<p>{escape(openapi['info'].get('description', ''))} The same for programs: "
        f'<a href="/openapi.json">openapi.json</a>. Requests bear <code>Authorization: Bearer TOKEN</code>.</p>'
        f"{''.join(routes)}<h1>Bodies</h1>{''.join(bodies)}</html>"
    )


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        (
            f"{item['name']} ({item['in']})",
            _type(item.get("schema", {})),
            "required" if item.get("required") else "",
        )
        for item in operation.get("parameters", [])
    ]
    answers = ", ".join(f"{code} {_answer(answer)}".strip() for code, answer in operation.get("responses", {}).items())
    text = escape(operation.get("description", operation.get("summary", "")))
    return f"<h2>{escape(method.upper())} {escape(path)}</h2><p>{text}</p>{_table(rows)}<p>{escape(answers)}</p>"


def _answer(answer: dict[str, Any]) -> str:
    for content in answer.get("content", {}).values():
        if content.get("schema"):
            return _type(content["schema"])
    return ""


def _body(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        (field, _type(what), "required" if field in required else "")
        for field, what in schema.get("properties", {}).items()
    ]
    return f'<h2 id="{escape(name)}">{escape(name)}</h2>{_paragraphs(schema.get("description", ""))}{_table(rows)}'


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part)


def _type(schema: dict[str, Any]) -> str:
    """A short name for a schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for joined in ("anyOf", "oneOf"):
        if joined in schema:
            return " or ".join(_type(part) for part in schema[joined])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _table(rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(note)}</td></tr>"
        for name, kind, note in rows
    )
    return f"<table>{lines}</table>"
