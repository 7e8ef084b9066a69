"""Which folders of a cluster's volumes the jobs of a queue may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.model.errors import InvalidInputError
from millpond.server.storage.files.mounts import MountRules
from millpond.server.storage.files.volumes import VolumeRules
from millpond.specs.config.cluster import read_cluster
from millpond.specs.config.queue_documents import read_queue_rules
from millpond.specs.errors import SpecError

CONFIG = """\
kubernetes:
  volumes:
    words: {claim: words, path: /datasets/words, read_only: true}
    all: {claim: all, path: /datasets}
    scratch: {host_path: /mnt/scratch}
queues: [{name: vision, data: [/datasets/words], output: [/mnt/scratch/vision]}, {name: free}]
"""


@pytest.fixture
def rules(tmp_path: Path) -> VolumeRules:
    config = read_cluster(CONFIG)
    assert config.kubernetes is not None
    volumes = config.kubernetes.volumes
    queues = read_queue_rules(config.queue_documents)
    return VolumeRules(MountRules(lambda: queues, tmp_path), lambda: volumes)


def test_a_path_belongs_to_the_innermost_volume_that_it_lies_in(rules: VolumeRules) -> None:
    for path, name, below in (
        ("/datasets/words", "words", ""),
        ("/datasets/words/a/b", "words", "a/b"),
        ("/datasets/words2", "all", "words2"),
        ("/datasets/words/../other", "all", "other"),
        ("/mnt/scratch/.hidden", "scratch", ".hidden"),
    ):
        place = rules.place(path)
        assert place is not None
        assert (place.name, place.below) == (name, below)


@pytest.mark.parametrize("path", ["/etc", "/", "/mnt", "/mnt/scratch/../../etc", "/mnt/scratchy", "//etc"])
def test_a_path_in_no_volume_is_refused_with_those_that_there_are(rules: VolumeRules, path: str) -> None:
    with pytest.raises(InvalidInputError, match="lies in no volume") as refused:
        rules.readable("free", path)
    assert "/datasets, /datasets/words, /mnt/scratch" in refused.value.remedy


def test_a_read_only_volume_is_no_place_for_output(rules: VolumeRules) -> None:
    with pytest.raises(InvalidInputError, match="volume words is read-only"):
        rules.writable("free", "/datasets/words/mine")
    assert rules.writable("free", "/datasets/mine") == Path("/datasets/mine")


def test_the_lists_of_queues_hold_for_volumes_too(rules: VolumeRules) -> None:
    assert rules.readable("vision", "/datasets/words/a") == Path("/datasets/words/a")
    with pytest.raises(InvalidInputError, match="may not read /datasets/other"):
        rules.readable("vision", "/datasets/other")
    with pytest.raises(InvalidInputError, match=r"may not write .*/\.\./x"):
        rules.writable("vision", "/mnt/scratch/vision/../x")
    assert rules.writable("vision", "/mnt/scratch/vision/run1") == Path("/mnt/scratch/vision/run1")


@pytest.mark.parametrize(
    ("volume", "said"),
    [
        ("{claim: a}", "claim a has no path"),
        ("{path: /a}", "a claim or a host_path"),
        ("{claim: a, host_path: /a, path: /a}", "a claim or a host_path"),
        ("{host_path: /}", "folder below /"),
        ("{host_path: /a/../b}", "folder below /"),
        ("{host_path: a}", "relative"),
    ],
)
def test_a_volume_that_cannot_be_is_refused_with_its_line(volume: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        read_cluster(f"kubernetes:\n  volumes:\n    one: {volume}\n")


def test_two_volumes_are_not_one_folder() -> None:
    with pytest.raises(SpecError, match="one and two are both /a"):
        read_cluster("kubernetes: {volumes: {one: {host_path: /a}, two: {claim: b, path: /a}}}\n")
