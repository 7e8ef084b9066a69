"""Where instances go on a card, and making them through the real binding on a pretended card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_driver.driver import FakeDriver
from millpond.model.errors import InvalidInputError
from millpond.node.sharing.mig import Profile, plan

# NVIDIA, Multi-Instance GPU User Guide, "Supported MIG Profiles": the placements of an H200.
H200 = (
    Profile("1g.18gb", 19, 1, (0, 1, 2, 3, 4, 5, 6)),
    Profile("1g.35gb", 15, 2, (0, 2, 4, 6)),
    Profile("2g.35gb", 14, 2, (0, 2, 4)),
    Profile("3g.71gb", 9, 4, (0, 4)),
    Profile("4g.71gb", 5, 4, (0,)),
    Profile("7g.141gb", 0, 8, (0,)),
)
NAMES = [profile.name for profile in H200]


def places(*wanted: str) -> list[tuple[str, int]]:
    return [(placed.profile.name, placed.start) for placed in plan(wanted, H200)]


def test_the_order_in_which_they_are_wanted_does_not_matter() -> None:
    expected = [("3g.71gb", 0), ("2g.35gb", 4), ("1g.18gb", 6)]
    assert places("1g.18gb", "2g.35gb", "3g.71gb") == expected
    assert places("3g.71gb", "1g.18gb", "2g.35gb") == expected


def test_one_that_may_lie_at_one_place_only_gets_it() -> None:
    assert places("3g.71gb", "4g.71gb") == [("3g.71gb", 4), ("4g.71gb", 0)]


@pytest.mark.parametrize("wanted", [["7g.141gb", "1g.18gb"], ["2g.35gb"] * 4, ["4g.71gb", "4g.71gb"]])
def test_what_does_not_fit_together_is_refused_though_its_sum_may(wanted: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="do not fit together"):
        plan(wanted, H200)


def test_an_unknown_profile_is_told_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInputError, match=r"no MIG profile '5g.90gb'; it offers 1g.18gb, "):
        plan(["5g.90gb"], H200)


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=7))
def test_no_two_share_a_slice_and_all_lie_where_they_may(wanted: list[str]) -> None:
    try:
        placed = plan(wanted, H200)
    except InvalidInputError:
        return
    assert sorted(each.profile.name for each in placed) == sorted(wanted)
    assert all(each.start in each.profile.starts for each in placed)
    assert not any(one.overlaps(other) for one, other in combinations(placed, 2))


def test_empty_cards_are_divided_once_and_only_if_the_configuration_says_so(fake_driver: FakeDriver) -> None:
    if os.geteuid() != 0:
        pytest.skip("cards are divided by root")
    source = """
import json, pynvml
from millpond.model.sharing import MigLayout
from millpond.node.devices.nvidia import NvidiaVendor
from millpond.node.devices.nvml.library import Nvml
from millpond.node.sharing.mig import divide
nvml = Nvml()
def tell(create, *instances):
    models = lambda: [device.model for device in NvidiaVendor().discover()]
    print(json.dumps([divide(MigLayout(instances, create), nvml), len(models())]))
tell(True, "3g.2gb")
pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(0), 1)
tell(False, "1g.1gb", "3g.2gb")
tell(True, "9g.9gb")
tell(True, "1g.1gb", "3g.2gb")
tell(True, "1g.1gb")
"""
    environment = {**os.environ, **fake_driver.env()}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told[0] == [[], 1]  # not in MIG mode
    assert told[1] == [["card 0 would be divided into 3g.2gb at 0, 1g.1gb at 4 (mig: create: true)"], 1]
    assert "offers no MIG profile '9g.9gb'" in told[2][0][0]
    assert told[3] == [["card 0 was divided into 3g.2gb at 0, 1g.1gb at 4"], 2]
    assert told[4] == [[], 2]  # what is divided stays as it is
