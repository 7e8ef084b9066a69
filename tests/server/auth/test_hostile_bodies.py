"""Bodies that mean to break whatever reads them, sent to every route that takes one."""

from __future__ import annotations

import re

import pytest
from auth_world import AuthWorld, error_of

from seeds import few_then_many

BOMBS = {
    "nested lists": b"[" * 20_000,
    "nested objects": b'{"a":' * 20_000,
    "nested and closed": b"[" * 900 + b"]" * 900,
    "a number of many digits": b'{"gpus": ' + b"9" * 10_000 + b', "name": ' + b"9" * 10_000 + b"}",
    "numbers of some digits": b"{"
    + b",".join(
        b'"%s": %s' % (name, b"9" * 400)
        for name in (
            b"gpus",
            b"cpus",
            b"memory",
            b"priority",
            b"time_limit",
            b"tasks",
            b"lifetime_s",
            b"by_s",
            b"begin",
            b"query",
        )
    )
    + b', "command": "x", "name": "x", "limits": {"jobs": %s, "dev_s": %s}}' % (b"9" * 400, b"9" * 400),
    "a number beyond all": b'{"gpus": 1e999, "lifetime_s": 1e999, "by_s": 1e999, "limits": {"jobs": 1e999}}',
    "a large number": b'{"gpus": 9e300, "cpus": 9e300, "priority": 99999999999999999999, "limits": {"jobs": 9e300}}',
    "half a character": b'{"name": "\\ud800", "command": "\\udfff", "role": "\\ud800", "subject": "\\ud800"}',
    "zeros": b'{"name": "\\u0000", "command": "\\u0000", "user": "\\u0000", "subject": "\\u0000"}',
    "one key many times": b"{" + b'"a": 1,' * 5_000 + b'"a": 1}',
    "many keys": b"{" + b",".join(b'"k%d": 1' % number for number in range(5_000)) + b"}",
    "no text": b"\xff\xfe\x00" * 1_000,
    "a list": b"[" + b"{}," * 5_000 + b"{}]",
    "nothing": b"null",
}
QUICK = ("nested lists", "a number of many digits", "half a character", "a list")


@pytest.mark.parametrize("what", few_then_many(QUICK, [what for what in BOMBS if what not in QUICK]))
def test_no_route_breaks_on_a_hostile_body(shared: AuthWorld, what: str) -> None:
    client = shared.client("olga")
    described = shared.client().get("/openapi.json").json()["paths"]
    asked = 0
    for path, methods in described.items():
        for method, operation in methods.items():
            if "requestBody" not in operation:
                continue
            asked += 1
            answer = client.request(
                method, re.sub(r"\{.*?\}", "x", path), content=BOMBS[what], headers={"Content-Type": "application/json"}
            )
            assert 400 <= answer.status_code < 500, (method, path, answer.text[:300])
            assert error_of(answer).remedy or error_of(answer).details
            assert len(answer.content) < 100_000, (method, path)
    assert asked > 25


def test_no_path_with_a_zero_byte_reaches_a_route(shared: AuthWorld) -> None:
    described = shared.client().get("/openapi.json").json()["paths"]
    asked = [(method, path) for path, methods in described.items() if "{" in path for method in methods]
    for method, path in asked:
        answer = shared.client("olga").request(method, re.sub(r"\{.*?\}", "a%00", path), json={})
        assert (answer.status_code, error_of(answer).cause) == (404, "an address with a zero byte"), (method, path)
    assert len(asked) > 60


def test_a_name_with_wrong_characters_is_refused_with_those_that_are_right(shared: AuthWorld) -> None:
    answer = shared.client("olga").post("/api/v1/users", json={"name": "a b"})
    [detail] = error_of(answer).details
    assert (detail.loc, detail.message) == ("body.name", "it has characters that are not allowed there")
    assert "letters from a to z, digits" in detail.hint
