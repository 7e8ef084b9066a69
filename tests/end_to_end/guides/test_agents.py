"""A client of the Model Context Protocol asks ``pond mcp`` about a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from real_pond import PATIENCE_S, POND, Pond, until

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.long
READING = {"list_jobs", "get_job", "why", "logs", "plan", "list_queues", "get_queue", "pool", "what_if", "usage"}
WRITING = {"submit", "stop", "suspend", "resume", "requeue", "change_priority"}
HELLO = "name: hello\ncommand: echo hello from an agent\ncpus: 1\nmemory: 64MiB\n"


def with_agent(pond: Pond, act: Callable[[Client], Awaitable[Any]], *options: str) -> Any:
    """What comes of something that an agent does."""
    # Here, as most processes that collect this file run no test of it, and this takes 0.7 s of CPU.
    from mcp import Client, StdioServerParameters

    async def session() -> Any:
        program = StdioServerParameters(command=str(POND), args=["mcp", *options], env=pond.env)
        async with Client(program) as client:
            return await act(client)

    return asyncio.run(asyncio.wait_for(session(), PATIENCE_S))


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return answer.structured_content


def test_an_agent_reads_everything_and_changes_nothing_unless_it_may(shared: Pond) -> None:
    assert shared("run", "--name", "first", "--", "echo one; echo two").returncode == 0
    assert shared("run", "--detach", "--gpus", "4", "--name", "long", "--", "sleep 600").returncode == 0
    assert shared("run", "--detach", "--gpus", "4", "--tasks", "2", "--name", "wide", "--", "true").returncode == 0

    async def read(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == READING
        assert {job["name"] for job in (await ask(client, "list_jobs"))["jobs"]} == {"long", "wide"}
        assert [job["name"] for job in (await ask(client, "list_jobs", ended=True, state="succeeded"))["jobs"]] == [
            "first"
        ]
        assert (await ask(client, "get_job", job="first"))["job"]["state"] == "succeeded"
        assert (await ask(client, "logs", job="first", last_lines=1)) == {"output": {"task 0 stdout": "two\n"}}
        assert "2 tasks" in (await ask(client, "why", job="wide"))["summary"]
        assert (await ask(client, "plan", job_file=HELLO))["plans"][0]["starts_now"] is True
        assert "default" in {queue["name"] for queue in (await ask(client, "list_queues"))["queues"]}
        assert (await ask(client, "get_queue", name="default"))["queue"]["name"] == "default"
        assert room(await ask(client, "pool")) == (8, 4, 4)
        assert await ask(client, "what_if", question={"cancel": ["long"]})
        assert (await ask(client, "usage"))["rows"]
        refused = await client.call_tool("submit", {"job_file": HELLO})
        assert refused.is_error

    with_agent(shared, read)
    assert shared("stop", "long", "wide").returncode == 0
    until(shared.is_idle)


def room(pool: dict[str, Any]) -> tuple[int, int, int]:
    (model,) = pool["models"]
    return model["cards"], model["whole"], model["largest_block"]


def test_an_agent_is_told_of_no_card_that_takes_no_work_and_why_a_node_does_not(shared: Pond) -> None:
    one, other = (node["name"] for node in json.loads(shared.printed("nodes", "-o", "json"))["nodes"])

    async def read(client: Client) -> None:
        pool = await ask(client, "pool")
        assert room(pool) == (8, 3, 3)
        assert pool["closed"] == {other: "new disks"}

    assert shared("nodes", "cordon", f"{one}/0").returncode == 0
    assert shared("nodes", "cordon", other, "--reason", "new disks").returncode == 0
    with_agent(shared, read)
    assert shared("nodes", "uncordon", f"{one}/0").returncode == 0
    assert shared("nodes", "uncordon", other).returncode == 0


async def has_begun(client: Client, attempt: int) -> None:
    while True:
        job = (await ask(client, "get_job", job="nap"))["job"]
        if (job["state"], job["attempt"]) == ("running", attempt):
            return
        await asyncio.sleep(0.05)


def test_an_agent_that_may_submits_and_stops_and_is_told_what_is_wrong(shared: Pond) -> None:
    async def write(client: Client) -> None:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert set(tools) == READING | WRITING
        assert [name for name, notes in tools.items() if notes and notes.destructive_hint] == ["requeue", "stop"]
        wrong = await client.call_tool("submit", {"job_file": "command: true\ngpsu: 1\n"})
        assert wrong.is_error
        assert "2:1" in str(wrong.content)
        assert "gpus" in str(wrong.content)
        absent = await client.call_tool("stop", {"job": "never-was"})
        assert absent.structured_content["error"]["code"] == "not-found"
        (job,) = (await ask(client, "submit", job_file="command: sleep 600\nname: nap\n"))["jobs"]
        await has_begun(client, attempt=1)
        raised = await ask(client, "change_priority", job="nap", priority="high")
        assert (raised["id"], raised["priority"]) == (job["id"], "high")
        assert (await ask(client, "requeue", job="nap"))["id"] == job["id"]
        await has_begun(client, attempt=2)
        assert (await ask(client, "suspend", job="nap"))["id"] == job["id"]
        assert (await ask(client, "resume", job="nap"))["id"] == job["id"]
        assert (await ask(client, "stop", job=job["id"]))["id"] == job["id"]

    with_agent(shared, write, "--write")
    shared("wait", "nap")


def test_an_agent_without_a_server_is_told(pond: Pond) -> None:
    done = pond("mcp")
    assert done.returncode == 2
    assert "no Millpond server is running" in done.stderr
