"""What ``pond mcp`` does of its own: wrong arguments are refused, and answers stay as long as an agent reads."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from job_infos import job_info
from millpond.client.sdk.transport import failures
from millpond.model.errors import NotAllowedError
from millpond.specs.api.base import ErrorBody, ErrorInfo
from millpond.specs.api.codec import to_plain
from millpond.specs.api.reports.usage import UsageList, UsageRow


@pytest.fixture
def tools() -> ModuleType:
    """Not imported by each process that collects these tests: the protocol's package takes a second of CPU."""
    from millpond.client.cli import agent_tools

    return agent_tools


def call(tools: ModuleType, tool: str, connection: SimpleNamespace, **arguments: Any) -> Any:
    """What a tool answers; an error of the protocol's package, in its words."""
    from mcp import Client

    async def session() -> Any:
        made = tools.agent_server(lambda: nullcontext(connection), may_write=True)  # type: ignore[arg-type,return-value]
        async with Client(made) as client:
            answer = await client.call_tool(tool, arguments)
            if answer.structured_content is None:
                assert answer.is_error
                return answer.content[0].text
            assert answer.is_error is ("error" in answer.structured_content)
            return answer.structured_content

    return asyncio.run(session())


@pytest.mark.parametrize(("tool", "argument"), [("list_jobs", "users"), ("usage", "group"), ("stop", "task")])
def test_an_argument_that_a_tool_does_not_have_is_refused(tools: ModuleType, tool: str, argument: str) -> None:
    said = call(tools, tool, SimpleNamespace(), **{argument: "ada"})
    assert argument in said
    assert "not permitted" in said


def test_a_refusal_has_the_code_of_the_server_beside_cause_and_remedy(tools: ModuleType) -> None:
    def find(_job: str) -> None:
        body = ErrorInfo(error=ErrorBody(cause="the body is too large", code="too-large", remedy="send less"))
        raise failures.from_answer(413, json.dumps(to_plain(body)).encode(), "http://pond")

    said = {"cause": "the body is too large", "code": "too-large", "remedy": "send less"}
    assert call(tools, "get_job", SimpleNamespace(find=find), job="train") == {"error": said}
    mistyped = call(tools, "submit", SimpleNamespace(), job_file="command: true\ngpsu: 1\n")["error"]
    assert mistyped["code"] == "invalid"
    assert "2:1" in mistyped["cause"]


@pytest.mark.parametrize("named", [5, [5], "train"])
def test_changes_that_are_none_are_left_to_the_server_to_refuse(tools: ModuleType, named: Any) -> None:
    asked: list[Any] = []
    connection = SimpleNamespace(
        what_if=lambda question: asked.append(question) or UsageList(by="user", since=0.0, until=1.0, rows=[])
    )
    call(tools, "what_if", connection, question={"cancel": named})
    assert asked == [{"cancel": named}]


def test_of_long_lists_the_first_are_answered_and_how_many_more_there_are(tools: ModuleType) -> None:
    hours = {"gpu_hours": 1.0, "cpu_hours": 1.0, "memory_gib_hours": 1.0}
    rows = [UsageRow(name=f"u{number}", model="", jobs=1, **hours) for number in range(tools.MOST_LISTED + 7)]
    found = call(
        tools, "usage", SimpleNamespace(usage=lambda *_: UsageList(by="user", since=0.0, until=1.0, rows=rows))
    )
    assert [row["name"] for row in found["rows"]] == [row.name for row in rows[: tools.MOST_LISTED]]
    assert found["rows_left_out"] == 7


def test_what_many_tasks_wrote_shares_the_room_and_the_end_of_each_is_there(tools: ModuleType) -> None:
    pieces = [SimpleNamespace(task=task, stream="stdout", data="x" * 20_000 + f"end {task}") for task in range(50)]
    asked: dict[str, Any] = {}
    connection = SimpleNamespace(
        find=lambda job: SimpleNamespace(id=job), logs=lambda _job, **more: asked.update(more) or pieces
    )
    output = call(tools, "logs", connection, job="a", last_lines=10**12)["output"]
    assert sum(map(len, output.values())) <= tools.MOST_LOG_CHARACTERS
    assert all(output[f"task {task} stdout"].endswith(f"end {task}") for task in range(50))
    assert asked["tail"] == tools.MOST_LOG_LINES


def test_who_may_see_a_job_and_not_its_file_is_told_the_rest(tools: ModuleType) -> None:
    def document(_job: str) -> dict[str, Any]:
        raise NotAllowedError("this token does not allow change-jobs, only read-jobs", "use another token")

    connection = SimpleNamespace(
        find=lambda job: job_info(id=job),
        events=lambda _job: [],
        document=document,
    )
    found = call(tools, "get_job", connection, job="train-abcde")
    assert found["job"]["id"] == "train-abcde"
    assert found["file_left_out"] == "this token does not allow change-jobs, only read-jobs; use another token"
    assert "file" not in found
