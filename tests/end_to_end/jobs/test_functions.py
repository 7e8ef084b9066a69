"""Python functions as real jobs: values, exceptions, gangs, metrics and notices come back."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from pathlib import Path

import pytest
from real_pond import PATIENCE_S, Pond, until

import millpond
import millpond.job as place
from millpond.client.sdk.functions.outcomes import RemoteTracebackError
from millpond.model.errors import InvalidInputError

pytestmark = pytest.mark.long


@pytest.fixture
def pool(shared: Pond, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pond:
    for name in ("MILLPOND_URL", "MILLPOND_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MILLPOND_STATE", str(shared.state_dir))
    monkeypatch.chdir(tmp_path)
    return shared


def test_a_function_returns_from_the_pool_what_it_returns_here(pool: Pond) -> None:
    seed = {"a": 1}

    def work(factor: int) -> dict[str, int]:
        cards = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
        return {name: value * factor for name, value in seed.items()} | {"cards": len(cards), "inside": place.inside()}

    job = millpond.submit(work, 3, gpus=1, name="triple")
    assert job.result(timeout=PATIENCE_S) == {"a": 3, "cards": 1, "inside": 1}
    assert job.id.startswith("triple-")
    assert job.state == "succeeded"
    assert millpond.attach(job.id).result() == job.result() == pickle.loads(pickle.dumps(job)).result()


def test_an_exception_comes_back_as_itself_with_where_it_was_raised(pool: Pond) -> None:
    def fails() -> None:
        raise KeyError("over there")

    job = millpond.submit(fails)
    with pytest.raises(KeyError, match="over there") as caught:
        job.result(timeout=PATIENCE_S)
    assert isinstance(caught.value.__cause__, RemoteTracebackError)
    assert "in fails" in str(caught.value.__cause__)
    assert "KeyError" in job.logs("stderr")
    assert "KeyError" not in job.logs("stdout")
    assert job.state == "failed"


def test_what_cannot_be_sent_back_says_what_to_do(pool: Pond) -> None:
    job = millpond.submit(threading.Lock)
    with pytest.raises(InvalidInputError, match=r"cannot be sent .*output_dir"):
        job.result(timeout=PATIENCE_S)


def test_a_job_that_ends_without_a_result_is_an_error_with_its_last_words(pool: Pond) -> None:
    def leaves() -> None:
        print("goodbye", flush=True)
        os._exit(7)

    with pytest.raises(millpond.JobFailedError, match=r"failed: exit code 7\ngoodbye"):
        millpond.submit(leaves).result(timeout=PATIENCE_S)


def test_a_gang_map_and_asynchronous_waiting(pool: Pond) -> None:
    def standing() -> tuple[int, int]:
        return millpond.job.rank(), millpond.job.world_size()

    assert millpond.submit(standing, tasks=2).results(timeout=PATIENCE_S) == [(0, 2), (1, 2)]
    squares = millpond.map(lambda x: x * x, [1, 2, 3])

    async def gathered() -> tuple[int, list[int]]:
        return await squares[1], list(await squares.aresults())

    assert asyncio.run(gathered()) == (4, [1, 4, 9])


def test_a_map_over_many_items_is_one_array(pool: Pond) -> None:
    def inverse(number: int) -> tuple[float, int | None]:
        return 1 / number, place.array_index()

    jobs = millpond.map(inverse, [1, 2, 4, 0, 5, 8, 10, 16], name="inverse", cpus="100m")
    array, _, index = jobs[2].id.partition(".")
    assert index == "2"
    assert jobs[2].result(timeout=PATIENCE_S) == (0.25, 2)
    assert asyncio.run(jobs[7].aresult(timeout=PATIENCE_S)) == (0.0625, 7)
    with pytest.raises(ZeroDivisionError):
        jobs.results(timeout=PATIENCE_S)
    until(lambda: pool.job(array)["state"] == "failed")
    assert pool.job(array)["array"]["succeeded"] == 7
    jobs.stop()  # which has nothing left to stop


def test_a_sent_directory_brings_its_modules(pool: Pond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "own_module.py"
    module.write_text("def words(): return 'as sent'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from own_module import words  # type: ignore[import-not-found]

    job = millpond.submit(words, ship=True)
    module.write_text("def words(): return 'changed since'\n")  # longer: bytecode kept of the same second tells by that
    assert job.result(timeout=PATIENCE_S) == "as sent"
    assert millpond.submit(words).result(timeout=PATIENCE_S) == "changed since"


def test_metrics_are_reported_and_a_notice_is_heeded(pool: Pond) -> None:
    def trains() -> None:
        millpond.job.on_checkpoint(lambda: print("saved", flush=True))
        for step in range(60_000):  # until it is stopped
            millpond.job.report(loss=1 / (step + 1), step=step)
            time.sleep(0.05)

    job = millpond.submit(trains, checkpoint={"signal": "SIGUSR1", "grace": "120s"})
    until(lambda: job.state == "running" and pool("metrics", job.id).stdout)
    assert "loss" in pool("metrics", job.id).stdout
    job.stop()
    assert job.wait(timeout=PATIENCE_S) == "cancelled"
    assert job.logs() == "saved\n"
    with pytest.raises(millpond.JobFailedError, match="was cancelled"):
        job.result()
