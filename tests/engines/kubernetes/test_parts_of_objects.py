"""Some objects of a kind are kept with more of them, by the lists and the watch of all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from millpond.engines.kubernetes.adoption.foreign_pods import SCHEDULED_PODS
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.api_channel import ApiChannel
from millpond.engines.kubernetes.cluster.objects import PodObject
from millpond.engines.kubernetes.cluster.reflector import ObjectKind, PartialCopy, Reflector
from millpond.engines.kubernetes.pods.pod_marks import SERVER_LABEL

THEIRS, OWN, OTHER = "adopted", "made by a server", "of another scheduler"
GONE = "gone"


def pod(name: str, kind: str, version: int) -> dict[str, Any]:
    """A pod that Millpond schedules for others, or not."""
    labels = {SERVER_LABEL: "s"} if kind == OWN else {}
    meta = {"name": name, "namespace": "team", "uid": f"{name}-1", "labels": labels, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"schedulerName": "other" if kind == OTHER else "millpond", "containers": []}}


class Told:
    """A cluster that lists these pods, then tells of these changes, one piece after the other."""

    def __init__(self, listed: Sequence[dict[str, Any]], lines: Sequence[bytes]) -> None:
        self._listed, self._lines = listed, lines
        self.through = asyncio.Event()

    async def get(self, *_words: object) -> bytes:
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": self._listed}).encode()

    async def follow(self, *_words: object) -> AsyncGenerator[bytes, None]:
        yield b""
        for line in self._lines:
            yield line
        self.through.set()
        await asyncio.Event().wait()


def kept(listed: Sequence[dict[str, Any]], lines: Sequence[bytes]) -> tuple[set[str], set[str], set[str]]:
    """The names of all pods, of the part of them, and of those that its hearer believes to be there."""

    async def follow() -> tuple[set[str], set[str], set[str]]:
        heard: set[str] = set()
        part = PartialCopy[ScheduledPod](
            SCHEDULED_PODS, lambda pod: heard.add(pod.metadata.name), lambda pod: heard.remove(pod.metadata.name)
        )
        told = Told(listed, lines)
        channel = cast(ApiChannel, told)
        reflector = Reflector(channel, ObjectKind("/api/v1/pods", PodObject), lambda _: None, lambda _: None)
        reflector.parts = [part]
        following = asyncio.create_task(reflector.run())
        async with asyncio.timeout(30):
            await told.through.wait()
        following.cancel()
        return {each.metadata.name for each in reflector.objects.values()}, {*map(_name, part.objects.values())}, heard

    return asyncio.run(follow())


def _name(pod: ScheduledPod) -> str:
    return pod.metadata.name


KINDS = st.sampled_from([THEIRS, OWN, OTHER])


@given(
    listed=st.dictionaries(st.sampled_from("abcd"), KINDS),
    changes=st.lists(st.tuples(st.sampled_from("abcd"), KINDS | st.just(GONE)), max_size=12),
)
def test_a_part_has_what_is_one_of_it_at_each_time(listed: dict[str, str], changes: list[tuple[str, str]]) -> None:
    there, lines = dict(listed), []
    for version, (name, kind) in enumerate(changes, 2):
        word = "DELETED" if kind == GONE else "MODIFIED" if name in there else "ADDED"
        before = there.pop(name, None)
        if kind != GONE:
            there[name] = kind
        elif before is None:
            continue
        told = pod(name, kind if kind != GONE else before or "", version)
        lines.append(json.dumps({"type": word, "object": told}).encode() + b"\n")
    everything, part, heard = kept([pod(name, kind, 1) for name, kind in listed.items()], lines)
    assert everything == there.keys()
    assert part == heard == {name for name, kind in there.items() if kind == THEIRS}
