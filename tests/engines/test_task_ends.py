"""How tasks ended, in words."""

from __future__ import annotations

import pytest

from millpond.engines.task_ends import exit_text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "it left no exit code"),
        (3, "exit code 3"),
        (126, "exit code 126: a command could not be executed"),
        (127, "exit code 127: a command was not found"),
        (135, "exit code 135: ended by SIGBUS, as where /dev/shm is full"),
        (137, "exit code 137: ended by SIGKILL"),
        (163, "exit code 163: ended by signal 35"),
        (255, "exit code 255"),
    ],
)
def test_an_exit_code_is_told_with_what_it_stands_for(code: int | None, text: str) -> None:
    assert exit_text(code) == text


def test_each_code_that_a_program_may_leave_has_words() -> None:
    assert all(exit_text(code).startswith(f"exit code {code}") for code in range(256))
