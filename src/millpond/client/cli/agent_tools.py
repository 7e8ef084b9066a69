"""What ``pond mcp`` offers to an agent: the questions and commands that people have, with the same texts and rights.

The protocol is the Model Context Protocol (https://modelcontextprotocol.io), spoken by its own package.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from typing import Any, Final, ParamSpec

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from millpond.client.sdk import Client
from millpond.model.errors import MillpondError, NotAllowedError
from millpond.specs.api.base import ErrorBody, ErrorInfo
from millpond.specs.api.codec import to_plain
from millpond.specs.job.job_spec import read_jobs

P = ParamSpec("P")
Answer = dict[str, Any]

INSTRUCTIONS: Final = (
    "Millpond schedules jobs on a pool of GPU machines. Ask `why` before guessing why a job waits: it has the "
    "scheduler's own reason, the numbers, a remedy and an estimate of the start. `plan` says what would become of a "
    "job without submitting it. Times are seconds since 1970; 1000 milli are one card or one CPU."
)
MOST_LISTED: Final = 200
MOST_LOG_CHARACTERS: Final = 50_000
"""Of all tasks together; of each at least so many that its last lines are among them."""
LEAST_LOG_CHARACTERS: Final = 500
MOST_LOG_LINES: Final = 10_000


def agent_server(connect: Callable[[], Client], *, may_write: bool) -> MCPServer[Any]:
    """A server of that protocol.

    Args:
        connect: a connection to Millpond's server for one call.
        may_write: whether jobs may be submitted and changed, too.
    """
    tools = AgentTools(connect)
    reads = (
        *(tools.list_jobs, tools.get_job, tools.why, tools.logs, tools.plan, tools.list_queues, tools.get_queue),
        *(tools.pool, tools.what_if, tools.usage),
    )
    offered = [_tool(read, ToolAnnotations(read_only_hint=True, open_world_hint=False)) for read in reads]
    ends_work: dict[Callable[..., Answer], bool] = {
        **dict.fromkeys((tools.submit, tools.suspend, tools.resume, tools.change_priority), False),
        **dict.fromkeys((tools.requeue, tools.stop), True),
    }
    for writes, ends in ends_work.items() if may_write else ():
        notes = ToolAnnotations(read_only_hint=False, destructive_hint=ends, open_world_hint=False)
        offered.append(_tool(writes, notes))
    version = metadata.version("millpond")
    return MCPServer("millpond", instructions=INSTRUCTIONS, version=version, tools=offered, log_level="WARNING")


def _tool(function: Callable[..., Answer], notes: ToolAnnotations) -> Tool:
    """A tool that refuses arguments which it does not have: a filter that is misspelt would filter nothing."""
    tool = Tool.from_function(_told(function), annotations=notes)
    taken = tool.fn_metadata.arg_model
    taken.model_config["extra"] = "forbid"
    taken.model_rebuild(force=True)
    tool.parameters = taken.model_json_schema(by_alias=True)
    return tool


def _told(tool: Callable[P, Answer]) -> Callable[P, Answer | CallToolResult]:
    """A tool whose errors reach the agent with cause, remedy and code, and whose answers an agent can read."""

    @functools.wraps(tool)
    def told(*args: P.args, **kwargs: P.kwargs) -> Answer | CallToolResult:
        try:
            return _cut(tool(*args, **kwargs))
        except MillpondError as error:
            body = ErrorInfo(error=ErrorBody(cause=error.cause, code=error.code, remedy=error.remedy))
            text = TextContent(text=str(error))
            return CallToolResult(content=[text], structured_content=_plain(body), is_error=True)

    return told


@dataclass(frozen=True, slots=True)
class AgentTools:
    """The tools. Their docstrings are what an agent reads; jobs are named as for ``pond``, by id, name or beginning."""

    connect: Callable[[], Client]

    def list_jobs(
        self, state: str = "", user: str = "", queue: str = "", name: str = "", ended: bool = False, limit: int = 50
    ) -> Answer:
        """List jobs, the newest first: those that wait or run, or with `ended` all. Each filter may be left out.

        `state` is queued, starting, running, suspended, succeeded, failed or cancelled; in `name`, * stands for any
        letters and ? for one.
        """
        only = {"user": user, "queue": queue, "name": name}
        with self.connect() as client:
            found = _plain(client.jobs(ended=ended, limit=min(limit, MOST_LISTED), state=state, **only))
        return {"jobs": [], **found}

    def get_job(self, job: str) -> Answer:
        """A job's state, tasks, attempts and places, what happened to it, and the file it was submitted by.

        Without the right to change the job, `file_left_out` says why the file is not there.
        """
        with self.connect() as client:
            found = client.find(job)
            events = [_plain(event) for event in client.events(found.id)[-MOST_LISTED:]]
            try:
                file: Answer = {"file": client.document(found.id)}
            except NotAllowedError as error:
                file = {"file_left_out": str(error)}
            return {"job": _plain(found), **file, "events": events}

    def why(self, job: str) -> Answer:
        """Why a job waits or runs, with the numbers, what would help, and when it should start."""
        with self.connect() as client:
            return _plain(client.why(client.find(job).id))

    def logs(self, job: str, task: int | None = None, attempt: int | None = None, last_lines: int = 100) -> Answer:
        """The last lines that a job's tasks wrote, by task."""
        with self.connect() as client:
            texts: dict[str, str] = {}
            tail = min(last_lines, MOST_LOG_LINES)
            for piece in client.logs(client.find(job).id, task=task, attempt=attempt, tail=tail):
                if piece.data:
                    key = f"task {piece.task} {piece.stream}"
                    texts[key] = (texts.get(key, "") + piece.data)[-MOST_LOG_CHARACTERS:]
            most = max(MOST_LOG_CHARACTERS // max(len(texts), 1), LEAST_LOG_CHARACTERS)
            return {"output": {key: text[-most:] for key, text in texts.items()}}

    def plan(self, job_file: str) -> Answer:
        """What would become of a job if it were submitted now: where, when, what it displaces. Nothing is submitted.

        `job_file` is a job file in YAML, such as "command: python train.py\\ngpus: 2\\ncpus: 8\\nmemory: 32GiB".
        """
        with self.connect() as client:
            return {"plans": [_plain(client.plan(spec.document)) for spec in read_jobs(job_file)]}

    def list_queues(self) -> Answer:
        """All queues with what they are guaranteed, use, borrow, lend and wait for."""
        with self.connect() as client:
            return {"queues": [_plain(queue) for queue in client.queues()]}

    def get_queue(self, name: str) -> Answer:
        """One queue with its settings, its users, who borrows from it, its largest waiting job and its cells."""
        with self.connect() as client:
            return _plain(client.queue(name))

    def pool(self) -> Answer:
        """The pool at a glance, which jobs start next, which hold idle cards, and which nodes are closed, and why.

        Of each model of card `whole` is how many are free as a whole and `largest_block` how many of these one node
        has; `usable_milli` counts free parts too. `broken` and `closed` cards, and those that others than Millpond use
        (`elsewhere`), are not among the free.
        """
        with self.connect() as client:
            overview = client.overview()
            nodes = client.nodes() if overview.closed_nodes else []
        closed = {node.name: node.unschedulable_reason for node in nodes if not node.schedulable}
        return {**_plain(overview), "closed": closed}

    def what_if(self, question: dict[str, Any]) -> Answer:
        """What changes would do to everybody's jobs; nothing is changed. It may take a minute.

        `question` has some of: `set` (list of {queue, field, value}), `add_nodes` (such as ["2x8:A100"]),
        `remove_nodes`, `ordering`, `placement`, `preempt`, `reserve`, `cancel` (jobs), `submit` (job files as objects),
        `past` ({since, until}: play the recorded past instead), `horizon_s`.
        """
        with self.connect() as client:
            named = question.get("cancel")  # of the past, jobs are named as they were there
            if isinstance(named, list) and all(isinstance(job, str) for job in named) and not question.get("past"):
                question = question | {"cancel": [client.find(job).id for job in named]}
            return _plain(client.what_if(question))

    def usage(self, by: str = "user", since: float = 0.0, until: float | None = None) -> Answer:
        """Who held how much between two instants, and what it cost.

        `by` is user, group, queue, model, kind, job or month.
        """
        with self.connect() as client:
            return _plain(client.usage(by, since, until))

    def submit(self, job_file: str) -> Answer:
        """Submit the jobs of a job file in YAML, all or none. Look at `plan` first."""
        with self.connect() as client:
            specs = read_jobs(job_file)
            jobs = client.submit_together([spec.document for spec in specs])
            return {"jobs": [_plain(job) for job in jobs]}

    def stop(self, job: str) -> Answer:
        """End a job. It gets its notice and grace; what it has not saved is lost."""
        with self.connect() as client:
            return _plain(client.stop(client.find(job).id))

    def requeue(self, job: str) -> Answer:
        """End a job's run and let it start anew; what it has not saved is lost. One that is over is submitted again."""
        with self.connect() as client:
            return _plain(client.requeue(client.find(job).id))

    def change_priority(self, job: str, priority: str) -> Answer:
        """Give a job the class of priority low, normal, high or critical, if its queue allows that."""
        with self.connect() as client:
            return _plain(client.set_priority(client.find(job).id, priority))

    def suspend(self, job: str) -> Answer:
        """Halt a job where it is; `resume` lets it go on."""
        with self.connect() as client:
            return _plain(client.suspend(client.find(job).id))

    def resume(self, job: str) -> Answer:
        """Let a suspended job go on when there is room for it."""
        with self.connect() as client:
            return _plain(client.resume(client.find(job).id))


def _plain(body: Any) -> Answer:
    """A body of the API, without what says nothing: an agent reads all of it."""
    found = _said(to_plain(body))
    assert isinstance(found, dict)
    return found


def _said(value: Any) -> Any:
    if isinstance(value, Mapping):
        parts = {name: _said(each) for name, each in value.items()}
        return {name: each for name, each in parts.items() if each not in (None, "", [], {})}
    return [_said(each) for each in value] if isinstance(value, list) else value


def _cut(answer: Answer) -> Answer:
    """An answer in which no list, and no table, is longer than an agent reads; beside it, how much was left out."""
    found: Answer = {}
    for name, each in answer.items():
        if isinstance(each, dict):
            found[name] = _cut(dict(islice(each.items(), MOST_LISTED)))
        elif isinstance(each, list):
            found[name] = [_cut(one) if isinstance(one, dict) else one for one in each[:MOST_LISTED]]
        else:
            found[name] = each
        if isinstance(each, dict | list) and len(each) > MOST_LISTED:
            found[f"{name}_left_out"] = len(each) - MOST_LISTED
    return found
