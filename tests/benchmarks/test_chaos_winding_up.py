"""How the chaos benchmark ends: a submission that is accepted after the last kill is stopped like any other."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager

from benchmarks.server import chaos
from benchmarks.server import chaos_jobs as jobs

ENDLESS = next(kind for kind in jobs.KINDS if kind.stopped)


class LateAnswer:
    """A server whose answer to the last submission comes while everything else is being stopped."""

    def __init__(self, stream: chaos.Stream) -> None:
        self.stream = stream
        self.told: list[str] = []

    @contextmanager
    def client(self, timeout_s):
        yield self

    def stop(self, job_id: str) -> None:
        self.told.append(job_id)
        self.stream.kinds["late"], self.stream.accepted["late"] = ENDLESS, "job-late"
        self.stream.all_in.set()


def test_what_is_accepted_while_everything_is_being_stopped_is_stopped_too(tmp_path):
    stream = chaos.Stream(tmp_path, random.Random(1))
    stream.kinds["early"], stream.accepted["early"] = ENDLESS, "job-early"
    stream.over.set()
    pond = LateAnswer(stream)
    chaos._stop(pond, stream)
    assert pond.told == ["job-early", "job-late"]


def test_all_is_in_only_when_submitting_has_ended(tmp_path):
    stream = chaos.Stream(tmp_path, random.Random(1))
    seen = []

    def submit():
        stream.over.wait()
        seen.append(stream.all_in.is_set())

    submitting = threading.Thread(target=submit)
    submitting.start()
    chaos._wind_up(stream, submitting)
    assert seen == [False]
    assert stream.all_in.is_set()
