"""The Python client can ask for all that the API answers."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import millpond.client.sdk as sdk
from millpond.server.api import routes

NOT_OF_CLIENTS = ("/api/v1/runs/", "/healthz", "/readyz", "/metrics", "/oidc/", "/llms.txt", "/docs/", "/portal")
"""What pods, monitors, browsers and readers ask for."""
BY_NAMES_IN_ONE = {
    "/datasets/{}/{}/files/{}", "/jobs/{}/output/{}", "/images/{}/{}/pull", "/images/{}/{}/push", "/oidc/logins/{}",
    "/secrets/{}/{}/{}",
}  # fmt: skip
"""Of which the client makes some parts at another place than the rest."""


def of_the_server() -> set[str]:
    found = set()
    for module in pkgutil.iter_modules(routes.__path__):
        for value in vars(importlib.import_module(f"{routes.__name__}.{module.name}")).values():
            found |= {route.path for route in getattr(value, "routes", ()) if hasattr(route, "path")}
    return {path for path in found if not path.startswith(NOT_OF_CLIENTS) and path != "/"}


def of_the_client() -> set[str]:
    """The paths in its sources, with ``{}`` for what is filled in."""
    found = set()
    for path in Path(sdk.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.add("".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values))
    return found


def test_each_route_has_a_method() -> None:
    plain = {re.sub(r"\{[^}]*\}", "{}", path).removeprefix("/api/v1"): path for path in of_the_server()}
    assert len(plain) > 60
    asked = of_the_client() | BY_NAMES_IN_ONE
    missing = {path for short, path in plain.items() if short not in asked}
    assert missing == set()
