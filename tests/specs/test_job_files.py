"""Job files become jobs, and everything wrong with one is said with its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millpond.model.hardware.node_selection import selection_text
from millpond.model.hardware.nodes import CLUSTER_LABEL
from millpond.model.hardware.topology import Level
from millpond.model.sharing import ShareClass
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.windows import Window, is_open
from millpond.model.workloads import CheckpointMode, Kind, Priority
from millpond.specs.config.queues import QueueFile
from millpond.specs.errors import Problem, SpecError
from millpond.specs.foreign_words import FOREIGN_FIELDS, own_field
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.images import ImageRequest, is_below, whole
from millpond.specs.job.job_file import JobFile, RoleFile
from millpond.specs.job.job_spec import check_job, read_jobs, stored_job

FULL = """\
kind: train
name: resnet50
queue: vision
priority: high
gpus: {cards: 1, memory: 4GiB, compute: 25%}
gpu_models: [A100, H100]
cpus: 8
memory: 32GiB
tasks: {min: 2, max: 8}
topology: same-rack
command: torchrun train.py
workdir: code
env: {SEED: 1, NAME: x}
retries: 3
time_limit: 2h
checkpoint: {signal: SIGUSR1, grace: 60s}
min_run_time: 5m
preemptible: false
extras: {rdma: 1}
"""


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        read_jobs(text, "job.yaml")
    return caught.value.problems


def only_problem(text: str) -> Problem:
    (problem,) = problems(text)
    return problem


def test_every_field_of_a_job_file_reaches_the_job() -> None:
    (spec,) = read_jobs(FULL, "job.yaml", Path("/srv/code"))
    job = spec.to_job("resnet50-abcde", "ada")
    (role,) = job.roles
    assert (job.id, job.user, job.name, job.queue) == ("resnet50-abcde", "ada", "resnet50", "vision")
    assert (job.kind, job.priority) == (Kind.TRAIN, Priority.HIGH)
    assert (role.minimum, role.desired, role.maximum) == (2, 8, 8)
    assert (role.request.cpu_milli, role.request.memory_mib, role.request.devices) == (8000, 32768, 1)
    assert (role.request.slice.compute_milli, role.request.slice.memory_mib) == (250, 4096)
    assert role.request.models == ("A100", "H100")
    assert role.request.extras == (("rdma", 1),)
    assert (job.together, job.together_required) == (Level.RACK, True)
    assert (job.retries, job.time_limit_s, job.minimum_run_s, job.preemptible) == (3, 7200.0, 300.0, False)
    assert (job.checkpoint.mode, job.checkpoint.signal, job.checkpoint.grace_s) == (
        CheckpointMode.SIGNAL,
        "SIGUSR1",
        60.0,
    )
    assert spec.commands == {"worker": "torchrun train.py"}
    assert spec.file.workdir == "/srv/code/code"
    assert spec.file.env == {"SEED": "1", "NAME": "x"}


def test_what_a_client_sends_on_reads_as_the_same_job() -> None:
    (spec,) = read_jobs(FULL, "job.yaml", Path("/srv/code"))
    again = check_job(spec.document)
    assert again.to_job("a", "b") == spec.to_job("a", "b")
    assert again.file == spec.file


@pytest.mark.parametrize(
    ("gpus", "devices", "compute", "memory"),
    [
        ("2", 2, 1000, -1),
        ("0", 0, 1000, -1),
        ("2.0", 2, 1000, -1),
        ("0.25", 1, 250, -1),
        ("25%", 1, 250, -1),
        ("{cards: 1, memory: 4GiB}", 1, 0, 4096),
        ("{compute: 50%, memory: 4GiB}", 1, 500, 4096),
        ("{cards: 3}", 3, 1000, -1),
    ],
)
def test_gpus_are_cards_a_part_of_one_or_spelt_out(gpus: str, devices: int, compute: int, memory: int) -> None:
    (spec,) = read_jobs(f"command: x\ngpus: {gpus}")
    request = spec.to_job("j").roles[0].request
    assert request.devices == devices
    if devices:
        assert (request.slice.compute_milli, request.slice.memory_mib) == (compute, memory)


def test_a_job_needs_no_more_than_a_command() -> None:
    (spec,) = read_jobs("command: hostname")
    job = spec.to_job("j")
    assert job.task_count == 1
    assert job.gpu_milli == 0
    assert spec.file.workdir is None


def test_roles_inherit_what_they_leave_out() -> None:
    (spec,) = read_jobs(
        "gpus: 1\ncommand: work\nroles:\n- {name: ps, gpus: 0, command: [serve, '1']}\n- {name: worker, tasks: 4}\n"
    )
    ps, worker = spec.to_job("j").roles
    assert (ps.name, ps.desired, ps.request.devices) == ("ps", 1, 0)
    assert (worker.name, worker.desired, worker.request.devices) == ("worker", 4, 1)
    assert spec.commands == {"ps": ("serve", "1"), "worker": "work"}


@pytest.mark.parametrize(
    ("written", "level", "required"),
    [
        ("node", Level.NODE, True),
        ("zone", Level.ZONE, True),
        ("{prefer: rack}", Level.RACK, False),
        ("{prefer: zone}", Level.ZONE, False),
        ("any", Level.CLUSTER, False),
    ],
)
def test_topology_is_required_as_a_bare_word_and_wished_with_prefer(written: str, level: Level, required: bool) -> None:
    (spec,) = read_jobs(f"command: x\ntopology: {written}")
    job = spec.to_job("j")
    assert (job.together, job.together_required) == (level, required)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("galaxy", "use one of node, rack, zone, any"),
        ("same-rak", "did you mean 'rack'? allowed: node, rack, zone, any"),
    ],
)
def test_what_is_no_place_of_a_topology_is_told_once_what_is(written: str, hint: str) -> None:
    with pytest.raises(SpecError, match="is not a place") as caught:
        read_jobs(f"command: x\ntopology: {written}")
    assert caught.value.problems[0].hint == hint


def test_a_path_is_asked_for_in_words_and_by_an_example() -> None:
    with pytest.raises(SpecError, match="'health' is not a path; write one that begins with /, such as /health"):
        read_jobs("kind: service\ncommand: x\nserve: {ready: health}")


def test_a_job_of_a_named_cluster_may_have_its_nodes_alone() -> None:
    (spec,) = read_jobs("cluster: west\ntasks: 2\ncommand: train\n")
    job = spec.to_job("j")
    assert selection_text(job.only_on) == "millpond.io/cluster=west"
    assert job.spacing == ()


@pytest.mark.parametrize(
    ("written", "roles"),
    [
        ("tasks: 2", ("worker",)),
        ("tasks: {min: 1, max: 2}", ("worker",)),
        ("roles: [{name: head}, {name: worker}]", ("head", "worker")),
        ("tasks: 2\ntopology: {prefer: rack}", ("worker",)),
        ("tasks: 1", None),
        ("tasks: 2\ntopology: same-rack", None),
    ],
)
def test_tasks_that_start_together_in_any_cluster_lie_in_one(written: str, roles: tuple[str, ...] | None) -> None:
    (spec,) = read_jobs(f"cluster: any\n{written}\ncommand: train\n")
    job = spec.to_job("j")
    assert job.only_on == ()
    rules = [] if roles is None else [SpacingRule(SpacingKind.TOGETHER, CLUSTER_LABEL, roles)]
    assert list(job.spacing) == rules


def test_a_program_that_writes_a_wrong_field_sees_one_traceback() -> None:
    with pytest.raises(SpecError, match="unknown field 'gpuz'; did you mean 'gpus'") as caught:
        check_job({"command": "x", "gpuz": 1})
    assert caught.value.__suppress_context__


def test_the_fields_that_a_refusal_lists_are_those_that_people_write() -> None:
    hint = only_problem("command: x\nzzz: 2\n").hint
    named = set(re.findall(r"\w+", hint))
    assert named >= {"gpus", "serve"}
    assert not named & {"payload", "pinned", "adopted"}, "programs fill these in"


def test_an_unknown_field_is_refused_with_its_place_and_the_nearest_name() -> None:
    problem = only_problem("command: x\n  \ngpuss: 2\n")
    assert (problem.source, problem.line, problem.column) == ("job.yaml", 3, 1)
    assert "gpuss" in problem.message
    assert "'gpus'" in problem.hint
    assert str(problem).startswith("job.yaml:3:1: gpuss: ")


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("time: 2h", "did you mean 'time_limit'?"),
        ("retry: 3", "did you mean 'retries'?"),
        ("partition: a100", "did you mean 'queue'?"),
        ("cpus-per-task: 4", "did you mean 'cpus'?"),
        ("activeDeadlineSeconds: 60", "did you mean 'time_limit'?"),
        ("backoffLimit: 2", "did you mean 'retries'?"),
        ("kueue.x-k8s.io/queue-name: vision", "did you mean 'queue'?"),
        ("nvidia.com/gpu: 2", "did you mean 'gpus'?"),
        ("podSets: []", "did you mean 'roles'?"),
        ("resources: {gpu: 1}", "write gpus, cpus, memory and extras as fields, each of one task"),
        ("ports: [80]", "a `dev` or `service` job listens on the port that MILLPOND_PORT names"),
    ],
)
def test_a_field_of_another_tool_is_answered_with_ours(written: str, hint: str) -> None:
    assert only_problem(f"command: x\n{written}\n").hint == hint


def test_a_field_of_another_tool_in_a_role_is_answered_with_one_that_roles_have() -> None:
    (problem,) = problems("command: x\nroles: [{name: a, replicas: 2}]\n")
    assert (problem.loc, problem.hint) == ("roles.0.replicas", "did you mean 'tasks'?")
    (problem,) = problems("command: x\nroles: [{name: a, partition: b}]\n")
    assert problem.hint.startswith("use one of name, tasks")


def test_every_field_of_another_tool_stands_for_one_field_that_exists() -> None:
    people = {*JobFile.model_fields, *RoleFile.model_fields}
    for field, words in FOREIGN_FIELDS.items():
        assert field in {*people, *QueueFile.model_fields}
        for word in words.split():
            assert (own_field(word), word in people) == (field, False)


def test_a_wrong_value_in_a_nested_field_is_placed_at_the_value() -> None:
    problem = only_problem("command: x\ntasks:\n  min: 1\n  max: many\n")
    assert (problem.loc, problem.line, problem.column) == ("tasks.max", 4, 8)


def test_all_faults_of_all_documents_are_reported_at_once() -> None:
    found = problems("gpus: -1\npriority: hihg\ncommand: x\n---\ncommand: y\nworkdirr: /\n")
    assert {(problem.line, problem.loc) for problem in found} == {(1, "gpus"), (2, "priority"), (6, "workdirr")}


def test_a_word_that_is_not_allowed_gets_the_allowed_ones_and_the_nearest() -> None:
    problem = only_problem("command: x\npriority: hihg\n")
    assert "did you mean 'high'?" in problem.hint
    assert "low, normal, high, critical" in problem.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus: 1\n", "'command' is missing"),
        ("command: ''\n", "empty command"),
        ("command: x\ngpus: 1.5\n", "a fraction of several cards"),
        ("command: x\ngpus: {cards: 2, compute: 50%}\n", "a part of each of 2 cards"),
        ("command: x\ngpus: true\n", "not a number of GPUs"),
        ("command: x\ntasks: 0\n", "not a number of tasks"),
        ("command: x\ntasks: {min: 5, max: 2}\n", "between 5 and 2"),
        ("command: x\ntasks: 2\nroles: [{name: a}]\n", "both tasks and roles"),
        ("command: x\nroles: [{name: a}, {name: a}]\n", "two roles"),
        ("command: x\nretries: '3'\n", "not a whole number"),
        ("command: x\nretries: -1\n", "too small"),
        ("command: x\nstdin: true\ntasks: 2\n", "standard input is for one task"),
        ("command: x\nstdin: true\nkind: service\n", "standard input is for one task"),
        ("command: x\nstdin: true\narray: 3\n", "standard input is for one task"),
        ("command: x\nstdin: true\nretries: 1\n", "comes once only"),
        ("command: x\npreemptible: yes\n", "neither true nor false"),
        ("command: x\nmemory: 12\n", "12 has no unit"),
        ("command: x\ntime_limit: 5\n", "5 has no unit"),
        ("command: x\nmin_run_time: 30\n", "30 has no unit"),
        ("command: x\ncheckpoint: {grace: 60}\n", "60 has no unit"),
        ("command: x\nkind: service\nserve: {drain: 5}\n", "5 has no unit"),
        ("command: x\ncheckpoint: always\n", "not allowed"),
        ("command: x\nwindow: at night\n", "is no window"),
        ("command: x\nwindow: 20:00-25:00\n", "no hours of a day"),
        ("command: x\nwindow: Mun 20:00-08:00\n", "no day of the week"),
        ("command: x\nwindow: monkey 20:00-08:00\n", "no day of the week"),
        ("command: x\nwindow: \uff12\uff10:00-08:00\n", "no window"),
        ("command: x\nwindow: {hours: '20:00-08:00', time_zone: Europe/Berlim}\n", "unknown time zone"),
        ("command: x\nwindow: []\n", "wrong length"),
        ("command: x\nshare_class: first\n", "not allowed"),
        ("command: x\ncheckpoint: {signal: SIGKILL}\n", "not a signal that a program can catch"),
        ("command: x\ntopology: {prefer: rack, require: node}\n", "neither or both"),
        ("command: x\nname: ../etc\n", "characters that are not allowed"),
        ("command: x\nname: 训练 一\n", "'训练 一' has characters that are not allowed"),
        ("command: x\nname: a\u202eb\n", r"'a\u202eb' has characters that are not allowed"),
        ("command: x\nenv: {1A: x}\n", "not a name of a variable"),
        ("command: x\nenv: {A: 1.10}\n", "not text"),
        ("command: x\nworkdir: here\n", "is relative"),
        ("command: x\ncommand: y\n", "written twice"),
        ("command: x\ntime_limit: 0s\n", "too small"),
        ("command: x\npriority: background\npreemptible: false\n", "leaves for all other work"),
        ("command: x\npreemptible: beyond-min\ntasks: 4\n", "no role has tasks beyond a minimum"),
        ("command: x\npriority: background\nmin_run_time: 5m\n", "leaves at once for all other work"),
    ],
)
def test_contradictions_and_wrong_values_are_refused_in_words(text: str, words: str) -> None:
    problem = only_problem(text)
    assert words in problem.message
    assert problem.line >= 1
    assert problem.hint


def test_what_linux_hands_to_no_program_is_refused_at_submission_and_read_where_it_is_stored() -> None:
    for text, words in [
        (f"command: echo {'é' * 64_000}\n", "an argument of more than 128 KB"),
        (f"command: [echo, {'x' * 128_001}]\n", "an argument of more than 128 KB"),
        (f"command: x\nenv: {{LIST: {'x' * 127_997}}}\n", "the variable LIST has more than 128 KB"),
    ]:
        assert words in only_problem(text).message
    assert check_job({"command": ["echo", "x" * 128_000], "env": {"LIST": "x" * 127_996}})
    assert stored_job({"command": "x" * 200_000})


def test_what_linux_gives_no_program_together_is_refused_at_the_larger_part_at_submission_alone() -> None:
    def words(count: int) -> list[str]:
        return ["x" * 99_991] * count

    def variables(count: int) -> dict[str, str]:
        return {f"V{index:02}": "x" * 99_987 for index in range(count)}

    fits = {"command": words(9), "env": variables(10)}
    assert check_job(fits)
    by_role = {"roles": [{"name": "a", "command": words(3)}, {"name": "b", "command": words(16)}], "env": variables(4)}
    for document, field in [
        ({**fits, "command": [*words(9), ""]}, "env"),
        ({"command": words(10), "env": variables(9) | {"V": ""}}, "command"),
        (by_role, "roles.1.command"),
    ]:
        with pytest.raises(SpecError) as refused:
            check_job(document)
        (problem,) = refused.value.problems
        assert problem.message == "the command and its variables have more than 1.9 MB together"
        assert problem.loc == field
        assert stored_job(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "- 1\n",
        "just words",
        "a: [",
        "\tcommand: x",
        "a: &a [*a]",
        "[" * 2000,
        "command: !!python/object/apply:os.system [ls]",
        "? [a]\n: b",
        "{" * 500,
        '{"command": "x", "gpus": NaN}',
        "gpus: " + "9" * 5000,
        "command: \x00",
        "command: x\nenv: {<<: 3}",
    ],
)
def test_what_is_no_job_file_at_all_is_refused_and_nothing_else_happens(text: str) -> None:
    assert problems(text)


def test_aliases_of_aliases_do_not_blow_up() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    assert "repeats itself" in problems(f"l0: &l0 [x]\n{levels}\n")[0].message


def test_anchors_and_merge_keys_work() -> None:
    text = "roles:\n- &one {name: a, command: x, cpus: 2}\n- {<<: *one, name: b}\n"
    (spec,) = read_jobs(text)
    first, second = spec.to_job("j").roles
    assert first.request == second.request
    assert second.name == "b"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: x\ncommand: echo a: b", "2:16: not YAML: mapping values are not allowed here; indent the line"),
        ("name: x\ncommand: 'echo\ngpus: 1\n", "2:10: not YAML: what begins here has no end; close it: ' with '"),
        ("name: x\nenv: {A: 1\n", "2:6: not YAML: what begins here has no end; close it: ' with '"),
        ("command: x\nenv: {A: @b}", "2:10: not YAML: found character '@' that cannot start any token; put text"),
        ('command: "a\\qb"', "1:13: not YAML: found unknown escape character 'q'; write \\\\ for a backslash"),
        ("command: 'it's'", "1:14: not YAML: expected <block end>, but found '<scalar>'; look at the quotes"),
        ("command: x\ngpus 1\nname: y", "2:1: not YAML: could not find expected ':'; write 'name: value'"),
        ("command: x\ngpus 1\n", "2:1: not YAML: could not find expected ':'; write 'name: value'"),
        ("command: *.py", "1:11: not YAML: expected alphabetic or numeric character, but found '.'; put text"),
        ("command: *py", "1:10: not YAML: found undefined alias 'py'; put text that begins with * or & in quotes"),
        ("command: true", "1:10: command: true is not text; put it in quotes"),
        ("command: [true, 5]", "1:10: command: true is not text; put it in quotes"),
    ],
)
def test_what_is_not_meant_as_yaml_reads_it_is_named_where_it_begins(text: str, told: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_jobs(text, "job.yaml")
    assert str(refused.value).startswith(f"job.yaml:{told}")


def test_json_with_tabs_and_unicode_escapes_is_placed_too() -> None:
    (spec,) = read_jobs('{\n\t"command": "echo \\ud83d\\ude00"\n}')
    assert spec.commands["worker"] == "echo \U0001f600"
    problem = only_problem('{\n\t"command": "x",\n\t"gpuss": 1\n}')
    assert (problem.line, problem.column) == (3, 2)


FLAT: dict[str, Any] = {
    "jobName": "old-job",
    "image": "pytorch:1.0",
    "dataDir": "/data/in",
    "outputDir": "/data/out",
    "virtualCluster": "vision",
    "gpuType": "V100",
    "retryCount": 2,
    "taskRoles": [
        {"name": "ps", "taskNumber": 1, "cpuNumber": 2, "memoryMB": 4096, "gpuNumber": 0, "command": "serve"},
        {"name": "worker", "taskNumber": 4, "cpuNumber": 8, "memoryMB": 8192, "gpuNumber": 1, "command": "work"},
    ],
}


def test_the_flat_form_is_taken_with_warnings_for_what_has_no_effect() -> None:
    spec = check_job(FLAT)
    job = spec.to_job("old-job-abcde")
    assert [(role.name, role.desired, role.request.devices) for role in job.roles] == [("ps", 1, 0), ("worker", 4, 1)]
    assert (job.name, job.queue, job.retries) == ("old-job", "vision", 2)
    assert job.roles[1].request.models == ("V100",)
    assert job.roles[1].request.memory_mib == 8192
    assert spec.file.env["PAI_DATA_DIR"] == "/data/in"
    assert (spec.file.data, spec.file.output) == ({"data": "/data/in"}, "/data/out")
    assert spec.file.image == ImageRequest(name="pytorch:1.0", optional=True)
    assert spec.warnings == ()
    assert check_job(spec.document).to_job("x") == spec.to_job("x")


def test_directories_of_the_flat_form_that_are_not_of_this_machine_are_only_variables() -> None:
    spec = check_job({**FLAT, "dataDir": "hdfs://host/data", "outputDir": "hdfs://host/out", "codeDir": "/code"})
    assert (spec.file.data, spec.file.output) == ({}, None)
    assert spec.file.env["PAI_OUTPUT_DIR"] == "hdfs://host/out"
    assert [warning.split()[0] for warning in spec.warnings] == ["codeDir", "dataDir", "outputDir"]


@pytest.mark.parametrize(
    ("text", "whole_text"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("pytorch/pytorch:2.4", "docker.io/pytorch/pytorch:2.4"),
        ("nvcr.io/nvidia/pytorch:24.01", "nvcr.io/nvidia/pytorch:24.01"),
        ("host:5000/a", "host:5000/a:latest"),
        (f"a/b@sha256:{'0' * 64}", f"docker.io/a/b@sha256:{'0' * 64}"),
    ],
)
def test_a_reference_is_read_as_docker_reads_it(text: str, whole_text: str) -> None:
    spec = check_job({"command": "x", "image": text})
    assert spec.file.image == ImageRequest(name=text)
    assert whole(text) == whole_text


@pytest.mark.parametrize("text", ["", "-v", "--privileged", "Upper/case", "a b", "a:b:c", "sha256:x/..", "a//b", 7])
def test_what_is_no_reference_is_refused(text: Any) -> None:
    with pytest.raises(SpecError, match="is not the name of an image"):
        check_job({"command": "x", "image": text})


def test_a_repository_is_below_its_registry_and_nothing_that_only_begins_like_it() -> None:
    allowed = ("nvcr.io/nvidia", "host:5000", "docker.io")
    assert is_below("nvcr.io/nvidia/pytorch:1", allowed)
    assert is_below("nvcr.io/nvidia:1", allowed)
    assert is_below("host:5000/a@sha256:0", allowed)
    assert not is_below("nvcr.io/nvidia-fake/x:1", allowed)
    assert not is_below("docker.io.evil.org/x:1", allowed)
    assert not is_below("host:5001/a:1", allowed)


def test_faults_of_the_flat_form_are_told_in_its_own_names() -> None:
    text = """{"jobName": "no good", "taskRoles": [
        {"name": "a", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 1, "command": ""}]}"""
    found = problems(text)
    assert {problem.loc for problem in found} == {"jobName", "taskRoles.0.command"}
    assert all(problem.line for problem in found)
    wrong = check_fails({**FLAT, "taskRoles": [{**FLAT["taskRoles"][0], "gpuNumbr": 1}]})
    assert wrong[0].loc == "taskRoles.0.gpuNumbr"
    assert "gpuNumber" in wrong[0].hint


def check_fails(document: Any) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        check_job(document)
    return caught.value.problems


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("gpus=-1", "--set 'gpus=-1':1:6: gpus: a negative share of GPUs"),
        ("gpuz=2", "--set 'gpuz=2':1:1: gpuz: unknown field 'gpuz'; did you mean 'gpus'?"),
        ("checkpoint.signl=USR1", "--set 'checkpoint.signl=USR1':1:12: checkpoint.signl: unknown field 'signl'"),
        ("tasks={min: 1, max: many}", "--set 'tasks={min: 1, max: many}':1:21: tasks.max: 'many' is not a whole"),
        ("name.first=x", "--set 'name.first=x':1:6: name: it has no fields of its own"),
        ("roles.3.gpus=1", "--set 'roles.3.gpus=1':1:7: roles: there is no entry '3'; the list has 1 entries"),
        ("gpus", "--set 'gpus':1:1: it is not FIELD=VALUE"),
        ("command=", "--set 'command=':1:9: command: an empty command"),
    ],
)
def test_a_fault_in_a_change_beside_the_file_is_told_by_the_change_and_the_place_in_it(change: str, said: str) -> None:
    text = "name: train\nroles:\n- {name: a, command: work}\n"
    with pytest.raises(SpecError) as caught:
        read_jobs(text, "job.yaml", None, [FieldEdit.parse(change)])
    assert said in str(caught.value.problems[0])


def test_with_changes_the_faults_of_the_file_keep_their_place_in_the_file() -> None:
    changes = [FieldEdit.parse("env.A=b"), FieldEdit.parse("checkpoint.grace=5s"), FieldEdit.parse("name=n: o")]
    with pytest.raises(SpecError) as caught:
        read_jobs("command: x\ngpus: -2\n", "job.yaml", None, changes)
    told = sorted((problem.source, problem.loc, problem.line) for problem in caught.value.problems)
    assert told == [("--set 'name=n: o'", "name", 1), ("job.yaml", "gpus", 2)]


def test_changes_reach_the_job_and_make_the_way_they_need() -> None:
    changes = [FieldEdit.parse(text) for text in ("env.A=b", "roles.0.gpus=2", "retries=1", "command=echo a: b")]
    (spec,) = read_jobs("roles:\n- {name: a}\n", "job.yaml", None, changes)
    job = spec.to_job("j")
    assert (job.roles[0].request.devices, job.retries, spec.file.env) == (2, 1, {"A": "b"})
    assert spec.commands == {"a": "echo a: b"}


@pytest.mark.parametrize(
    "text",
    [
        "'Mon-Fri 20:00-08:00 Europe/Berlin'",
        "{hours: '20:00 - 8:00', days: [mon, tue, wed, thursday, fri], time_zone: Europe/Berlin}",
        "['Mon,Tue,Wed-Fri 20:00-08:00 Europe/Berlin']",
    ],
)
def test_a_window_is_written_short_or_long(text: str) -> None:
    (spec,) = read_jobs(f"command: x\nwindow: {text}\n")
    assert spec.to_job("j").windows == (Window(1200, 480, (0, 1, 2, 3, 4), "Europe/Berlin"),)


def test_without_days_and_place_a_window_is_every_day_by_universal_time() -> None:
    (spec,) = read_jobs("command: x\nwindow: 00:00-24:00\n")
    (window,) = spec.to_job("j").windows
    assert str(window) == "00:00-24:00 UTC"


def test_a_window_that_ends_as_it_begins_is_a_whole_day_of_those_named_and_else_refused() -> None:
    (spec,) = read_jobs("command: x\nwindow: Sat,Sun 09:00-09:00\n")
    (window,) = spec.to_job("j").windows
    saturday = 2 * 86_400.0  # 3 January 1970
    hours = (8, 10, 32, 34, 56, 58)
    assert [is_open((window,), saturday + hour * 3_600.0) for hour in hours] == [False, True, True, True, True, False]
    with pytest.raises(SpecError, match=r"window: from 22:00 .* never closes; write 00:00-24:00"):
        read_jobs("command: x\nwindow: 22:00-22:00\n")


@pytest.mark.parametrize(
    ("text", "share_class"),
    [
        ("kind: service\npriority: low\n", ShareClass.ONLINE),
        ("priority: low\n", ShareClass.BACKFILL),
        ("priority: high\n", ShareClass.NORMAL),
        ("kind: service\nshare_class: normal\n", ShareClass.NORMAL),
    ],
)
def test_who_goes_first_on_a_shared_card_follows_kind_and_priority(text: str, share_class: ShareClass) -> None:
    (spec,) = read_jobs(f"command: x\n{text}")
    assert spec.to_job("j").share_class is share_class


@pytest.mark.parametrize(
    ("text", "freeze", "swap"),
    [
        ("", True, True),
        ("tasks: 2\n", False, False),
        ("tasks: 2\ncheckpoint: transparent\n", True, True),
        ("tasks: 2\nsuspend: freeze\n", True, False),
        ("suspend: never\n", False, False),
    ],
)
def test_how_a_job_may_leave_its_cards_is_written_or_follows_its_size(text: str, freeze: bool, swap: bool) -> None:
    (spec,) = read_jobs(f"command: x\n{text}")
    job = spec.to_job("j")
    assert (job.may_freeze, job.may_swap) == (freeze, swap)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('command: "echo \\ud800"\n', "job.yaml:1:10: command: "),
        ('command: x\nenv: {A: "\\udfff"}\n', "job.yaml:2:10: env.A: "),
        ('command: [a, "\\ud800b"]\n', "job.yaml:1:14: command.1: "),
        ('command: x\n"\\ud800": 1\n', "job.yaml:"),
    ],
)
def test_what_is_no_text_is_refused_as_nothing_can_store_it(text: str, place: str) -> None:
    with pytest.raises(SpecError, match="characters that are no text") as caught:
        read_jobs(text, "job.yaml")
    assert str(caught.value).startswith(place)


def test_text_beyond_the_basic_plane_is_text() -> None:
    (spec,) = read_jobs('command: "echo \U0001f986"\n', "job.yaml")
    assert spec.commands == {"worker": "echo \U0001f986"}


@pytest.mark.parametrize(
    "extra", [{}, {"queue": "default", "after": "prepare"}, {"roles": [{"name": "a", "command": "x"}], "command": None}]
)
def test_a_job_put_into_another_queue_is_as_if_its_file_had_named_that_queue(extra: dict[str, Any]) -> None:
    document = {name: value for name, value in ({"command": "run"} | extra).items() if value is not None}
    moved, named = check_job(document).in_queue("nlp"), check_job({**document, "queue": "nlp"})
    assert moved == named
    assert moved.file.model_fields_set == named.file.model_fields_set
