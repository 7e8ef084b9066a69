"""What pods ask of where their like lies: of the next pod by itself, and of the pods of a gang, which come together.

Pods by themselves are placed one after another, as where the next may go follows from where the last lies. So are gangs
that are alike. The pods of one gang are placed at once: what they ask of each other becomes rules of their job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from millpond.engines.kubernetes.adoption.affinities.neighbour_terms import (
    NeighbourTerm,
    PlacedPod,
    affinities,
    aversions,
)
from millpond.engines.kubernetes.adoption.affinities.neighbours import Neighbours
from millpond.engines.kubernetes.adoption.affinities.spread_terms import SpreadTerm, spreads
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.model.task_spacing import SpacingKind, SpacingRule

MutualTerm: TypeAlias = "NeighbourTerm | SpreadTerm"
PodsByRole: TypeAlias = Mapping[str, Sequence[ScheduledPod]]
_KINDS: Final[tuple[tuple[SpacingKind, Callable[[ScheduledPod], tuple[MutualTerm, ...]]], ...]] = (
    (SpacingKind.APART, aversions),
    (SpacingKind.TOGETHER, affinities),
    (SpacingKind.EVEN, spreads),
)
_SAME: Final = "let all pods of a role ask for the same and have the same labels"
_ONE: Final = "Millpond keeps that where it is one such pod, or where all of these lie beside each other"


@dataclass(frozen=True, slots=True)
class GangSpacing:
    """What the pods of a gang ask of each other.

    Attributes:
        within: the terms that speak of it.
        trouble: why they cannot start together as they ask to lie; empty when they can.
    """

    rules: tuple[SpacingRule, ...] = ()
    within: frozenset[MutualTerm] = frozenset()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Spoken:
    """The roles whose pods have a term, and those whose pods it means; in the order of the roles."""

    by: tuple[str, ...]
    of: tuple[str, ...]
    is_mixed: bool


def about_its_like(pod: ScheduledPod) -> tuple[MutualTerm, ...]:
    """What a pod asks that speaks of pods like itself."""
    mutual = (term for term in (*affinities(pod), *aversions(pod)) if means(term, pod))
    return (*mutual, *(term for term in spreads(pod) if term.counts_itself))


def means(term: MutualTerm, pod: ScheduledPod) -> bool:
    """Whether a pod is one of those that a term speaks of."""
    meta = pod.metadata
    if isinstance(term, SpreadTerm):
        return term.matches(PlacedPod(meta.namespace, meta.labels, ""))
    return term.matches(meta.namespace, pod.labels)


def spacing_of(roles: PodsByRole, neighbours: Neighbours) -> GangSpacing:
    """How the pods of a gang must lie towards each other, as other pods lie now."""
    pods = [pod for members in roles.values() for pod in members]
    if len(pods) < 2 or not any(pod.asks_of_others for pod in pods):
        return GangSpacing()
    rules: list[SpacingRule] = []
    within: list[MutualTerm] = []
    for kind, asked in _KINDS:
        for term, spoken in _spoken(roles, asked):
            if spoken.is_mixed:
                return GangSpacing(
                    trouble=f"its pods do not all ask for, or are not all meant by, {term.text}: {_SAME}"
                )
            if isinstance(term, SpreadTerm):
                rules.append(_evenly(term, spoken, neighbours))
            elif kind is SpacingKind.APART:
                rules.append(SpacingRule(kind, term.topology_key, spoken.by, spoken.of))
            elif not neighbours.lie_anywhere(term):  # else each pod lies beside those that are there
                together = _together(spoken, roles)
                if not together:
                    return GangSpacing(
                        trouble=f"its pods must lie beside pods {term.text}, which start with them: {_ONE}"
                    )
                rules.append(SpacingRule(kind, term.topology_key, together))
            within.append(term)
    return GangSpacing(tuple(rules), frozenset(within))


def _spoken(
    roles: PodsByRole, asked: Callable[[ScheduledPod], tuple[MutualTerm, ...]]
) -> Iterator[tuple[MutualTerm, _Spoken]]:
    """The terms of one kind that mean pods of the gang."""
    said = {role: [asked(pod) for pod in pods] for role, pods in roles.items()}
    for term in dict.fromkeys(term for terms in said.values() for each in terms for term in each):
        have = {role: {term in each for each in terms} for role, terms in said.items()}
        meant = {role: {means(term, pod) for pod in pods} for role, pods in roles.items()}
        of = tuple(role for role, found in meant.items() if True in found)
        if of:
            by = tuple(role for role, found in have.items() if True in found)
            yield term, _Spoken(by, of, any(len(found) > 1 for found in (*have.values(), *meant.values())))


def _together(spoken: _Spoken, roles: PodsByRole) -> tuple[str, ...]:
    """The roles that have to lie in one place for it; empty: no such rule says it."""
    if set(spoken.by) <= set(spoken.of):
        return spoken.by
    is_one = sum(len(roles[role]) for role in spoken.of) == 1
    return tuple(role for role in roles if role in {*spoken.by, *spoken.of}) if is_one else ()


def _evenly(term: SpreadTerm, spoken: _Spoken, neighbours: Neighbours) -> SpacingRule:
    counted, empty = neighbours.tally(term).by_place
    return SpacingRule(
        SpacingKind.EVEN, term.topology_key, spoken.by, spoken.of, term.most, counted, empty, term.least_places
    )
