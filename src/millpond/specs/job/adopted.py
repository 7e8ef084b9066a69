"""Which pods of others a job stands for, where a Kubernetes cluster has them and Millpond schedules them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement, NodeSelection
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.specs.validation import Strict

ObjectText = Annotated[str, Field(max_length=253)]


class SelectedNodes(Strict):
    """What the label of a node must be that the pods may have.

    Attributes:
        key: of the label.
        operator: how its value is compared, as in a node affinity; ``AbsentOrIn`` of the taints of nodes.
        values: with what.
    """

    key: Annotated[str, Field(max_length=400)]
    operator: Annotated[NodeOperator, Field(strict=False)]
    values: list[Annotated[str, Field(max_length=300)]] = Field(default=[])

    @property
    def requirement(self) -> NodeRequirement:
        """The model's form."""
        return NodeRequirement(self.key, self.operator, tuple(self.values))


class PodSpacing(Strict):
    """How the pods must lie towards each other, see ``model.task_spacing.SpacingRule``.

    Attributes:
        kind: together, apart or evenly.
        label: of nodes; those with the same value of it are one place.
        roles: of the pods that are meant.
        others: the roles that are kept off, or that count.
        most: so many more a place may have than the one with the fewest.
        counted: what counts beside these pods, by place.
        empty: how many more places there are, with none.
        least_places: with fewer places than this, the fewest is none.
    """

    kind: Annotated[SpacingKind, Field(strict=False)]
    label: Annotated[str, Field(max_length=400)]
    roles: list[ObjectText]
    others: list[ObjectText] = Field(default=[])
    most: int = 1
    counted: dict[str, int] = Field(default={})
    empty: int = 0
    least_places: int = 1

    @property
    def rule(self) -> SpacingRule:
        """The model's form."""
        return SpacingRule(
            self.kind,
            self.label,
            tuple(self.roles),
            tuple(self.others),
            self.most,
            tuple(self.counted.items()),
            self.empty,
            self.least_places,
        )


class AdoptedPods(Strict):
    """What the pods have in common.

    Attributes:
        namespace: where they are.
        kind: what groups them: the kind of their owner, of a group, or ``Pod`` for one by itself.
        name: of the owner, of the group, or of the pod.
        uid: of the same, where pods tell it.
        part: which of the owner's gangs, where it has several.
        cluster: the one of several that has them; empty where there is one.
        nodes: which nodes they may have: alternatives, each of requirements that all hold; left out: any.
        spacing: how they must lie towards each other.
        contents: what their nodes need, as they report it: images.
    """

    namespace: ObjectText
    kind: ObjectText
    name: ObjectText
    uid: ObjectText = ""
    part: ObjectText = ""
    cluster: ObjectText = ""
    nodes: list[list[SelectedNodes]] = Field(default=[])
    spacing: list[PodSpacing] = Field(default=[])
    contents: list[str] = Field(default=[])

    @property
    def selection(self) -> NodeSelection:
        """The model's form of ``nodes``."""
        return tuple(tuple(each.requirement for each in term) for term in self.nodes)
