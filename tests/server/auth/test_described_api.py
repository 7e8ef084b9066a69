"""Requests made up from our own description: never a defect, and every refusal says its code, cause and remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from auth_world import API, AuthWorld, error_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from seeds import few_then_many

EXAMPLES = {"olga": 4, "max": 2, "": 2}
"""Requests of each caller to each route: an owner's get furthest."""
_WITHOUT_NOISE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def real(shared: AuthWorld) -> dict[str, str]:
    """Names of what is there, so that half of the requests get further than to a 404."""
    job = shared.submit("max")
    shared.settled()
    shared.client("olga").post(f"{API}/jobs/{job}/stop")
    shared.settled()
    token = shared.client("mia").post(f"{API}/tokens", json={"name": "t"}).json()["id"]
    return {"job": job, "user": "vic", "group": "vision", "token": token}


def operations(world: AuthWorld, every: int) -> Iterator[Any]:
    """Each so-manieth, of those that the description has; to read them all takes longer than to try a few."""
    described = world.routes.openapi()
    kept: dict[str, dict[str, Any]] = {}
    for path, method in [(path, method) for path, methods in described["paths"].items() for method in methods][::every]:
        kept.setdefault(path, {})[method] = described["paths"][path][method]
    schema = schemathesis.openapi.from_dict({**described, "paths": kept})
    return (found.ok() for found in schema.get_all_operations())


@pytest.mark.parametrize(("who", "every"), few_then_many([("", 32)], [("", 1), ("olga", 1), ("max", 1)]))
def test_no_request_that_fits_the_description_or_nearly_does_meets_a_defect(
    shared: AuthWorld, real: dict[str, str], who: str, every: int
) -> None:
    client = shared.client(who)
    for operation in operations(shared, every):

        @settings(
            max_examples=EXAMPLES[who],
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=_WITHOUT_NOISE,
        )
        @given(case=operation.as_strategy(), known=st.booleans(), spoilt=st.none() | st.binary(max_size=40))
        def ask(case: Any, known: bool, spoilt: bytes | None) -> None:
            if known:
                case.path_parameters = {name: real.get(name, value) for name, value in case.path_parameters.items()}
            request = case.as_transport_kwargs(base_url="http://testserver")
            if spoilt is not None and case.method in ("POST", "PUT", "PATCH"):
                request.pop("json", None)
                request["data"] = spoilt
            answer = client.request(
                request["method"],
                request["url"],
                params=request.get("params"),
                headers={**request.get("headers", {}), **client.headers},
                json=request.get("json"),
                content=request.get("data"),
            )
            assert answer.status_code < 500, (case.as_curl_command(), answer.text)
            if answer.status_code >= 400:
                error_of(answer)

        try:
            ask()
        except Unsatisfiable:
            pytest.fail(f"no request could be made up for {operation.label}")
