"""Arrays and sweeps in job files: which members there are, what each of them runs, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.specs.errors import SpecError
from millpond.specs.job import arrays, sweeps
from millpond.specs.job.arrays import parse_members, written_indices
from millpond.specs.job.job_ids import split_member
from millpond.specs.job.job_spec import check_job, read_jobs, stored_job
from millpond.specs.job.members import member_document, only_members


def job(**fields: Any) -> dict[str, Any]:
    return {"command": "work", **fields}


def indices(**fields: Any) -> list[int]:
    members = check_job(job() | fields).members
    assert members is not None
    return list(members)


def sweep(**fields: Any) -> dict[str, Any]:
    return job(sweep={"parameters": {"lr": [0.1, 0.01]}, **fields})


@pytest.mark.parametrize(
    ("array", "expected", "parallel"),
    [
        (3, [0, 1, 2], None),
        ("3", [0, 1, 2], None),
        ("3%2", [0, 1, 2], 2),
        ("0-9:3", [0, 3, 6, 9], None),
        ("5,1,7-9%2", [1, 5, 7, 8, 9], 2),
        ("0-8:2,1-9:2", list(range(10)), None),
        ({"count": 2, "parallel": 1}, [0, 1], 1),
        ({"indices": "4"}, [4], None),
    ],
)
def test_an_array_has_the_members_that_are_written(array: Any, expected: list[int], parallel: int | None) -> None:
    members = check_job(job(array=array)).members
    assert members is not None
    assert (list(members), len(members), members.parallel) == (expected, len(expected), parallel)
    assert [members.at(members.position(index) or 0) for index in expected] == expected
    assert members.position(1_000) is None


@given(st.sets(st.integers(0, 300), min_size=1))
def test_every_member_has_a_place_and_every_place_a_member(chosen: set[int]) -> None:
    members = parse_members(written_indices(chosen))
    assert [members.at(place) for place in range(len(members))] == sorted(chosen)
    places = {index: place for place, index in enumerate(sorted(chosen))}
    assert [members.position(index) for index in range(302)] == [places.get(index) for index in range(302)]
    with pytest.raises(IndexError):
        members.at(len(members))


@pytest.mark.parametrize(
    "document",
    [job(array=",".join(map(str, range(0, 99, 2)))), sweep(method="grid", only="0,1") | {"command": "t {lr}"}],
)
def test_the_indices_of_an_array_are_not_read_again_for_each_member(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = check_job(document)
    first = array.members

    def read_again(text: str) -> None:
        raise AssertionError(text)

    monkeypatch.setattr(arrays, "parse_members", read_again)
    monkeypatch.setattr(sweeps, "parse_members", read_again)
    assert first is not None
    for index in first:
        made = array.member(index)
        assert made.file.env["MILLPOND_ARRAY_INDEX"] == made.document["env"]["MILLPOND_ARRAY_INDEX"] == str(index)


@pytest.mark.parametrize(
    "document",
    [
        job(array=3, env={"A": "1"}, idempotency_key="once", name="many"),
        {"command": ["t", "{index}", "x"], "array": "0-8:2%2", "after": "others"},
        {"roles": [{"name": "a", "command": "x {index}"}, {"name": "b", "tasks": 2}], "command": "y", "array": 5},
        sweep() | {"command": "t --lr={lr} {index} ${index}", "image": "i", "gpus": 1, "retries": 2},
        job(array=3, deadline="2w", priority="low", topology="same-rack", checkpoint={"grace": "1s"}),
    ],
)
def test_the_file_of_a_member_is_the_same_without_being_checked_again(document: dict[str, Any]) -> None:
    array = check_job(document)
    for index in array.members or ():
        made, checked = array.member(index), stored_job(member_document(array.document, index))
        assert (made.file, made.document, made.commands) == (checked.file, checked.document, checked.commands)
        assert made.file.model_dump(exclude_unset=True) == checked.file.model_dump(exclude_unset=True)
        assert made.job == checked.job
        assert made.warnings == checked.warnings


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (0, "0 members"),
        (100_001, "100001 members"),
        ("0-200000", "200001 members"),
        ("a-b", "'a-b' is neither an index nor a range"),
        ("9-1", "is empty"),
        ("1,1", "the index 1 comes twice"),
        ("0-8:2,4", "the index 4 comes twice"),
        ("0-9%0", "how many may run at once"),
        ("9%" + "9" * 5_000, "how many may run at once"),
        ("9" * 5_000, "is neither an index nor a range"),
        (True, "true is not an array"),
        ({"parallel": 3}, "neither or both"),
        ({"count": 3, "indices": "1"}, "neither or both"),
        ({"indices": "0-9%3"}, "a limit within the indices"),
    ],
)
def test_what_is_no_array_is_refused_with_a_hint(array: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words) as raised:
        check_job(job(array=array))
    assert raised.value.problems[0].hint


@given(st.sets(st.integers(0, 300), min_size=1))
def test_indices_that_are_written_are_read_back(chosen: set[int]) -> None:
    assert list(parse_members(written_indices(chosen))) == sorted(chosen)


def test_a_fault_in_a_file_has_its_place() -> None:
    with pytest.raises(SpecError) as raised:
        read_jobs("command: x\nsweep:\n  parameters: {lr: [1]}\n  method: bayes\n")
    assert (raised.value.problems[0].line, raised.value.problems[0].column) == (4, 11)


def test_a_member_is_told_its_index_in_its_command_and_its_variables() -> None:
    document = check_job(job(command="go {index} ${index} {other}", array="4-6", env={"A": "b"}, after="x")).document
    member = member_document(document, 5)
    assert member["command"] == "go 5 ${index} {other}"
    assert member["env"]["A"] == "b"
    told = {name: value for name, value in member["env"].items() if "ARRAY" in name}
    assert told == {
        "MILLPOND_ARRAY_INDEX": "5",
        "MILLPOND_ARRAY_COUNT": "3",
        "MILLPOND_ARRAY_MIN": "4",
        "MILLPOND_ARRAY_MAX": "6",
    }
    assert check_job(member).members is None
    assert "after" not in member


def test_a_grid_has_every_combination_once() -> None:
    file = check_job(sweep(parameters={"lr": [0.1, 0.01], "seed": {"range": [1, 3]}, "on": [True, False]})).file
    assert file.sweep is not None
    trials = [file.sweep.trial(number) for number in range(file.sweep.count)]
    assert len(trials) == 12
    assert len({json.dumps(trial) for trial in trials}) == 12
    assert trials[0] == {"lr": 0.1, "seed": 1, "on": True}
    assert trials[1] == {"lr": 0.1, "seed": 1, "on": False}


def test_a_random_sweep_draws_the_same_again_and_stays_within_its_bounds() -> None:
    space = {"lr": {"log_uniform": [1e-5, 0.1]}, "drop": {"uniform": [0, 1]}, "layers": {"range": [2, 8, 2]}}
    document = sweep(parameters=space, method="random", samples=200, seed=7)
    one, again = check_job(document).file.sweep, check_job(document).file.sweep
    other = check_job(sweep(parameters=space, method="random", samples=200, seed=8)).file.sweep
    assert one is not None
    assert again is not None
    assert other is not None
    trials = [one.trial(number) for number in range(200)]
    assert trials == [again.trial(number) for number in range(200)]
    assert trials[0] != other.trial(0)
    assert all(1e-5 <= trial["lr"] <= 0.1 and 0 <= trial["drop"] <= 1 for trial in trials)  # type: ignore[operator]
    assert {trial["layers"] for trial in trials} == {2, 4, 6, 8}
    small = sum(trial["lr"] < 1e-3 for trial in trials)  # type: ignore[operator]
    assert 70 < small < 130, "half of the powers of ten lie below 1e-3"


def test_parameters_reach_the_command_quoted_for_the_shell_and_the_variables() -> None:
    parameters = {"lr": [0.1], "word": ["two words"], "on": [True]}
    line = member_document(sweep(parameters=parameters) | {"command": "t --lr={lr} {word} {on}"}, 0)
    assert line["command"] == "t --lr=0.1 'two words' true"
    program = member_document(sweep(parameters=parameters) | {"command": ["t", "{word}", "{lr}"]}, 0)
    assert program["command"] == ["t", "two words", "0.1"]
    assert program["env"]["MILLPOND_PARAM_WORD"] == "two words"
    assert json.loads(program["env"]["MILLPOND_PARAMETERS"]) == {"lr": 0.1, "word": "two words", "on": True}
    assert program["env"]["MILLPOND_ARRAY_COUNT"] == "1"


def test_roles_have_their_own_commands_filled() -> None:
    document = job(array=2, roles=[{"name": "a", "command": "x {index}"}, {"name": "b"}])
    assert [role.get("command") for role in member_document(document, 1)["roles"]] == ["x 1", None]


def test_a_place_that_no_parameter_fills_is_warned_of() -> None:
    parameters = {"rate": [1, 2]}
    mistyped = check_job({"command": "train {rat} {index} ${shell}", "sweep": {"parameters": parameters}})
    assert mistyped.warnings == (
        "{rat} in the command stays as it is, as the sweep has no such parameter; did you mean 'rate'?",
    )
    assert check_job({"command": ["train", "{rate}"], "sweep": {"parameters": parameters}}).warnings == ()
    assert check_job({"command": "train {rat}", "array": 2}).warnings == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parameters": {}}, "parameters: {} has the wrong length; use at least 1 entry"),
        ({"parameters": {"1x": [1]}}, "is not a name of a parameter"),
        ({"parameters": {"lr": [1], "LR": [2]}}, "have one variable"),
        ({"parameters": {"index": [1]}}, "a parameter called index"),
        ({"parameters": {"lr": 3}}, "3 has no values"),
        ({"parameters": {"lr": {"range": [1, 2], "values": [3]}}}, "2 of values"),
        ({"parameters": {"lr": {"range": [3, 1]}}}, "a range of"),
        ({"parameters": {"lr": {"range": [1, 10**30]}}}, "too large"),
        ({"parameters": {"lr": {"uniform": [0, 10**400]}}, "method": "random", "samples": 1}, "uniform"),
        ({"parameters": {"lr": {"uniform": [-1e308, 1e308]}}, "method": "random", "samples": 1}, "uniform"),
        ({"parameters": {"lr": {"uniform": [1, 1]}}, "method": "random", "samples": 1}, "bounds"),
        (
            {"parameters": {"lr": {"log_uniform": [0, 1]}}, "method": "random", "samples": 1},
            "from 0",
        ),
        ({"parameters": {"lr": {"uniform": [0, 1]}}}, "a grid over lr"),
        ({"method": "random"}, "without samples"),
        ({"halving": {}}, "halving without a metric"),
        ({"metric": "loss", "halving": {"rungs": [3, 3]}}, "rungs"),
        ({"metric": {"name": "loss", "printed": "loss"}}, "exactly once"),
        ({"metric": {"name": "loss", "printed": "loss {value}0 %"}}, "read as a part of the number"),
        ({"metric": {"name": "loss", "printed_step": "step {step}.5"}}, "read as a part of the number"),
        ({"only": "5"}, "trials 5"),
        ({"parameters": {name: {"range": [1, 100]} for name in "abc"}}, "1000000 trials"),
    ],
)
def test_what_makes_no_sweep_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        check_job(sweep(**fields))


def test_trials_that_are_none_are_refused_with_those_that_are() -> None:
    with pytest.raises(SpecError) as refused:
        check_job(sweep(parameters={"lr": [1, 2, 3]}, only="3"))
    assert "name some of 0 to 2" in str(refused.value)


def test_an_array_and_a_sweep_contradict_each_other_and_other_kinds() -> None:
    with pytest.raises(SpecError, match="both array and sweep"):
        check_job({**sweep(), "array": 3})
    with pytest.raises(SpecError, match="kind dev is one job"):
        check_job(job(kind="dev", array=3))


def test_chosen_trials_keep_their_numbers_and_parameters() -> None:
    assert indices(sweep={"parameters": {"lr": [1, 2, 3]}, "only": "0,2", "parallel": 1}) == [0, 2]
    document = sweep(parameters={"lr": [1, 2, 3]}, only="2")
    assert member_document(document, 2)["env"]["MILLPOND_PARAM_LR"] == "3"


def test_some_members_of_an_array_or_sweep_make_one_of_their_own() -> None:
    assert indices(**only_members(job(array="10%2"), [7, 3])) == [3, 7]
    assert only_members(job(array="10%2"), [7, 3])["array"] == {"indices": "3,7", "parallel": 2}
    again = only_members(sweep(parameters={"lr": [1, 2, 3]}), [2])
    assert member_document(again, 2)["env"]["MILLPOND_PARAM_LR"] == "3"
    assert indices(**again) == [2]


def test_members_are_named_with_a_dot_or_in_brackets() -> None:
    assert split_member("train-abcde.17") == split_member("train-abcde[17]") == ("train-abcde", 17)
    assert split_member("train-abcde") is None
    assert split_member("a.b") is None
