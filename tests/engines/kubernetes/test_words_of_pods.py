"""What kubelets read in the words of commands and in the values of variables, and what programs are to get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pod_bench import PodBench, start

from millpond.engines.kubernetes.pods.pod_template import RoleNeeds, literal


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """What a kubelet makes of a word (``k8s.io/kubernetes/third_party/forked/golang/expansion/expand.go``)."""
    found, place = "", 0
    while place < len(text):
        rest = text[place + 1 :]
        if text[place] != "$" or not rest:
            found, place = found + text[place], place + 1
        elif rest[0] == "$":
            found, place = f"{found}$", place + 2
        elif rest[0] == "(" and ")" in rest:
            name = rest[1 : rest.index(")")]
            found, place = found + variables.get(name, f"$({name})"), place + 3 + len(name)
        else:
            found, place = f"{found}${rest[0]}", place + 2
    return found


@given(st.text("$()RANK x\n"))
@example("echo $$ $(RANK) $$(RANK) $((1 + 1)) ${RANK} $")
def test_a_program_gets_its_words_as_they_were_written(text: str) -> None:
    assert expanded(literal(text), {"RANK": "0", "": "nothing"}) == text


@pytest.mark.parametrize("command", ["kill $$; echo $(RANK)", ("sh", "-c", "kill $$; echo $(RANK)")])
def test_commands_and_variables_of_jobs_are_not_read_by_kubelets(
    bench: PodBench, command: str | tuple[str, ...]
) -> None:
    bench.launch = replace(bench.launch, roles={"worker": RoleNeeds(command, 1000, 64)}, env={"PASSWORD": "pa$$word"})
    bench.engine.apply([start(1)])
    (container,) = bench.bound("train-abcde-1-0")["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert expanded(container["command"][-1], env) == "kill $$; echo $(RANK)"
    assert expanded(env["PASSWORD"], env) == "pa$$word"
