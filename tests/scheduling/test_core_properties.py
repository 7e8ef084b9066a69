"""Whatever happens in whatever order, the core keeps its promises (see ``core_machine``)."""

from __future__ import annotations

import pytest
from core_machine import CoreMachine
from hypothesis import HealthCheck, Phase, settings

TestCore = CoreMachine.TestCase
TestCore.settings = settings(
    max_examples=10,
    stateful_step_count=30,
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.long
class TestCoreWithCompiledTwins(TestCore):
    """Quick tests compile no kernels, and try a third of this."""

    settings = settings(TestCore.settings, max_examples=30)
