"""What routes are given.

All are coroutines: a plain function would be run in a thread of its own, a detour for every request.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from starlette.requests import HTTPConnection

from millpond.server.runtime.tenants import Tenants
from millpond.server.service import Service
from millpond.server.serving.proxy.access_tokens import AccessTokens


async def _service(connection: HTTPConnection) -> Service:
    service = connection.app.state.service
    assert isinstance(service, Service)
    return service


async def _passes(connection: HTTPConnection) -> AccessTokens:
    passes = connection.app.state.passes
    assert isinstance(passes, AccessTokens)
    return passes


async def _tenants(connection: HTTPConnection) -> Tenants:
    tenants = connection.app.state.tenants
    assert isinstance(tenants, Tenants)
    return tenants


PassesOf = Annotated[AccessTokens, Depends(_passes)]
ServiceOf = Annotated[Service, Depends(_service)]
TenantsOf = Annotated[Tenants, Depends(_tenants)]
Word = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]
"""What a list is narrowed by; PostgreSQL refuses to look for a zero byte."""
