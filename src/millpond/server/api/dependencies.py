"""What routes are given."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from millpond.server.service import Service


def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


ServiceOf = Annotated[Service, Depends(_service)]
