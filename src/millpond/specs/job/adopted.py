"""Which pods of others a job stands for, where a Kubernetes cluster has them and Millpond schedules them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from millpond.specs.validation import Strict

ObjectText = Annotated[str, Field(max_length=253)]


class AdoptedPods(Strict):
    """What the pods have in common.

    Attributes:
        namespace: where they are.
        kind: what groups them: the kind of their owner, of a group, or ``Pod`` for one by itself.
        name: of the owner, of the group, or of the pod.
        uid: of the same, where pods tell it.
        part: which of the owner's gangs, where it has several.
    """

    namespace: ObjectText
    kind: ObjectText
    name: ObjectText
    uid: ObjectText = ""
    part: ObjectText = ""
