"""The section ``kubernetes`` of the configuration."""

from __future__ import annotations

import pytest

from millpond.specs.config.cluster import read_cluster
from millpond.specs.errors import SpecError


def test_extended_resources_have_names_for_jobs() -> None:
    settings = read_cluster("kubernetes: {extras: {rdma: rdma/hca_shared_devices_a, fpga: a.io/fpga}}\n").kubernetes
    assert settings is not None
    assert settings.extras == {"rdma": "rdma/hca_shared_devices_a", "fpga": "a.io/fpga"}


@pytest.mark.parametrize(
    ("extras", "words"),
    [
        ("{gpu-slices: a.io/x}", "gpu-slices stands for parts of cards"),
        ("{one: a.io/x, two: a.io/x}", "a.io/x has two names"),
        ("{cards: nvidia.com/gpu}", "nvidia.com/gpu stands for cards"),
        ("{milli: millpond.io/gpu-milli}", "millpond.io/gpu-milli stands for cards"),
        ("{rdma: hca}", "hca"),
        (str({f"n{number}": f"a.io/{number}" for number in range(8)}), "7"),
    ],
)
def test_extended_resources_that_cannot_be_counted_are_refused(extras: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_cluster(f"kubernetes: {{extras: {extras}}}\n")
