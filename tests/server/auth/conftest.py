"""Servers with people, for tests of who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from auth_world import AuthWorld
from oidc_world import OidcWorld

from oidc_provider import rules


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AuthWorld]:
    """A server of the test's own."""
    made = AuthWorld(tmp_path).populate()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthWorld]:
    """One server for all tests of a file that make what they change themselves."""
    made = AuthWorld(tmp_path_factory.mktemp("shared")).populate()
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
