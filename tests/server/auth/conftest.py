"""Servers with people, for tests of who may do what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from auth_world import AuthWorld
from jinja2 import Environment, FileSystemBytecodeCache
from oidc_world import OidcWorld

from millpond.forecasting.durations import Forecast
from millpond.model.workloads import Job
from millpond.scheduling.scheduler import Scheduler
from millpond.server.jobs.admission import plans
from millpond.server.jobs.what_if import play, service
from millpond.server.jobs.what_if.plan import plan
from millpond.server.web import rendering
from millpond.specs.api.jobs.reasons import PlanInfo
from oidc_provider import rules


@pytest.fixture(scope="module", autouse=True)
def _plans_made_here() -> Iterator[None]:
    """By the same code, but not each in a child process, which takes 0.5 s of CPU; `test_plans.py` has those, and
    `test_what_if.py`."""

    async def made_here(snapshot: str, job: Job, now: float, forecast: Forecast | None) -> PlanInfo:
        return plan(Scheduler.restore(json.loads(snapshot)), job, now, forecast)

    async def answered_here(module: str, request: str, within_s: float, remedy: str) -> bytes:
        return play.answer(json.loads(request)).encode()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "plan_apart", made_here)
        patch.setattr(service, "ask_child", answered_here)
        yield


@pytest.fixture(scope="session", autouse=True)
def _templates_are_compiled_once(folder_of_all: Path) -> Iterator[None]:
    """By whichever process of a run needs one first: to compile all takes seconds. The words of its language are in
    what it becomes, so each has a folder of its own."""
    make = rendering.environment_in

    @cache
    def with_compiled(language: str) -> Environment:
        folder = folder_of_all / f"templates-{language}"
        folder.mkdir(exist_ok=True)
        environment = make(language)
        environment.bytecode_cache = FileSystemBytecodeCache(str(folder))
        return environment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "environment_in", with_compiled)
        yield


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AuthWorld]:
    """A server of the test's own."""
    made = AuthWorld.populated(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthWorld]:
    """One server for all tests of a file that make what they change themselves."""
    made = AuthWorld.populated(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def _oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcWorld]:
    made = OidcWorld(tmp_path_factory.mktemp("oidc"))
    made.populate()
    yield made
    made.close()


@pytest.fixture
def oidc(_oidc: OidcWorld) -> OidcWorld:
    """A server with a provider that does everything right, some hours after the test before; people stay."""
    _oidc.provider.behave()
    _oidc.rules = rules()
    _oidc.clock.now += 7_200
    return _oidc
