"""Files that mean to break whatever reads them: refused in a few words, as job files and as configuration."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError
from millpond.specs.job import job_spec
from millpond.specs.job.job_spec import MOST_VALUES, check_job, read_jobs, stored_job
from millpond.specs.source_positions import MOST_LEVELS, read_documents
from millpond.specs.validation import MOST_REPORTED

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
IMMENSE = "0x" + "f" * 100_000
BOMBS = {
    "aliases of aliases": f"{LAUGHS}command: *i\n",
    "itself": "command: &a [*a]",
    "nested": "command: " + "[" * 5_000,
    "nested and closed": '{"command": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "nested keys": "? " * 2_000,
    "many digits": f"gpus: {'9' * 100_000}",
    "some digits": f"gpus: {'9' * 400}\ncommand: x",
    "some digits as JSON": f'{{"gpus": {"9" * 400}, "command": "x"}}',
    "hexadecimal digits": f"memory: {IMMENSE}\ncommand: x",
    "hexadecimal digits deep inside": f"command: x\nsweep: {{parameters: {{a: {{range: [1, {IMMENSE}]}}}}}}",
    "a flat file's digits": f"jobName: x\ntaskRoles: [{{taskNumber: {IMMENSE}, command: x}}]",
    "an exponent": "gpus: 1e999999999\ncommand: x",
    "a program": "command: !!python/object/apply:os.system [id]",
    "bytes": f"command: !!binary {'A' * 10_000}",
    "unknown fields": "".join(f"k{number}: 1\n" for number in range(3_000)),
    "a long name": f"command: x\n{'a' * 100_000}: 1",
    "nothing at all": "#" * 100_000,
    "too much": " " * 5_000_000,
}


@pytest.mark.parametrize("read", [read_jobs, read_cluster])
@pytest.mark.parametrize("what", BOMBS)
def test_a_hostile_file_is_refused_in_few_words(what: str, read: Callable[[str], object]) -> None:
    with pytest.raises(SpecError) as refused:
        read(BOMBS[what])
    assert len(refused.value.problems) <= MOST_REPORTED + 1
    assert max(len(problem.message + problem.hint) for problem in refused.value.problems) < 2_000


@pytest.mark.parametrize("before", ["command: ", ""])
def test_brackets_lie_in_each_other_up_to_a_bound(before: str) -> None:
    def nested(levels: int) -> str:
        return before + "[" * levels + "]" * levels

    assert read_documents(nested(MOST_LEVELS))
    with pytest.raises(SpecError, match="nested too deeply"):
        read_documents(nested(MOST_LEVELS + 1))


def test_of_many_faults_it_is_told_how_many_more_there_are() -> None:
    with pytest.raises(SpecError) as refused:
        read_jobs("".join(f"k{number}: 1\n" for number in range(MOST_REPORTED + 7)))
    assert refused.value.problems[-1].message == "7 faults more"


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["x"] * MOST_VALUES},
        {"command": "x", "env": {f"A{number}": "" for number in range(MOST_VALUES)}},
        {f"field-{number}": 1 for number in range(MOST_VALUES + 1)},
        {"command": "x", "roles": [[[]] * 1_000] * 25},
    ],
)
def test_more_values_than_a_server_checks_in_no_time_are_refused_before_any_is_looked_at(
    fields: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_spec, "validate", None)
    with pytest.raises(SpecError, match="more than 20,000 values in a job file"):
        check_job(fields)


def test_a_job_that_an_earlier_version_accepted_is_read_however_long_it_is() -> None:
    env = {f"A{number}": "" for number in range(MOST_VALUES)}
    assert len(stored_job({"command": "x", "env": env}).file.env) == MOST_VALUES
