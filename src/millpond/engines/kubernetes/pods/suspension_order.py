"""Whether the task of a pod is to run: written on the pod by the server, answered by the agent of its node.

The agent answers on its own pod, as it has no right to change others. Both are levels, not messages: whichever side
starts anew finds there what the other wants, or has done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from millpond.engines.kubernetes.cluster.objects import read_annotation
from millpond.node.sharing.desired_state import DesiredState

SUSPENSION_ANNOTATION: Final = "millpond.io/desired-state"
ANSWERS_ANNOTATION: Final = "millpond.io/suspensions"


class SuspensionOrder(msgspec.Struct, frozen=True):
    """Where a task is meant to be.

    Attributes:
        decision: the one that wants it so.
    """

    decision: int
    desired: DesiredState

    def annotation(self) -> dict[str, str]:
        """As a pod carries it."""
        return {SUSPENSION_ANNOTATION: msgspec.json.encode(self).decode()}

    @staticmethod
    def of(annotations: Mapping[str, str]) -> SuspensionOrder | None:
        """That of a pod; None of one that was never suspended, or one that was tampered with."""
        return read_annotation(annotations, SUSPENSION_ANNOTATION, SuspensionOrder)


class SuspensionAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an order.

    Attributes:
        refusal: why it was not carried out, and the task is as it was; empty: it was.
        is_lost: the driver failed it, and it cannot go on.
    """

    order: SuspensionOrder
    refusal: str = ""
    is_lost: bool = False


def answers_text(answers: Mapping[str, SuspensionAnswer]) -> str:
    """All answers of an agent, by the uids of the pods, as its own pod carries them."""
    return msgspec.json.encode(answers).decode()


def answers_of(annotations: Mapping[str, str]) -> dict[str, SuspensionAnswer]:
    """Those of an agent's pod; none of one that has none, or one that cannot be read."""
    return read_annotation(annotations, ANSWERS_ANNOTATION, dict[str, SuspensionAnswer]) or {}
