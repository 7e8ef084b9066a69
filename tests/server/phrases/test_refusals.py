"""What the API answers to a request that it refuses, in the language of the page whose button was pressed."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from api_world import Api

from millpond.model.errors import NotAllowedError
from millpond.model.resources import Amount
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.tenants import Queue
from millpond.server.auth.roles import Caller, UserRole, Verb, absent, demand, in_words
from millpond.server.phrases.phrasebook import phrase_in
from millpond.server.runtime.queue_settings.book import QueueBook, QueueFacts
from millpond.server.runtime.queue_settings.hardware_checks import beyond_cells
from millpond.server.store.settings import QueueRow
from millpond.simulation.clusters import uniform_cluster
from millpond.specs.config.queue_documents import read_queues
from millpond.specs.errors import SpecError

CHINESE = "zh-CN"
ASKED = {"Accept-Language": CHINESE}
REFUSALS = {
    *("InvalidInputError", "NotFoundError", "ConflictError", "NotAllowedError", "NotLoggedInError"),
    *("TooManyTriesError", "UnavailableError", "ErrorBody"),
}
BEHIND_BUTTONS = (
    *("scheduling/event_handling", "scheduling/nodes", "scheduling/reserving", "scheduling/records.py"),
    *("scheduling/tenancy/queues.py", "scheduling/elastic", "model/tenancy/reservations.py", "specs/calendar_spans.py"),
    *("server/auth/accounts.py", "server/auth/group_invitations.py", "server/auth/guard.py", "server/auth/logins.py"),
    *("server/auth/queues.py", "server/auth/roles.py", "server/auth/ssh_keys.py", "server/auth/throttle.py"),
    *("server/auth/tokens.py", "server/api", "server/http/error_responses.py", "server/jobs", "server/notifications"),
    *("server/runtime", "server/serving/updates.py", "server/storage/files/admission.py"),
    *("server/storage/files/mounts.py", "server/storage/provisioning/admission.py", "server/web"),
    *("server/views/hardware/machines.py", "server/auth/oidc", "server/serving/proxy"),
)
"""Where the refusals are written that pages of the portal meet."""
NOT_BEHIND_BUTTONS = (
    *(
        "server/jobs/adaptation",
        "server/jobs/adoption",
        "server/jobs/curves",
        "server/jobs/sweeps",
        "server/jobs/task_inputs.py",
    ),
    "scheduling/nodes/layout_changes.py",
)


def texts_of(node: ast.expr, filler: str) -> list[str]:
    """What an expression may write, with ``filler`` for each of its values; nothing where that is not written there."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=body, orelse=orelse):
            return [*texts_of(body, filler), *texts_of(orelse, filler)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = itertools.product(texts_of(left, filler) or [filler], texts_of(right, filler) or [filler])
            return ["".join(found) for found in parts]
        case ast.JoinedStr(values=values):
            return ["".join(found) for found in itertools.product(*(texts_of(part, filler) for part in values))]
        case ast.Call(func=ast.Name(id="count_text"), args=[_, ast.Constant(value=str(noun))]):
            return [f"{filler} {noun}s"]
        case ast.Call(func=ast.Name(id="cards_text")):
            return [f"{filler} cards"]
        case ast.FormattedValue(value=value, conversion=conversion):
            return texts_of(value, filler) or [repr(filler) if conversion == ord("r") else filler]
        case _:
            return []


def refusals_in(module: Path) -> Iterator[tuple[str, str]]:
    """Each cause and remedy that a module writes out, with a word and with a number in its places."""
    for node in ast.walk(ast.parse(module.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in REFUSALS:
            continue
        said = [*node.args, *(each.value for each in node.keywords if each.arg in ("cause", "remedy"))]
        for each in said:
            yield from zip(texts_of(each, "x-1"), texts_of(each, "7"), strict=True)


def modules() -> list[Path]:
    root = Path(str(files("millpond")))
    found = itertools.chain.from_iterable(
        [root / place] if place.endswith(".py") else (root / place).rglob("*.py") for place in BEHIND_BUTTONS
    )
    others = tuple(str(root / place) for place in NOT_BEHIND_BUTTONS)
    return [module for module in found if not str(module).startswith(others)]


def test_each_refusal_behind_a_button_has_its_words() -> None:
    written = [each for module in modules() for each in refusals_in(module) if each[0] not in ("", "no x-1 'x-1'")]
    lacking = [texts[0] for texts in written if all(phrase_in(CHINESE, text) == text for text in texts)]
    assert lacking == []
    kinds = ("job", "user", "group", "token", "key", "secret", "image", "queue", "reservation", "view")
    for error in (absent(kind, "x-1") for kind in kinds):
        assert error.cause != phrase_in(CHINESE, error.cause)
        assert error.remedy != phrase_in(CHINESE, error.remedy)


def test_what_a_role_may_not_do_is_said_in_words_and_not_by_the_name_of_the_right() -> None:
    vic = Caller("vic", roles=(("vision", UserRole.VIEWER),))
    with pytest.raises(NotAllowedError) as refused:
        demand(vic, Verb.READ_AUDIT)
    assert refused.value.cause == "vic (viewer of vision) may not read the audit log"
    assert "查看审计日志" in phrase_in(CHINESE, refused.value.cause)
    assert refused.value.remedy == "ask a lead or an admin for a role that may"
    with pytest.raises(NotAllowedError) as refused:
        demand(vic, Verb.CHANGE_CLUSTER)
    assert refused.value.remedy == "ask an admin", "no lead may either"
    assert [verb for verb in Verb if phrase_in(CHINESE, in_words(verb)) == in_words(verb)] == []


@pytest.mark.parametrize(
    "queues",
    [
        {"a": {"parent": "b"}},
        {"a": {"parent": "b"}, "b": {"parent": "a"}},
        {"a": {"guarantee": 1}, "b": {"parent": "a", "guarantee": 3}},
        {"a": {"limit": 1}, "b": {"parent": "a", "guarantee": 3}},
        {"a": {"guarantee": 2, "limit": 1}},
        {"a": {"guarantee": {"models": {"A100": 2}}, "limit": {"models": {"A100": 1}}}},
        {"a": {"guarantee": {"gpus": 1, "models": {"A100": 2}}}},
        {"a": {"guarantee": {"cpus": 4, "memory": "4GiB"}}, "b": {"parent": "a", "guarantee": {"cpus": 8}}},
        {"a": {"guarantee": {"card_memory": "8GiB"}, "limit": {"card_memory": "4GiB"}}},
        {"a": {"guarantee": 1, "cells": {"node": 2}}},
        {"a": {"guarantee": 2, "pinned": ["n1"]}, "b": {"guarantee": 2, "pinned": ["n1"]}},
        {"a": {"guarantee": -1, "weight": "x", "cells": {"node": "x"}, "priorities": ["bogus"], "min_run": "x"}},
    ],
)
def test_what_is_wrong_with_queues_is_told_in_the_language_of_the_reader(queues: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        read_queues(queues)
    said = [refused.value.summary, *(text for each in refused.value.problems for text in (each.message, each.hint))]
    assert in_english(said) == []


@pytest.mark.parametrize(
    "fields", [{"pinned": ("gone",)}, {"cells": (CellCount("rack of 4 nodes", 1),)}, {"cells": (CellCount("node", 2),)}]
)
def test_which_cells_no_machine_has_is_told_in_the_language_of_the_reader(fields: dict[str, Any]) -> None:
    owed = Queue("a", guarantee=Amount(64_000), **fields)
    problems = list(beyond_cells((), [owed], uniform_cluster("1x4:A100")))
    assert problems
    assert in_english([text for each in problems for text in (each.message, each.hint)]) == []


@pytest.mark.parametrize(
    ("parents", "facts"),
    [
        ({"b": "root"}, {"known": {"b": Queue("b", "a")}}),
        ({"b": "a"}, {"jobs": Counter(a=1)}),
        ({"b": "a"}, {"jobs": Counter(a=2)}),
        ({"b": "a"}, {"owners": {"a": "ab"}}),
        ({"b": "a"}, {"reservations": {"a": "a-1"}}),
    ],
)
def test_where_a_queue_cannot_be_is_told_in_the_language_of_the_reader(
    parents: dict[str, str], facts: dict[str, Any]
) -> None:
    tree = read_queues({"a": {}, **{name: {"parent": parent} for name, parent in parents.items()}})
    book = QueueBook({"b": QueueRow("b", {}, None, 1, "amy", 0.0)})
    [problem] = book.misplaced(tree, QueueFacts(**{"known": {}, **facts}))
    assert in_english([problem.message, problem.hint]) == []


def in_english(texts: Sequence[str]) -> list[str]:
    """Those of which some is English still where Chinese is read."""
    return [text for text in texts if re.search("[a-z]{2,} [a-z]+ [a-z]+", phrase_in(CHINESE, text))]


def test_refusals_come_in_the_language_that_is_asked_for(api: Api) -> None:
    job = api.submit(gpus=1)
    path = f"/api/v1/jobs/{job.id}/resume"
    assert api.client.post(path).json()["error"]["remedy"] == "only a suspended job can be resumed"
    answer = api.client.post(path, headers=ASKED)
    assert answer.headers["content-language"] == CHINESE
    assert answer.json()["error"] == {
        "cause": f"作业 '{job.id}' 的状态为运行中",
        "code": "conflict",
        "remedy": "只能恢复已挂起的作业",
        "details": [],
        "id": "",
    }
    together = {"act": "resume", "jobs": [job.id, "never-was"]}
    acted = api.client.post("/api/v1/jobs/act", json=together, headers=ASKED).json()["jobs"]
    assert [each["error"]["cause"] for each in acted] == [f"作业 '{job.id}' 的状态为运行中", "没有作业 'never-was'"]
    fault = api.client.post("/api/v1/jobs/act", json={"act": "resume", "jobs": []}, headers=ASKED).json()["error"]
    assert fault["cause"] == "请求无效"
    assert fault["details"][0]["message"].startswith("至少 1 项")
    no_route = api.client.get("/api/v1/nothing", headers=ASKED).json()["error"]
    assert no_route["remedy"] == "可用的地址见 /docs"
    job_file = api.client.post("/api/v1/jobs", json={"comand": "x"}, headers=ASKED).json()["error"]
    assert "comand" in job_file["details"][0]["message"]
    assert "unknown" not in job_file["details"][0]["message"]
    too_much = api.client.post("/api/v1/jobs", json={"command": "x", "gpus": 99}, headers=ASKED).json()["error"]
    assert (too_much["cause"], too_much["remedy"]) == (
        "一个任务申请 99 块 GPU\N{FULLWIDTH SEMICOLON}最大的节点有 4",
        "每个任务最多申请 4\N{FULLWIDTH COMMA}并使用更多任务",
    )


def test_requests_that_are_turned_away_at_the_door_are_answered_in_the_language_too(api: Api) -> None:
    answer = api.client.get("/api/v1/jobs", headers={**ASKED, "Authorization": "Bearer wrong"})
    assert answer.status_code == 401
    assert answer.json()["error"]["cause"] == "令牌缺失、有误、已过期或已吊销"
