"""The gangs whose pods wait: brought up to date with each pod that comes, changes or goes. Lives on the engine's loop.

What is known of a gang follows from its pods and from its owner as they are now, so nothing has to be stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from millpond.engines.kubernetes.adoption.affinities.gang_affinities import MutualTerm, about_its_like, spacing_of
from millpond.engines.kubernetes.adoption.affinities.neighbours import Neighbours
from millpond.engines.kubernetes.adoption.claim_places import ClaimPlaces, claims_of, read_places
from millpond.engines.kubernetes.adoption.gang_sizes import GangSize, read_size
from millpond.engines.kubernetes.adoption.gangs import POD, FoundGang, GangKey, GangTerms, PodRole
from millpond.engines.kubernetes.adoption.grouping import GROUPS, gang_of, place_of, role_of
from millpond.engines.kubernetes.adoption.kubelet_refusals import KubeletRefusals
from millpond.engines.kubernetes.adoption.pod_demand import PodDemand, demand_of, terms_of
from millpond.engines.kubernetes.adoption.pod_nodes import asks_by_number, given_by_claims, within_both
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.claims.claim_book import ClaimBook
from millpond.engines.kubernetes.claims.claim_requests import ClaimDemand, demand_of_claims
from millpond.engines.kubernetes.claims.claiming_gangs import ClaimingGangs
from millpond.engines.kubernetes.cluster.cluster_api import ClusterApi
from millpond.engines.kubernetes.cluster.cluster_nodes import images_of
from millpond.engines.kubernetes.loop_work import again_and_again
from millpond.model.hardware.node_selection import NodeSelection
from millpond.model.resources import TaskRequest
from millpond.model.task_spacing import SpacingKind

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 3.0
"""How often the owners of gangs are asked again that cannot start as they are."""
MOST_ASKED: Final = 10
"""So many groups of those that could start are asked again each time, as somebody may have changed their size."""
TOGETHER_S: Final = 0.02
"""Pods of a gang come one after the other; it is looked at once for all that come within so long."""
_UNNAMED: Final = "worker"


@dataclass(frozen=True, slots=True)
class FoundPodRules:
    """What is to be known about pods that were found.

    Attributes:
        is_ours: whether pods of a namespace are adopted.
        is_taken: whether a run of a job has a pod, by its namespace and name.
        marks: the pseudo-labels by which nodes differ, see ``pod_nodes``.
        neighbours: beside which pods nodes are.
        refusals: which nodes take no pods of whom for a while.
        claims: what resource claims there are, and which nodes have cards for them.
        extras: what jobs call other extended resources, by their names in the cluster.
    """

    is_ours: Callable[[str], bool]
    is_taken: Callable[[str], bool]
    marks: Callable[[], frozenset[str]]
    neighbours: Neighbours
    refusals: KubeletRefusals
    claims: ClaimBook
    extras: Mapping[str, str]


class GangBook:
    """All gangs of pods that others made, by what Kubernetes says of their pods and owners.

    Args:
        said: called with each gang whose trouble or terms have changed, and that has pods waiting.
        begin: runs a coroutine beside everything else.

    Attributes:
        alike: for each gang, where its pods ask to lie relative to pods like themselves.
    """

    def __init__(
        self,
        api: ClusterApi,
        rules: FoundPodRules,
        said: Callable[[FoundGang], None],
        begin: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._api = api
        self._rules = rules
        self._said = said
        self._begin = begin
        self._pods: defaultdict[GangKey, dict[str, ScheduledPod]] = defaultdict(dict)
        self._gang_of: dict[str, GangKey] = {}
        """By pod: its labels and its owner may change, and then it is one of another gang."""
        self._demands: dict[str, tuple[ScheduledPod, ClaimDemand, PodDemand]] = {}
        """By pod, what it asks for: a gang is looked at again and again, and its pods stay as they are."""
        self._sizes: dict[GangKey, GangSize] = {}
        self._places: dict[GangKey, ClaimPlaces] = {}
        self._claiming = ClaimingGangs()
        rules.claims.when_changed(self._claim_changed)
        self._found: dict[GangKey, FoundGang] = {}
        self.alike: dict[GangKey, tuple[MutualTerm, ...]] = {}
        self._counting: set[GangKey] = set()
        """Those of which is known how many other pods count where."""
        self._tallied_at = 0
        self._described_with: tuple[object, ...] = ()
        """The marks and versions with which all gangs were described last: if one has changed, all are looked at."""
        self._stale: set[GangKey] = set()
        self._asking: set[GangKey] = set()

    def find(self) -> tuple[FoundGang, ...]:
        """Those with pods that wait, as of this moment."""
        self._refresh_all()
        return tuple(self._found.values())

    def pod_changed(self, pod: ScheduledPod) -> None:
        """A pod is there, or has changed."""
        if self._rules.is_ours(pod.metadata.namespace):
            key = gang_of(pod)
            if self._gang_of.get(pod.key, key) != key:
                self.pod_deleted(pod)
            self._gang_of[pod.key] = key
            self._pods[key][pod.key] = pod
            if not pod.waits:
                self._demands.pop(pod.key, None)
            self.refresh(key)

    def pod_deleted(self, pod: ScheduledPod) -> None:
        """A pod is gone, or belongs to another gang from now on."""
        key = self._gang_of.pop(pod.key, None)
        if key is not None:
            self._pods[key].pop(pod.key, None)
            self._demands.pop(pod.key, None)
            self.refresh(key)

    def _claim_changed(self, claim: str) -> None:
        for key in self._claiming.of(claim):
            self.refresh(key)

    def pods_of(self, key: GangKey) -> Collection[ScheduledPod]:
        """All pods of a gang that are there."""
        there = self._pods.get(key)
        return () if there is None else there.values()

    def refusals_for(self, key: GangKey) -> str:
        """Why the pods of a gang keep off nodes that looked right for them; empty: they do not."""
        return self._rules.refusals.text(self.waiting(key))

    def waiting(self, key: GangKey) -> list[ScheduledPod]:
        """The pods of a gang that could be bound, in the order of their tasks."""
        return sorted(
            (pod for pod in self.pods_of(key) if pod.waits and not self._rules.is_taken(pod.key)), key=place_of
        )

    def waiting_by_role(self, key: GangKey) -> Mapping[str, list[ScheduledPod]]:
        """The same, by the names of their roles."""
        waiting = self.waiting(key)
        if len(waiting) == 1:
            return {_name_of(waiting[0]): waiting}
        named: defaultdict[str, list[ScheduledPod]] = defaultdict(list)
        for (name, _), pods in _roles(waiting, [self._demand_of(pod) for pod in waiting]):
            named[name] += pods
        return named

    def refresh(self, key: GangKey) -> None:
        """Look at a gang anew, once for all that happens to it in a moment."""
        if not self._stale:
            asyncio.get_running_loop().call_later(TOGETHER_S, self._refresh_all)
        self._stale.add(key)

    def _refresh_all(self) -> None:
        seen = (self._rules.marks(), self._rules.neighbours.version, self._rules.refusals.version)
        if seen != self._described_with:
            self._described_with = seen
            self._stale |= self._found.keys()
        if self._rules.neighbours.tallied != self._tallied_at:
            self._tallied_at = self._rules.neighbours.tallied
            self._stale |= self._counting
        stale, self._stale = self._stale, set()
        for key in stale:
            try:
                self._refresh(key)
            except Exception as error:  # one gang must not hold up all others
                log.exception("%s cannot be looked at by a defect: its pods wait", key.text)
                words = f"{key.text} cannot be looked at by a defect ({type(error).__name__}): see the server's log"
                self._found[key] = gang = FoundGang(key, GangTerms(), trouble=words)
                self._said(gang)

    def _refresh(self, key: GangKey) -> None:
        waiting = self.waiting(key)
        for claim in self._claiming.note(key, (pod for pod in self.pods_of(key) if pod.waits)):
            self._claim_changed(claim)
        if not waiting:
            self._found.pop(key, None)
            self.alike.pop(key, None)
            self._counting.discard(key)
            if not self.pods_of(key):
                self._pods.pop(key, None)
                self._sizes.pop(key, None)
                self._places.pop(key, None)
            return
        size, places = GangSize() if key.kind == POD else self._sizes.get(key), self._places.get(key, ClaimPlaces())
        if size is None or places.claims != _claims_of(waiting):
            self._ask(key)
            return
        before, gang = self._found.get(key), self._describe(key, waiting, size)
        self._found[key] = gang
        if alike := tuple(dict.fromkeys(term for pod in waiting if pod.asks_of_others for term in about_its_like(pod))):
            self.alike[key] = alike
        if any(rule.kind is SpacingKind.EVEN for rule in gang.terms.spacing):
            self._counting.add(key)
        if before is None or (gang.trouble, gang.terms) != (before.trouble, before.terms):
            self._said(gang)

    def work(self) -> Coroutine[Any, Any, None]:
        """What is to run: it asks for the sizes of those that cannot start, and of groups, again and again."""
        return again_and_again(self._look_again, LOOK_AGAIN_S, "sizes of gangs are not asked for now")

    async def _look_again(self) -> None:
        self._rules.refusals.expire()
        found = self.find()
        for gang in found:
            if gang.trouble and (gang.key.kind != POD or gang.key in self._places):
                self._ask(gang.key)
        ready = [gang.key for gang in found if not gang.trouble and gang.key.kind in GROUPS]
        for key in ready[:MOST_ASKED]:
            self._ask(key)
            self._found[key] = self._found.pop(key)  # behind all others, which are asked next

    def _ask(self, key: GangKey) -> None:
        if key not in self._asking:
            self._asking.add(key)
            self._begin(self._learn(key))

    async def _learn(self, key: GangKey) -> None:
        waiting = self.waiting(key)
        try:
            if key.kind != POD:
                self._sizes[key] = await read_size(self._api, key, list(self.pods_of(key)))
            self._places[key] = replace(await read_places(self._api, waiting), claims=_claims_of(waiting))
        except Exception as error:  # it would wait without a word
            log.exception("what %s needs cannot be read by a defect", key.text)
            trouble = f"what {key.text} needs cannot be read by a defect ({type(error).__name__}): see the server's log"
            self._sizes[key] = GangSize(trouble=trouble)
            self._places[key] = ClaimPlaces(trouble=trouble, claims=_claims_of(waiting))
        finally:
            self._asking.discard(key)
        self.refresh(key)

    def _describe(self, key: GangKey, waiting: Sequence[ScheduledPod], size: GangSize) -> FoundGang:
        marks = self._rules.marks()
        terms, places = terms_of(waiting[0], marks), self._places.get(key, ClaimPlaces())
        demands = [self._demand_of(pod) for pod in waiting]
        cards = reduce(within_both, dict.fromkeys(demand.selection for demand in demands))
        grouped = _roles(waiting, demands)
        spacing = spacing_of({name: pods for (name, _), pods in grouped}, self._rules.neighbours)
        asked = self._asked_by_neighbours(waiting, spacing.within)
        selection = within_both(within_both(terms.selection, places.selection), within_both(cards, asked))
        said = size.count if key.kind in GROUPS and not size.trouble else 0
        containers = (each for pod in waiting for each in (*pod.spec.init_containers, *pod.spec.containers))
        contents = tuple(sorted(images_of(containers)))
        gang = FoundGang(key, replace(terms, selection=selection, spacing=spacing.rules, contents=contents), size=said)
        pods = self.pods_of(key)
        count = size.with_roles(pods)
        others = sum(1 for pod in pods if self._rules.is_taken(pod.key) or (_counts(pod, size) and not pod.waits))
        trouble = (
            size.trouble
            or places.trouble
            or next((demand.trouble for demand in demands if demand.trouble), "")
            or next(filter(None, (given_by_claims(pod, marks, self._rules.claims.stands_for) for pod in waiting)), "")
            or self._claiming.trouble(key, waiting, self._rules.claims)
            or (_disagreement(waiting, marks) if len(waiting) > 1 else "")
            or spacing.trouble
        )
        if not trouble and others + len(waiting) < count:
            gated = sum(1 for pod in pods if pod.spec.scheduling_gates and not pod.waits)
            held = f", and {gated} held by scheduling gates" if gated else ""
            trouble = f"{others + len(waiting)} of the {count} pods of {key.text} are there{held}"
            trouble += "; they start together, when all are"
        if trouble:
            return replace(gang, trouble=trouble)
        least = max(1, count - others)
        return replace(
            gang,
            roles=tuple(
                PodRole(name, request, len(pods), min(least, len(pods)) if len(grouped) == 1 else len(pods))
                for (name, request), pods in grouped
            ),
        )

    def _demand_of(self, pod: ScheduledPod) -> PodDemand:
        # What its claims come to changes with the cluster, and a pod seldom does.
        claims = demand_of_claims(pod, self._rules.claims)
        claims = replace(claims, resource=asks_by_number(pod, self._rules.marks()))
        known = self._demands.get(pod.key)
        if known is None or known[0] is not pod or known[1] != claims:
            known = self._demands[pod.key] = (pod, claims, demand_of(pod, claims, self._rules.extras))
        return known[2]

    def _asked_by_neighbours(self, waiting: Sequence[ScheduledPod], within: frozenset[MutualTerm]) -> NodeSelection:
        by_others = (each for pod in waiting for each in self._rules.neighbours.requirements(pod, within))
        asked = (*dict.fromkeys(by_others), *self._rules.refusals.requirements(waiting))
        return (asked,) if asked else ()


def _claims_of(pods: Iterable[ScheduledPod]) -> frozenset[str]:
    """The names of the claims that pods of one gang have volumes of."""
    return frozenset(name for pod in pods for name in claims_of(pod))


def _counts(pod: ScheduledPod, size: GangSize) -> bool:
    """Whether a pod is one of its gang's number: it runs, or has done its part."""
    if pod.status.phase == "Succeeded":
        return size.with_ended
    return pod.status.phase != "Failed" and pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates


def _roles(
    pods: Sequence[ScheduledPod], demands: Sequence[PodDemand]
) -> list[tuple[tuple[str, TaskRequest], list[ScheduledPod]]]:
    """Pods by role and by what they ask for; a name that two kinds of pods share gets a number."""
    grouped: defaultdict[tuple[str, TaskRequest], list[ScheduledPod]] = defaultdict(list)
    for pod, demand in zip(pods, demands, strict=True):
        grouped[_name_of(pod), demand.request].append(pod)
    seen: Counter[str] = Counter()
    named = []
    for (name, request), members in grouped.items():
        seen[name] += 1
        named.append(((name if seen[name] == 1 else f"{name}-{seen[name]}", request), members))
    return named


def _name_of(pod: ScheduledPod) -> str:
    return role_of(pod) or _UNNAMED


def _disagreement(pods: Sequence[ScheduledPod], marks: frozenset[str]) -> str:
    first = terms_of(pods[0], marks)
    for pod in pods[1:]:
        other = terms_of(pod, marks)
        if other.selection != first.selection:
            names = f"{pods[0].metadata.name} and {pod.metadata.name}"
            return f"its pods ask for other nodes ({names}): a gang has one nodeSelector and affinity"
        if (other.queue, other.fields) != (first.queue, first.fields):
            return (
                f"its pods disagree: {pods[0].metadata.name} and {pod.metadata.name} have other labels or annotations"
            )
    return ""
