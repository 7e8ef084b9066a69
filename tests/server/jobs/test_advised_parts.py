"""A part of a card is advised where cards are shared out, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_world import JOBS, TOKEN, RunningServer
from one_loop import client_of
from server_world import Clock, World


@pytest.mark.parametrize("unshared", ["", "no node has an agent that gives out parts of cards"])
def test_a_job_is_advised_to_take_a_part_of_a_card_where_one_is_to_be_had(unshared: str, tmp_path: Path) -> None:
    server = RunningServer(tmp_path, "ada", TOKEN, Clock(), World(), unshared={"default": unshared}.__getitem__)
    client = client_of(server.app, headers={"Authorization": f"Bearer {TOKEN}"})
    whole = {"command": "work", "gpus": 1}
    try:
        for gpus in (3, 0.5):
            assert client.post(JOBS, json={**whole, "gpus": gpus}).status_code == 201
        planned = client.post(f"{JOBS}/plan", json=whole).json()["reason"]["remedy"]
        waiting = client.post(JOBS, json=whole).json()["id"]
        server.settled()
        said = client.get(f"{JOBS}/{waiting}/why").json()["remedy"]
    finally:
        server.close()
    advice = {"change": "ask for 0.5 GPUs a task instead of 1", "field": "gpus", "value": "0.5"}
    assert planned == said == (None if unshared else advice)
