"""What a process is given before it runs a command."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from millpond.node.task.child_setup import spawn_sandbox

FACTS = """
import json, os, signal, sys
print(json.dumps({
    "heard": sorted(signal.valid_signals() - signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "score": int(open("/proc/self/oom_score_adj").read()),
    "script": os.path.exists("/dev/fd/SCRIPT"),
    "given": sys.stdin.read(),
    "leads": os.getsid(0) == os.getpid(),
}))
"""


def own_score() -> str:
    return Path("/proc/self/oom_score_adj").read_text()


@pytest.mark.parametrize("given", ["", "typed"])
def test_what_makes_a_sandbox_is_deaf_the_first_victim_and_has_the_files_it_was_given(tmp_path, given) -> None:
    score = own_score()
    script, output = os.memfd_create("script"), os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    (tmp_path / "in").write_text(given)
    reads = os.open(tmp_path / "in", os.O_RDONLY) if given else None

    pid = spawn_sandbox(
        [sys.executable, "-c", FACTS.replace("SCRIPT", str(script))],
        {"PATH": os.defpath},
        (script,),
        (reads, output, output),
    )

    assert own_score() == score
    assert os.waitpid(pid, 0) == (pid, 0)
    facts = json.loads((tmp_path / "out").read_text())
    assert facts.pop("score") >= 500
    assert facts == {
        "heard": [signal.SIGKILL, signal.SIGCHLD, signal.SIGSTOP],
        "script": True,
        "given": given,
        "leads": True,
    }
    for file in (script, output, *filter(None, [reads])):
        os.close(file)
