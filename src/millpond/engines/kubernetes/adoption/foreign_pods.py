"""Everything about pods that others made, wired together: watched, grouped, bound, answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millpond.engines.kubernetes.adoption.adopted_executor import AdoptedExecutor
from millpond.engines.kubernetes.adoption.affinities.gang_affinities import MutualTerm
from millpond.engines.kubernetes.adoption.cluster_parts import ClusterParts
from millpond.engines.kubernetes.adoption.evictions import Evictions
from millpond.engines.kubernetes.adoption.gang_book import FoundPodRules, GangBook
from millpond.engines.kubernetes.adoption.gangs import POD, FoundGang, GangKey
from millpond.engines.kubernetes.adoption.gated_pods import GATED_PODS, NO_QUEUE, UNLABELLED_PODS, is_gated
from millpond.engines.kubernetes.adoption.pod_answers import PodAnswers
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.cluster.reflector import ObjectPart, PartialCopy
from millpond.engines.kubernetes.loop_work import LoopWork, again_and_again, all_of
from millpond.engines.kubernetes.pods.pod_marks import SCHEDULER, SERVER_LABEL

SCHEDULED_PODS: Final = ObjectPart(
    ScheduledPod,
    f'"{SCHEDULER}"'.encode(),
    SERVER_LABEL,
    lambda pod: pod.spec.scheduler_name == SCHEDULER,
)
ANSWER_EVERY_S: Final = 0.5
GONE_AFTER_S: Final = 120.0
"""A job that waits ends when it has lacked pods for so long; at once where no owner could make others."""
LOOKS: Final = 40
"""So often it is looked in that time."""
ANY_NAMESPACE: Final = "*"


@dataclass(frozen=True, slots=True)
class AdoptionRules:
    """Which pods of others are adopted.

    Attributes:
        namespaces: of these, or of any where ``ANY_NAMESPACE`` is one.
        stands_for: the gangs for which jobs stand that an earlier server submitted.
        gated: those of other schedulers too that a gate holds for Millpond.
        extras: what jobs call other extended resources, by their names in the cluster.
    """

    namespaces: frozenset[str]
    stands_for: Mapping[str, GangKey] = field(default_factory=dict)
    gated: bool = False
    extras: Mapping[str, str] = field(default_factory=dict)

    def includes(self, namespace: str) -> bool:
        """Whether pods of a namespace are adopted."""
        return namespace in self.namespaces or ANY_NAMESPACE in self.namespaces


class ForeignPods:
    """Adopts pods that others made: finds their gangs, binds them, and answers them. Lives on the engine's loop.

    Args:
        servers: identities of this server and of those that it replaces.

    Attributes:
        copies: copies of these pods, which the watch of all pods keeps up to date.
    """

    def __init__(self, around: ClusterParts, rules: AdoptionRules, servers: Sequence[str]) -> None:
        self.adopted = adopted = AdoptedExecutor(around, servers)
        self._found: Callable[[], None] = lambda: None
        found = FoundPodRules(
            rules.includes,
            adopted.is_taken,
            around.marks,
            adopted.neighbours,
            adopted.refusals,
            around.claims.book,
            rules.extras,
        )
        self._held_back = False
        self._work = LoopWork(around.outbox)
        self._book = GangBook(around.api, found, self._said, self._work.begin)
        self._answers = PodAnswers(around.api, self._book.waiting)
        self._evictions, self._outbox = Evictions(around.api, self._answers), around.outbox
        adopted.attach(self._book, self._answers, self._evictions)
        self._lost_since: dict[str, float] = {}
        adopted.entrust(rules.stands_for)
        self._adopted = [PartialCopy(SCHEDULED_PODS, self._changed, self._deleted)]
        self._includes = rules.includes
        if rules.gated:
            self._adopted.append(PartialCopy(GATED_PODS, self._gated_changed, self._deleted))
        unlabelled = [PartialCopy(UNLABELLED_PODS, self._tell_unlabelled, lambda pod: None)] if rules.gated else []
        self.copies = (*self._adopted, *unlabelled)

    def when_found(self, call: Callable[[], None]) -> None:
        """Have a function called when there is a gang to be lined up; it must return at once."""
        self._found = call

    def gangs(self) -> tuple[FoundGang, ...]:
        """Those with pods that wait, as of this moment.

        Of pods that must lie apart, together or evenly, one is ready at a time: where the next may go follows from
        where it lies.
        """
        found = self._book.find()
        if not self._book.alike:
            self._held_back = False
            return found
        standing = set(self.adopted.waiting_jobs.values())
        first: dict[tuple[MutualTerm, ...], GangKey] = {}
        for gang in sorted(found, key=lambda gang: gang.key not in standing):
            if not gang.trouble and (alike := self._book.alike.get(gang.key)):
                first.setdefault(alike, gang.key)
        told = tuple(self._held_behind(gang, first) if gang.key not in standing else gang for gang in found)
        self._held_back = any(gang.trouble != before.trouble for gang, before in zip(told, found, strict=True))
        return told

    def _held_behind(self, gang: FoundGang, first: Mapping[tuple[MutualTerm, ...], GangKey]) -> FoundGang:
        """A gang as it is told: in trouble while one of its like is placed."""
        ahead = gang.key if gang.trouble else first.get(self._book.alike.get(gang.key, ()), gang.key)
        if ahead == gang.key:
            return gang
        words = f"pods that must lie apart, together or evenly are placed one after another: {ahead.text} goes first"
        self._answers.say(gang.key, words)
        return replace(gang, trouble=words)

    @property
    def pods(self) -> Collection[ScheduledPod]:
        """All pods of others that Millpond schedules, or releases for another scheduler."""
        return [pod for copy in self._adopted for pod in copy.objects.values()]

    def answer(self, key: GangKey, text: str) -> None:
        """Why a gang waits."""
        refusals = self._book.refusals_for(key)
        self._answers.say(key, f"{text}; {refusals}" if refusals else text)

    def work(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What is to run from then on."""
        answering = again_and_again(self._answers.write_due, ANSWER_EVERY_S, "pods are not told why they wait now")
        ending = again_and_again(self._end_lost, GONE_AFTER_S / LOOKS, "jobs without pods are not ended now")
        return (self._book.work(), ending, answering)

    async def _end_lost(self) -> None:
        """End jobs that wait and whose pods are gone, or too few: those that come later are a job of their own."""
        whole = {gang.key for gang in self._book.find() if not gang.trouble}
        missing = {job: key for job, key in self.adopted.waiting_jobs.items() if key not in whole}
        self._lost_since = {job: since for job, since in self._lost_since.items() if job in missing}
        await all_of(self._end_if_lost(job, key) for job, key in missing.items())

    async def _end_if_lost(self, job: str, key: GangKey) -> None:
        now = asyncio.get_running_loop().time()
        since = self._lost_since.setdefault(job, now)
        patience_s = 0.0 if key.kind == POD else GONE_AFTER_S
        if now - since >= patience_s and not await self._evictions.is_paused_for(key, job):
            few = "not all of its pods are there any more" if self._book.waiting(key) else "it has no pods any more"
            self._outbox.ask_to_stop(job, f"{key.text}: {few}")
            self._lost_since[job] = now + GONE_AFTER_S

    def _said(self, gang: FoundGang) -> None:
        self._answers.say_if_it_stays(gang.key, gang.trouble)
        if not gang.trouble:
            self._found()

    def _changed(self, pod: ScheduledPod) -> None:
        self.adopted.pod_changed(pod)
        self._book.pod_changed(pod)
        self._answers.look_at(pod)
        if self._held_back and pod.spec.node_name:
            self._found()

    def _gated_changed(self, pod: ScheduledPod) -> None:
        if is_gated(pod):
            self._changed(pod)

    def _tell_unlabelled(self, pod: ScheduledPod) -> None:
        if self._includes(pod.metadata.namespace):
            self._work.begin(self._answers.refuse(pod, NO_QUEUE))

    def _deleted(self, pod: ScheduledPod) -> None:
        self._book.pod_deleted(pod)
        self.adopted.pod_deleted(pod)
        if self._held_back:
            self._found()
