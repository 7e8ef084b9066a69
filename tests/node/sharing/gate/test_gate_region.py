"""The agent's side of a slice: its files are what it wrote, whatever the task does to them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.decisions import Grant
from millpond.model.errors import UnavailableError
from millpond.model.sharing import ShareClass
from millpond.node.sharing.backend import EnforcementRequest
from millpond.node.sharing.gate import building, layout
from millpond.node.sharing.gate.region import GateRegion, GateSettings
from millpond.node.sharing.gate_enforcer import CONTEXT_MIB, GateEnforcer, settings_of
from millpond.node.task.records import TaskId

SETTINGS = GateSettings(
    cap_mib=4096,
    guarantee_milli=250,
    limit_milli=800,
    share_class=ShareClass.BACKFILL,
    context_mib=500,
    in_flight_us=400,
    floor_milli=50,
    refuse_managed=True,
    uuid="GPU-1",
    uncounted_bytes=3 * 2**20 + 1,
)


def member_of(folder: Path) -> int:
    return layout.SliceControl.from_buffer_copy((folder / "control").read_bytes()).member


def present(card_folder: Path) -> list[int]:
    card = layout.Card.from_buffer_copy((card_folder / "card").read_bytes())
    return [member.present for member in card.member if member.present]


def test_an_agent_that_starts_anew_finds_the_slice_as_it_was(tmp_path: Path) -> None:
    first = GateRegion.create(tmp_path / "one", tmp_path / "card", SETTINGS)
    first.set(paused=True)
    first.detach()
    found = GateRegion.open(tmp_path / "one", tmp_path)
    assert found is not None
    assert found.settings == SETTINGS.__class__(**{**_fields(SETTINGS), "paused": True})
    assert found.verify()
    found.set(paused=False)
    assert found.verify()


def _fields(settings: GateSettings) -> dict[str, object]:
    return {name: getattr(settings, name) for name in settings.__slots__}


def test_there_is_nothing_to_find_where_nothing_was_made(tmp_path: Path) -> None:
    assert GateRegion.open(tmp_path / "one", tmp_path) is None


@given(data=st.binary(max_size=400), at=st.integers(0, 200))
def test_control_words_that_a_task_changed_are_noticed_and_put_right(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int
) -> None:
    folder = tmp_path_factory.mktemp("tampered")
    region = GateRegion.create(folder / "one", folder / "card", SETTINGS)
    wanted = (folder / "one" / "control").read_bytes()
    changed = wanted[:at] + data
    (folder / "one" / "control").write_bytes(changed)
    assert region.verify() == (changed == wanted)
    assert (folder / "one" / "control").read_bytes() == wanted
    assert region.verify()
    region.detach()


@given(data=st.binary(max_size=9000))
def test_whatever_a_task_writes_into_its_counters_is_read_without_harm(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("garbage")
    region = GateRegion.create(folder / "one", folder / "card", SETTINGS)
    (folder / "one" / "usage").write_bytes(data)
    assert region.usage().processes == {}
    assert region.usage().used_bytes == 0
    region.reap()
    region.detach()


def test_a_slice_that_no_agent_made_and_a_class_that_none_gave_are_noticed_and_put_right(tmp_path: Path) -> None:
    one, other = (GateRegion.create(tmp_path / name, tmp_path / "card", SETTINGS) for name in ("one", "other"))
    assert one.verify_card()
    card = layout.Card.from_buffer_copy((tmp_path / "card" / "card").read_bytes())
    card.member[9].present = ShareClass.ONLINE.rank + 1
    card.member[9].active_until_ns = 2**62
    card.member[0].present = ShareClass.ONLINE.rank + 1
    (tmp_path / "card" / "card").write_bytes(bytes(card))
    assert not other.verify_card()  # who does not exist is gone; its own class is each slice's to mend
    assert not one.verify_card()
    assert one.verify_card()
    assert other.verify_card()
    assert present(tmp_path / "card") == [3, 3]


def test_slices_of_a_card_have_places_of_their_own_and_give_them_back(tmp_path: Path) -> None:
    regions = [GateRegion.create(tmp_path / str(index), tmp_path / "card", SETTINGS) for index in range(3)]
    assert [member_of(tmp_path / str(index)) for index in range(3)] == [0, 1, 2]
    assert present(tmp_path / "card") == [3, 3, 3]
    regions[1].close()
    assert len(present(tmp_path / "card")) == 2
    GateRegion.create(tmp_path / "later", tmp_path / "card", SETTINGS)
    assert member_of(tmp_path / "later") == 1


def test_a_slice_made_again_keeps_its_place(tmp_path: Path) -> None:
    GateRegion.create(tmp_path / "other", tmp_path / "card", SETTINGS)
    GateRegion.create(tmp_path / "one", tmp_path / "card", SETTINGS).detach()
    GateRegion.create(tmp_path / "one", tmp_path / "card", SETTINGS)
    assert member_of(tmp_path / "one") == 1


@pytest.mark.parametrize("name", ["one/usage", "card/card"])
def test_a_file_of_which_an_agent_wrote_but_a_part_is_written_anew(tmp_path: Path, name: str) -> None:
    GateRegion.create(tmp_path / "one", tmp_path / "card", SETTINGS).detach()
    whole = (tmp_path / name).stat().st_size
    (tmp_path / name).write_bytes(b"")
    (tmp_path / name).chmod(0o600)
    GateRegion.create(tmp_path / "one", tmp_path / "card", SETTINGS).detach()
    assert ((tmp_path / name).stat().st_size, (tmp_path / name).stat().st_mode & 0o777) == (whole, 0o666)


@pytest.mark.parametrize("undo", [shutil.rmtree, lambda folder: os.truncate(folder / "control", 0)])
def test_the_place_of_a_slice_whose_files_are_gone_or_were_never_whole_is_free(
    tmp_path: Path, undo: Callable[[Path], None]
) -> None:
    for index in range(layout.MEMBERS):
        GateRegion.create(tmp_path / str(index), tmp_path / "card", SETTINGS).detach()
    with pytest.raises(UnavailableError, match="shared by 64 tasks already"):
        GateRegion.create(tmp_path / "one-more", tmp_path / "card", SETTINGS)
    undo(tmp_path / "7")
    GateRegion.create(tmp_path / "one-more", tmp_path / "card", SETTINGS)
    assert member_of(tmp_path / "one-more") == 7


@pytest.mark.parametrize(
    ("share_class", "in_flight_us", "floor_milli"), [("online", 0, 0), ("normal", 500, 5), ("backfill", 500, 5)]
)
def test_only_those_who_go_before_all_others_may_have_any_amount_of_work_in_flight(
    tmp_path: Path, share_class: str, in_flight_us: int, floor_milli: int
) -> None:
    grant = Grant("GPU-1", 300, 800, 2048)
    request = EnforcementRequest(TaskId("job", 1, 0), tmp_path, [grant], ShareClass(share_class), floor_milli=5)
    assert settings_of(grant, request) == GateSettings(
        cap_mib=2048,
        guarantee_milli=300,
        limit_milli=800,
        share_class=ShareClass(share_class),
        context_mib=CONTEXT_MIB,
        in_flight_us=in_flight_us,
        floor_milli=floor_milli,
        uuid="GPU-1",
    )


def test_slices_that_are_made_at_the_same_time_have_places_of_their_own(gate_library: Path, tmp_path: Path) -> None:
    enforcer, at_once = GateEnforcer(gate_library.parent.parent, tmp_path / "cards"), threading.Barrier(6)

    def make(number: int) -> None:
        grant = Grant(f"GPU-{number // 6}", 100, 1000, 1024)
        at_once.wait()
        enforcer.prepare(EnforcementRequest(TaskId(f"job-{number}", 1, 0), tmp_path / str(number), [grant]))

    with ThreadPoolExecutor(at_once.parties) as starts:
        list(starts.map(make, range(60)))
    for card in range(0, 60, 6):
        assert {member_of(tmp_path / str(number)) for number in range(card, card + 6)} == set(range(6))


def test_an_agent_is_told_of_what_a_slice_changed_that_is_not_its_own(gate_library: Path, tmp_path: Path) -> None:
    enforcer, task = GateEnforcer(gate_library.parent.parent, tmp_path / "cards"), TaskId("job", 1, 0)
    enforcer.prepare(EnforcementRequest(task, tmp_path / "slice", [Grant("GPU-1", 300, 800, 2048)]))

    def changed() -> tuple[bool, bool]:
        usage = enforcer.usage(task)
        assert usage is not None
        return usage.tampered, usage.disturbed

    assert changed() == (False, False)
    os.truncate(tmp_path / "cards" / "GPU-1" / "card", 0)
    assert [changed(), changed()] == [(False, True), (False, False)]
    (tmp_path / "slice" / "control").write_bytes(b"")
    assert [changed(), changed()] == [(True, False), (True, False)]


def test_without_a_compiler_the_gate_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="no C compiler; install gcc"):
        building.library(tmp_path)


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho 'no header stdio.h' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(UnavailableError, match=r"no header stdio\.h; see that"):
        building.library(tmp_path / "cache")
