"""Search through whole logs: the nearest line in either direction, in bounded time, over several tasks."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_infos import job_info
from millpond.model.errors import InvalidInputError, NotFoundError
from millpond.node.task.records import TaskFiles, TaskId
from millpond.server.views import log_search
from millpond.server.views.log_search import ERROR_LINE, LONGEST_SEARCH_S, LogPlace, LogSearch, LogSearchRequest
from millpond.specs.api.jobs.jobs import JobInfo, TaskInfo
from millpond.specs.api.jobs.logs import LogSearchInfo


class OneJob:
    """Knows a job whose tasks wrote these logs in its second run, and searches them; time passes at each look."""

    def __init__(self, folder: Path, *logs: bytes | None, look_s: float = 0.0) -> None:
        tasks = [TaskInfo(task=number, role="worker", state="running") for number in range(len(logs))]
        self.info = job_info(id="j", attempt=2, tasks=tasks)
        for task, log in enumerate(logs):
            if log is not None:
                path = TaskFiles.of(folder, TaskId("j", 2, task)).log
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(log)
        self.now, self.look_s = 0.0, look_s
        self.search = LogSearch(folder, self, self._clock)  # type: ignore[arg-type]

    def look_at_one(self, job: str) -> JobInfo:
        """The job."""
        assert job == "j"
        return self.info

    def find(self, request: LogSearchRequest) -> LogSearchInfo:
        return self.search.find("j", request)

    def all(
        self, text: str = "", *, errors: bool = False, backwards: bool = False, task: int | None = None
    ) -> list[str]:
        """All lines that are found, one after the other, as ``task:line``."""
        found: list[str] = []
        at: LogPlace | None = None
        while True:
            answer = self.find(LogSearchRequest(text, errors, task, None, backwards, at))
            if answer.hit is not None:
                found.append(f"{answer.hit.task}:{answer.hit.line}")
            elif answer.over:
                return found
            assert LogPlace(answer.at_task, answer.at_offset) != at, "it does not come on"
            at = LogPlace(answer.at_task, answer.at_offset)

    def _clock(self) -> float:
        self.now += self.look_s
        return self.now


def test_lines_with_a_text_are_found_in_either_case_and_direction(tmp_path: Path) -> None:
    job = OneJob(tmp_path, b"Loss 1\nx\nloss 2\n\nthe last LOSS")
    assert job.all("loss") == ["0:Loss 1", "0:loss 2", "0:the last LOSS"]
    assert job.all("loss", backwards=True) == ["0:the last LOSS", "0:loss 2", "0:Loss 1"]
    found = job.find(LogSearchRequest("loss 2"))
    assert found.hit is not None
    assert (found.attempt, found.hit.offset, found.hit.next_offset) == (2, 9, 16)


def test_a_search_goes_on_from_a_place_in_both_directions(tmp_path: Path) -> None:
    job = OneJob(tmp_path, b"a1\na2\na3\n")
    middle = LogPlace(0, 3)
    ahead, back = (job.find(LogSearchRequest("a", backwards=each, at=middle)).hit for each in (False, True))
    assert ahead is not None
    assert back is not None
    assert (ahead.line, back.line) == ("a2", "a1")


def test_lines_that_look_like_errors_are_found_and_words_that_only_contain_one_are_not(tmp_path: Path) -> None:
    log = (
        b"finance\nloss: nan\nterrors\nRuntimeError: odd\nCUDA out of memory.\nwas killed\nunfailed\n"
        b"\x1b[31mFatal\x1b[0m: end\n"
    )
    lines = [
        "0:loss: nan",
        "0:RuntimeError: odd",
        "0:CUDA out of memory.",
        "0:was killed",
        "0:\x1b[31mFatal\x1b[0m: end",
    ]
    job = OneJob(tmp_path, log)
    assert job.all(errors=True) == lines
    assert job.all(errors=True, backwards=True) == lines[::-1]
    assert job.all("odd", errors=True) == ["0:RuntimeError: odd"]


def test_a_text_is_found_where_colours_break_it(tmp_path: Path) -> None:
    job = OneJob(tmp_path, b"plain\nloss: \x1b[1m0.5\x1b[0m\n")
    assert job.all("loss: 0.5") == ["0:loss: \x1b[1m0.5\x1b[0m"]


def test_tasks_are_searched_one_after_the_other_and_one_without_a_log_is_passed(tmp_path: Path) -> None:
    job = OneJob(tmp_path, b"error 0\n", None, b"", b"error 3a\nerror 3b\n")
    assert job.all("error") == ["0:error 0", "3:error 3a", "3:error 3b"]
    assert job.all("error", backwards=True) == ["3:error 3b", "3:error 3a", "0:error 0"]
    assert job.all("error", task=3) == ["3:error 3a", "3:error 3b"]
    assert job.all("error", task=1) == []


def test_a_request_reads_for_a_bounded_time_and_the_next_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "BLOCK_BYTES", 1_000)
    job = OneJob(tmp_path, b"." * 99 + b"\n" + b"line\n" * 4_000 + b"the end\n", look_s=LONGEST_SEARCH_S / 10)
    first = job.find(LogSearchRequest("the end"))
    assert (first.hit, first.over) == (None, False)
    assert 9_000 <= first.at_offset <= 12_000
    assert job.all("the end") == ["0:the end"]
    assert job.all("...", backwards=True) == ["0:" + "." * 99]


def test_of_a_long_line_only_its_beginning_is_given_and_its_end_is_searched(tmp_path: Path) -> None:
    job = OneJob(tmp_path, b"x" * 5_000 + b"end\n")
    assert job.all("end") == ["0:" + "x" * 1_000]


_LOG = st.lists(
    st.sampled_from([b"error", b"nan", b"\x1b[1m", b"a", b" ", b"\n", b"\n", b"xxxxxxxx"]), max_size=60
).map(b"".join)


@given(st.lists(_LOG, min_size=1, max_size=3), st.sampled_from(["", "a", "error"]), st.booleans())
def test_whatever_is_written_the_lines_found_are_those_that_one_would_find_by_looking_at_each(
    logs: Sequence[bytes], text: str, backwards: bool
) -> None:
    expected = []
    for task, log in enumerate(logs):
        for line in log.decode().split("\n"):
            plain = re.sub(r"\x1b\[1m", "", line)
            if text in plain and (text or re.search(ERROR_LINE, plain)):
                expected.append(f"{task}:{line}")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_search, "BLOCK_BYTES", max(len(line) for log in logs for line in log.split(b"\n")) + 2)
        found = OneJob(Path(folder), *logs).all(text, errors=not text, backwards=backwards)
    assert found == (expected[::-1] if backwards else expected)


def test_what_cannot_be_searched_is_refused(tmp_path: Path) -> None:
    job = OneJob(tmp_path, b"error\n", b"")
    for request in (LogSearchRequest(), LogSearchRequest("a\nb"), LogSearchRequest("a", task=0, at=LogPlace(1, 0))):
        with pytest.raises(InvalidInputError):
            job.find(request)
    for request in (LogSearchRequest("a", task=2), LogSearchRequest("a", attempt=3)):
        with pytest.raises(NotFoundError):
            job.find(request)
