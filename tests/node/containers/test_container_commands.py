"""What each container runtime is told, word for word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.node.containers import detection, supervision
from millpond.node.containers.apptainer import Apptainer
from millpond.node.containers.container import Container, Runtime, variables_text
from millpond.node.containers.container_launch import outer_first
from millpond.node.containers.detection import RuntimeChoice, find_containers
from millpond.node.containers.oci import Docker, Podman
from millpond.node.sandbox.sandbox import Mount
from millpond.node.task.start_plan import ContainerPlan

CONTAINER = Container(
    name="millpond-1",
    image="sha256:abc",
    argv=("python", "train.py"),
    workdir=Path("/home/ada"),
    variables=Path("/state/task-0.env"),
    scratch=Path("/state/task-0.scratch"),
    labels={"millpond.state": "mark", "millpond.job": "train-abcde"},
    mounts=(Mount(Path("/home/ada"), True), Mount(Path("/datasets"), False)),
    cards=("GPU-1", "GPU-2"),
    memory_mib=2048,
    cpu_milli=1500,
    owner=(1000, 1000),
)

ALIKE = """run --name millpond-1 --init --network host --ipc host --uts host --security-opt no-new-privileges
--log-driver none --pull never --entrypoint  --no-healthcheck --workdir /home/ada
--tmpfs /tmp:rw,exec,mode=1777,size=2048m --env-file /state/task-0.env
--label millpond.state=mark --label millpond.job=train-abcde
--volume /home/ada:/home/ada:rw --volume /datasets:/datasets:ro --user 1000:1000
--memory 2048m --memory-swap 2048m --cpu-shares 1536"""


PODMAN = f"""/usr/bin/podman {ALIKE} --security-opt label=disable --sig-proxy=false
--device nvidia.com/gpu=GPU-1 --device nvidia.com/gpu=GPU-2 sha256:abc python train.py"""

DOCKER = f"""/usr/bin/docker {ALIKE} --env TINI_KILL_PROCESS_GROUP=1
--gpus "device=GPU-1,GPU-2" sha256:abc python train.py"""

APPTAINER = """/usr/bin/apptainer exec --containall --no-home --writable-tmpfs --workdir /state/task-0.scratch
--bind /dev/shm --pwd /home/ada --bind /home/ada:/home/ada:rw --bind /datasets:/datasets:ro
--nv sha256:abc python train.py"""


def words(text: str) -> list[str]:
    return text.replace("\n", " ").split(" ")


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        (Podman("/usr/bin/podman"), PODMAN),
        (Docker("/usr/bin/docker"), DOCKER),
        (Apptainer("/usr/bin/apptainer", Path("/state/images")), APPTAINER),
    ],
    ids=["podman", "docker", "apptainer"],
)
def test_a_runtime_is_told_everything(runtime: Runtime, expected: str) -> None:
    assert runtime.run(CONTAINER) == words(expected)


@pytest.mark.parametrize("runtime", [Podman("p"), Docker("d")], ids=lambda each: each.name)
def test_standard_input_is_passed_on_where_the_task_reads_it(runtime: Runtime) -> None:
    assert "--interactive" in runtime.run(replace(CONTAINER, reads_input=True))


@pytest.mark.parametrize("runtime", [Podman("p"), Docker("d")], ids=lambda each: each.name)
def test_a_task_that_asks_for_no_amount_of_memory_has_a_tmp_as_the_kernel_bounds_it(runtime: Runtime) -> None:
    assert "/tmp:rw,exec,mode=1777" in runtime.run(replace(CONTAINER, memory_mib=0))


@pytest.mark.parametrize("runtime", [Podman("p"), Docker("d")], ids=lambda each: each.name)
def test_the_number_of_processes_is_bounded_where_there_are_control_groups(runtime: Podman | Docker) -> None:
    told = runtime.run(replace(CONTAINER, processes=100))
    assert told[told.index("--pids-limit") + 1] == "100"
    assert "--pids-limit" not in replace(runtime, limits=False).run(replace(CONTAINER, processes=100))


@pytest.mark.parametrize("runtime", [Podman("p"), Docker("d")], ids=lambda each: each.name)
def test_a_task_without_cards_sees_none_whatever_its_image_asks_of_nvidias_runtime(runtime: Runtime) -> None:
    told = runtime.run(replace(CONTAINER, cards=()))
    assert told[told.index("NVIDIA_VISIBLE_DEVICES=void") - 1] == "--env"
    assert "NVIDIA_VISIBLE_DEVICES=void" not in runtime.run(CONTAINER)


@pytest.mark.parametrize("runtime", [Podman("p"), Docker("d"), Apptainer("a", Path("/i"))], ids=lambda each: each.name)
def test_what_is_not_asked_for_is_not_said(runtime: Runtime) -> None:
    told = runtime.run(replace(CONTAINER, mounts=(), cards=(), memory_mib=0, cpu_milli=0, owner=None))
    unwanted = {"--memory", "--cpu-shares", "--user", "--device", "--gpus", "--nv", "--volume", "--interactive"}
    assert unwanted.isdisjoint(told)
    assert not any("docker.sock" in word or "privileged" in word.replace("no-new-privileges", "") for word in told)


def test_without_roots_rights_files_belong_to_who_starts_the_container() -> None:
    told = Podman("p", limits=False, rootless=True).run(replace(CONTAINER, owner=None))
    assert told[told.index("--userns") + 1] == "keep-id"
    assert "--memory" not in told


@pytest.mark.parametrize("runtime", [Podman("p"), Docker("d")], ids=lambda each: each.name)
def test_a_jobs_variables_do_not_speak_to_a_runtime_with_the_servers_rights(runtime: Runtime) -> None:
    assert runtime.environment({"LD_PRELOAD": "/mine.so", "DOCKER_HOST": "elsewhere"}) == {}


def test_apptainer_finds_a_jobs_variables_under_names_that_mean_nothing_to_itself() -> None:
    assert Apptainer("a", Path("/i")).environment({"LD_PRELOAD": "x"}) == {"APPTAINERENV_LD_PRELOAD": "x"}


def test_variables_stand_on_a_line_each_and_one_of_several_lines_is_refused() -> None:
    assert variables_text({"A": "1 # 2", "B": '"x"'}) == 'A=1 # 2\nB="x"\n'
    with pytest.raises(InvalidInputError, match="the variable KEY has several lines"):
        variables_text({"KEY": "a\nPATH=b"})


def test_of_a_path_twice_the_writable_counts_and_the_outer_comes_first() -> None:
    paths = [Mount(Path("/a/b"), False), Mount(Path("/a"), False), Mount(Path("/a/b"), True)]
    assert outer_first(paths) == [Mount(Path("/a"), False), Mount(Path("/a/b"), True)]


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_where_nothing_works_the_error_says_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path, "docker", "echo 'cannot connect to the daemon' >&2; exit 1")
    with pytest.raises(UnavailableError) as caught:
        find_containers(RuntimeChoice.AUTO, tmp_path)
    assert caught.value.cause == (
        "no container runtime works here: podman is not installed, "
        "docker does not work (cannot connect to the daemon), apptainer is not installed"
    )
    assert "apt install podman" in caught.value.remedy


def test_the_first_that_works_is_taken_and_another_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(detection, "_INITS", ("/bin/sh",))
    info = '{"host": {"cgroupControllers": ["cpu"], "security": {"rootless": true}}, "version": {"Version": "5.0"}}'
    program(tmp_path, "podman", f"echo '{info}'")
    program(tmp_path, "docker", "echo 27.1")
    found = find_containers(RuntimeChoice.AUTO, tmp_path)
    assert (found.version, found.runtime) == ("podman 5.0", Podman(str(tmp_path / "podman"), False, True))
    assert find_containers(RuntimeChoice.DOCKER, tmp_path).version == "docker 27.1"
    with pytest.raises(UnavailableError, match="switched off"):
        find_containers(RuntimeChoice.NONE, tmp_path)


def test_a_runtime_that_cannot_be_asked_to_end_a_container_is_named_in_the_supervisors_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    supervision.kill(cast(ContainerPlan, SimpleNamespace(kill=["/none/podman", "kill", "task"], env={})))
    assert "the container's runtime cannot be asked: [Errno 2] No such file or directory: '/none/podman'" in (
        capfd.readouterr().err
    )
