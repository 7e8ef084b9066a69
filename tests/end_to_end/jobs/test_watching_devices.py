"""``pond top`` as a person sees it in a terminal of 80 columns, as scripts read it, and where there is no device."""

from __future__ import annotations

import json

import pytest
from real_pond import POND, Pond, until
from screen import Screen

pytestmark = pytest.mark.long


def submit(pond: Pond, name: str, fields: str) -> str:
    path = pond.state_dir.parent / f"{name}.yaml"
    path.write_text(f"name: {name}\nmemory: 64MiB\n{fields}\ncommand: sleep 600\n")
    done = pond("submit", str(path))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def devices(pond: Pond) -> list[dict]:
    return json.loads(pond.printed("top", "-o", "json"))["devices"]


def test_devices_and_who_shares_them_are_watched_live_and_told_once(running: Pond) -> None:
    part = "gpus: {cards: 1, memory: 4GiB, compute: 25%, limit: 50%}"
    first = submit(running, "a-name-that-is-rather-long", f"share_class: online\n{part}")
    second = submit(running, "other", f"share_class: backfill\n{part}")
    until(lambda: running.job(second)["state"] == "running")
    assert running("suspend", "--swap", second).returncode == 0

    def shown() -> dict[str, dict]:
        return {each["job"]: each | {"uuid": card["uuid"]} for card in devices(running) for each in card["slices"]}

    until(lambda: {job: each["state"] for job, each in shown().items()} == {first: "running", second: "swapped"})
    until(lambda: any(card["latest"] and card["latest"]["memory_used_mib"] for card in devices(running)))
    until(lambda: shown()[second]["swapped_mib"])
    assert (shown()[first]["share_class"], shown()[second]["swapped_mib"]) == ("online", 4096)
    assert {card["fake"] for card in devices(running)} == {True}
    once = running("top", "--once").stdout
    assert once.startswith("8 devices (8 fake), ")
    assert f"  {first}/0 " in once

    screen = Screen([POND, "top", "--watch", "0.5"], running.env, (24, 80))
    screen.shows("DEVICE / TASK")
    screen.shows("DEVICE / TASK")  # drawn again
    picture = screen.shows(r"(?s)(.*?)fake-2 3 ")[1].replace("\x1b[K", "")
    lines = picture.splitlines()
    assert max(map(len, lines)) <= 80
    [online] = [line for line in lines if " online " in line]
    assert online.endswith("running")
    assert f"{first[-7:]}/0" in online, "by the end of their ids jobs of one name are told apart"
    [backfill] = [line for line in lines if " backfill " in line]
    assert backfill.split()[-3:] == ["0/4", "4", "swapped"]
    screen.type("\x03")
    assert screen.exit_code() == 0


def test_without_devices_it_says_what_tells_why(pond: Pond) -> None:
    done = pond("up", "--detach")
    assert done.returncode == 0, done.stderr
    if devices(pond):
        pytest.skip("this machine has devices")
    assert pond("top").stdout.startswith("no devices on these machines; pond doctor")
    assert json.loads(pond.printed("top", "--once", "-o", "json")) == {"devices": []}
