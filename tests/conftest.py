"""Makes what lies beside this file, and the benchmarks, importable by all tests; a PostgreSQL and a
podman for those that ask."""

from __future__ import annotations

import gc
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

os.environ.setdefault("MILLPOND_CORE", "interpreted")  # whatever is compiled here for these sources
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.server.own_postgresql import own_postgresql, what_is_missing
from fake_driver.building import build as build_fake_driver
from fake_driver.building import what_is_missing as what_the_fake_driver_misses
from fake_driver.driver import FakeDriver
from real_containers import RealPodman, make_real_podman

# What is drawn is the same in every run, and no example may fail for its slowness: neither lots nor load decide.
# `pytest --hypothesis-profile=explore` looks for what nobody has drawn yet, among twice as many examples.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True, database=None, max_examples=50)
settings.load_profile("steady")


# Hours, and who may read new files, are the same whoever runs the tests, and wherever.
os.environ["TZ"] = "UTC"
time.tzset()
os.umask(0o022)

# What tests start gets the signals of a terminal, even where these tests were told to ignore them (nohup, or a shell's
# `&`): what is ignored stays ignored in children, what has a handler does not.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, lambda *_: None)

LONG_AS_A_WHOLE = re.compile(r"^pytestmark = [^\n]*\n?\s*pytest\.mark\.long\b", re.MULTILINE)
"""The mark stands in the first line, or first in a list of several."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected, a million objects, stays to the end: the garbage collector never looks at it.

    Nor does Hypothesis read all our sources for constants to try, five seconds of CPU for each process in a fresh
    clone, where what is drawn is to be the same in every run: which there are depends on what was imported.
    """
    if settings.default.derandomize:
        none = Constants()
        providers._get_local_constants = lambda: none
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where long tests are left out, what is long as a whole is not even imported, unless it was asked for by name."""
    if "not long" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    is_asked_for = any(str(Path(argument).absolute()).startswith(str(collection_path)) for argument in config.args)
    return True if not is_asked_for and LONG_AS_A_WHOLE.search(collection_path.read_text()) else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, object]:
    """In a fresh clone, to prepare the asserts of all modules takes longer than all else about collecting them, and
    what one process has prepared the others find: so each of several goes through them in an order of its own."""
    report = yield
    if isinstance(collector, pytest.Dir) and (worker := getattr(collector.config, "workerinput", None)):
        random.Random(worker["workerid"]).shuffle(report.result)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In whichever order several processes collected them, they run in that of their paths."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.parts)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Kernels are interpreted in quick tests and in what these, or the fixtures of their modules, start: to compile
    them takes a minute of CPU in a fresh clone."""
    if item.get_closest_marker("long") is None:
        os.environ["NUMBA_DISABLE_JIT"] = "1"
    else:
        os.environ.pop("NUMBA_DISABLE_JIT", None)


@pytest.fixture(scope="session", autouse=True)
def _usual_terminal() -> Iterator[None]:
    """No test is shown the window of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setenv("TERM", "xterm")
        yield


@pytest.fixture
def put_into_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Has the clock of this machine show the hours of a time zone, by its name, until the test ends."""

    def put(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield put
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[str]:
    """One for all tests of a process; where its programs or the driver are missing, they are skipped."""
    if missing := what_is_missing():
        pytest.skip(missing)
    with own_postgresql(waits_for_disk=False) as url:
        yield url


@pytest.fixture
def postgresql_url(_postgresql: str) -> str:
    """A PostgreSQL database with nothing in it."""
    engine = sa.create_engine(_postgresql)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
    return _postgresql


@pytest.fixture(scope="session")
def _real_podman() -> Iterator[RealPodman | str]:
    # Not below pytest's own folder: podman's sockets lie deep, and the kernel allows them 108 bytes.
    with tempfile.TemporaryDirectory(prefix="podman-", ignore_cleanup_errors=True) as folder:
        made = make_real_podman(Path(folder))
        yield made
        if isinstance(made, RealPodman):
            made.remove_everything()


@pytest.fixture
def real_podman(_real_podman: RealPodman | str, monkeypatch: pytest.MonkeyPatch) -> RealPodman:
    """Podman with one image, ``busy:1``, for this process and those it starts; skips where there is none that works."""
    if isinstance(_real_podman, str):
        pytest.skip(_real_podman)
    _real_podman.become_ours(monkeypatch)
    return _real_podman


@pytest.fixture(scope="session")
def _fake_driver_libraries() -> Path:
    if missing := what_the_fake_driver_misses():
        pytest.skip(missing)
    return build_fake_driver()


@pytest.fixture
def fake_driver(_fake_driver_libraries: Path, tmp_path: Path) -> FakeDriver:
    """A pretended NVIDIA driver with one card of 4 GiB; see tests/fake_driver/README.md."""
    return FakeDriver(tmp_path)
