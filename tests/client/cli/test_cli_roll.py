"""``pond nodes roll``: machines are emptied, changed and opened a few at a time, and the same line goes on later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from millpond.client.cli import main
from millpond.model.errors import NotFoundError
from millpond.specs.api.pool.nodes import CordonInfo, NodeInfo


@dataclass
class Pool:
    """A server with machines. Time passes between two looks: a job leaves a machine that is drained.

    Attributes:
        most_closed: how many were closed at once, at the most.
        away: looks for which a machine is not usable after it was opened.
    """

    nodes_by_name: dict[str, NodeInfo]
    away: int = 0
    most_closed: int = 0
    looks: int = 0
    at_look: dict[int, Callable[[], None]] = field(default_factory=dict)
    _returns_at: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept open."""

    def nodes(self) -> list[NodeInfo]:
        self.looks += 1
        self.at_look.pop(self.looks, lambda: None)()
        for name, node in self.nodes_by_name.items():
            if node.draining:
                self.nodes_by_name[name] = replace(node, jobs=node.jobs[1:])
            elif node.closure is None and self._returns_at.get(name, 0) <= self.looks:
                self.nodes_by_name[name] = replace(node, schedulable=True)
        return list(self.nodes_by_name.values())

    def close_node(self, name: str, *, reason: str, drain: bool) -> NodeInfo:
        node = replace(
            self.nodes_by_name[name], closure=CordonInfo(begin=0.0, reason=reason), draining=drain, schedulable=False
        )
        self.nodes_by_name[name] = node
        closed = sum(not each.schedulable for each in self.nodes_by_name.values())
        self.most_closed = max(self.most_closed, closed)
        return node

    def open_node(self, name: str) -> NodeInfo:
        self._returns_at[name] = self.looks + self.away
        self.nodes_by_name[name] = replace(self.nodes_by_name[name], closure=None, draining=False)
        return self.nodes_by_name[name]


def node(name: str, zone: str = "z1", jobs: tuple[str, ...] = ()) -> NodeInfo:
    return NodeInfo(
        name=name, pool="p", cpu_milli=1, free_cpu_milli=1, memory_mib=1, free_memory_mib=1, zone=zone, jobs=list(jobs)
    )


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pool:
    pool = Pool({each.name: each for each in (node("a", jobs=("x", "y")), node("b"), node("c"), node("d", "z2"))})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("millpond.client.cli.connection.Client", lambda **_: pool)
    monkeypatch.setattr("millpond.client.cli.commands.cluster.roll.time.sleep", lambda _: None)
    return pool


def roll(*arguments: str) -> int:
    return main.run_line(["nodes", "roll", *arguments])


def changed() -> list[str]:
    return Path("changed").read_text().split() if Path("changed").exists() else []


def test_a_zone_is_changed_machine_by_machine_the_emptiest_first(pool: Pool) -> None:
    assert roll("--zone", "z1", "--run", "echo $NODE >>changed") == 0
    assert changed() == ["b", "c", "a"]
    assert pool.most_closed == 1
    assert all(each.schedulable for each in pool.nodes())


def test_several_at_once_are_no_more_than_that_and_a_slow_reboot_holds_the_next(pool: Pool) -> None:
    pool.away = 5
    assert roll("--pool", "p", "--at-once", "2", "--run", "echo $NODE >>changed") == 0
    assert sorted(changed()) == ["a", "b", "c", "d"]
    assert pool.most_closed == 2


def test_nothing_runs_on_a_machine_before_its_jobs_have_left(pool: Pool) -> None:
    jobs: list[list[str]] = []
    real = pool.open_node
    pool.open_node = lambda name: jobs.append(pool.nodes_by_name[name].jobs) or real(name)  # type: ignore[method-assign]
    assert roll("a", "--run", "true") == 0
    assert jobs == [[]]


def test_a_failure_ends_the_roll_and_leaves_that_machine_closed(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    assert roll("--zone", "z1", "--run", "test $NODE != c") == 1
    assert [name for name, each in pool.nodes_by_name.items() if each.closure] == ["c"]
    assert capsys.readouterr().out.endswith(
        "c: the command failed with 1\n1 done; failed: c; closed: c (`pond nodes uncordon` opens); left: a\n"
    )


def test_what_failed_is_taken_back_where_that_works(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    assert roll("b", "--run", "false", "--undo", "echo $NODE >>changed") == 1
    assert changed() == ["b"]
    assert pool.nodes_by_name["b"].closure is None
    assert "b: taken back" in capsys.readouterr().out


def test_the_same_line_goes_on_where_it_stopped(pool: Pool) -> None:
    line = ("--zone", "z1", "--unless", "grep -q $NODE changed", "--run", "echo $NODE >>changed; test -e good")
    assert roll(*line) == 1
    assert changed() == ["b"]
    Path("changed").write_text("")
    Path("good").touch()
    assert roll(*line) == 0
    assert changed() == ["b", "c", "a"]
    assert roll(*line) == 0
    assert changed() == ["b", "c", "a"]


def test_what_others_have_closed_is_left_to_them(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    pool.close_node("b", reason="a fan is loud", drain=False)
    assert roll("b", "c", "--run", "echo $NODE >>changed") == 0
    assert changed() == ["c"]
    assert "b: left out, as it is closed already: a fan is loud" in capsys.readouterr().out
    assert pool.nodes_by_name["b"].closure is not None


def test_ctrl_c_begins_no_further_machine_and_lets_the_present_one_end(
    pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    pool.at_look[3] = interrupt
    assert roll("--zone", "z1", "--run", "echo $NODE >>changed") == 1
    assert changed() == ["b"]
    assert capsys.readouterr().out.endswith("1 done; left: c, a\n")
    assert pool.nodes_by_name["b"].schedulable


def test_where_there_are_no_machines_none_can_be_meant(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    pool.nodes_by_name.clear()
    assert roll("--pool", "default", "--run", "true") == 2
    assert "zones: none; pools: none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        ((), "no node is named", 2),
        (("zz",), "no node 'zz'", NotFoundError.exit_code),
        (("--zone", "z9"), "no node is in that zone", 2),
    ],
)
def test_machines_that_are_none_are_told_before_anything_is_closed(
    pool: Pool, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str, code: int
) -> None:
    assert roll(*arguments, "--run", "true") == code
    assert said in capsys.readouterr().err
    assert pool.most_closed == 0
