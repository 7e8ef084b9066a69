"""How many commands and connections into jobs one user may have open at once."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from auth_world import API, AuthWorld

from millpond.server.sessions.websockets import MOST_SESSIONS


@pytest.mark.parametrize("door", ["exec", "forward"])
def test_beyond_its_bound_a_user_is_told_so_and_others_are_let_in(world: AuthWorld, door: str) -> None:
    jobs = {user: world.submit(user, kind="dev") for user in ("max", "mia")}

    def answer(user: str) -> str:
        with world.client(user).websocket_connect(f"{API}/jobs/{jobs[user]}/{door}") as inside:
            return str(inside.receive_text())

    with ExitStack() as sessions:
        for _ in range(MOST_SESSIONS):
            sessions.enter_context(world.service.sessions.counted("max"))
        assert f"{MOST_SESSIONS} commands and forwarded connections of max are under way" in answer("max")
        assert "are under way" not in answer("mia")
    assert "are under way" not in answer("max")


def test_a_session_that_ends_makes_room_for_another(world: AuthWorld) -> None:
    job = world.submit("max", kind="dev")
    client, counts = world.client("max"), world.service.sessions
    with ExitStack() as sessions:
        for _ in range(MOST_SESSIONS - 1):
            sessions.enter_context(counts.counted("max"))
        for _ in range(2):
            with client.websocket_connect(f"{API}/jobs/{job}/forward") as inside:
                assert "are under way" not in inside.receive_text()
