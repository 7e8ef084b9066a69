"""What routes are given."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from millpond.server.proxy.passes import Passes
from millpond.server.service import Service
from millpond.server.tenants import Tenants


def _service(connection: HTTPConnection) -> Service:
    service = connection.app.state.service
    assert isinstance(service, Service)
    return service


def _passes(connection: HTTPConnection) -> Passes:
    passes = connection.app.state.passes
    assert isinstance(passes, Passes)
    return passes


def _tenants(connection: HTTPConnection) -> Tenants:
    tenants = connection.app.state.tenants
    assert isinstance(tenants, Tenants)
    return tenants


PassesOf = Annotated[Passes, Depends(_passes)]
ServiceOf = Annotated[Service, Depends(_service)]
TenantsOf = Annotated[Tenants, Depends(_tenants)]
