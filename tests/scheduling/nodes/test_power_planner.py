"""Which nodes are switched, and when: by a clock that the test moves."""

from __future__ import annotations

from millpond.model.hardware.node_power import NodePower, NodePowerState, PowerSavingRule
from millpond.scheduling.nodes.power_planner import PowerCandidate, PowerPlanner

RULE = PowerSavingRule(idle_s=600.0, spare=1, least_on_s=1_200.0, least_off_s=300.0)


class Pool:
    """Nodes of one pool, and a planner that looks at them."""

    def __init__(self, count: int, rule: PowerSavingRule = RULE) -> None:
        self.planner = PowerPlanner()
        self.rules = {"default": rule}
        self.nodes = {f"n{index}": PowerCandidate(f"n{index}", "default", True, True, None) for index in range(count)}

    def busy(self, name: str) -> None:
        self.nodes[name] = PowerCandidate(name, "default", False, True, None)

    def power(self, name: str, state: NodePowerState, since: float, *, gone: bool = True, detail: str = "") -> None:
        power = NodePower(state, since, detail, is_gone=gone)
        self.nodes[name] = PowerCandidate(name, "default", True, not power.is_closed, power)

    def steps(self, now: float, **wanted: str) -> dict[str, bool]:
        """By node, whether it is to be on."""
        found = self.planner.plan(now, list(self.nodes.values()), wanted, self.rules)
        return {step.node: step.on for step in found}


def test_empty_nodes_go_after_their_idle_time_and_least_time_but_for_the_spare() -> None:
    pool = Pool(3)
    pool.busy("n2")
    assert pool.steps(0.0) == pool.steps(1_199.0) == {}
    assert pool.steps(1_200.0) == {"n0": False}


def test_who_was_busy_lately_stays() -> None:
    pool = Pool(3)
    pool.steps(0.0)
    pool.busy("n0")
    pool.steps(1_000.0)
    pool.nodes["n0"] = PowerCandidate("n0", "default", True, True, None)
    pool.steps(1_001.0)
    assert pool.steps(1_300.0) == {"n1": False}  # the other would have been the spare when n0 was busy
    pool.power("n1", NodePowerState.OFF, since=1_300.0)
    assert pool.steps(1_600.0) == {}
    assert pool.steps(1_601.0) == {"n2": False}  # the spare is the one that was busy


def test_room_for_a_peak_of_the_idle_time_stays_whichever_nodes_had_work_in_it() -> None:
    pool = Pool(6)
    for now in range(0, 6_000, 300):
        for name in ("n0", "n1") if now % 600 else ("n0", "n1", "n2", "n3"):
            pool.busy(name)
        assert pool.steps(float(now)) == ({"n4": False} if now >= 1_200 else {})
        for name in ("n2", "n3"):
            pool.nodes[name] = PowerCandidate(name, "default", True, True, None)


def test_nothing_is_switched_off_while_a_job_waits_for_nodes_and_all_that_it_needs_is_woken_at_once() -> None:
    pool = Pool(4)
    for name in ("n2", "n3"):
        pool.power(name, NodePowerState.OFF, since=5_000.0)
    pool.steps(0.0)
    assert pool.steps(5_001.0, n2="wide", n3="wide") == {"n2": True, "n3": True}


def test_a_node_that_is_still_going_down_is_not_woken() -> None:
    pool = Pool(1)
    pool.power("n0", NodePowerState.OFF, since=0.0, gone=False)
    assert pool.steps(1_000.0, n0="job") == {}


def test_the_spare_is_filled_up_by_nodes_that_were_off_for_their_least_time() -> None:
    pool = Pool(2)
    pool.busy("n0")
    pool.power("n1", NodePowerState.OFF, since=0.0)
    assert pool.steps(299.0) == {}
    assert pool.steps(300.0) == {"n1": True}
    pool.power("n1", NodePowerState.BOOTING, since=300.0)
    assert pool.steps(301.0) == {}


def test_after_a_failure_the_same_is_tried_again_later() -> None:
    pool = Pool(2)
    pool.power("n1", NodePowerState.FAILED, since=1_000.0)
    pool.busy("n0")
    assert pool.steps(1_800.0, n1="job") == {}
    assert pool.steps(1_900.0, n1="job") == {"n1": True}
    stuck = Pool(2)
    stuck.steps(0.0)
    stuck.power("n1", NodePowerState.ON, since=2_000.0, gone=False, detail="no rights")
    stuck.power("n0", NodePowerState.ON, since=2_000.0, gone=False, detail="no rights")
    assert stuck.steps(2_500.0) == {}
    assert len(stuck.steps(2_900.0)) == 1


def test_nodes_of_pools_without_a_rule_are_never_switched() -> None:
    pool = Pool(3)
    pool.rules = {"other": RULE}
    pool.steps(0.0)
    assert pool.steps(1e6) == {}
