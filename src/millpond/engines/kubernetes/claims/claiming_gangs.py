"""Which gangs of pods that wait name which claims: they are looked at anew when these change, and share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from millpond.engines.kubernetes.adoption.gangs import GangKey
from millpond.engines.kubernetes.adoption.pod_objects import ScheduledPod
from millpond.engines.kubernetes.claims.claim_book import ANY_CLAIM, ClaimBook
from millpond.engines.kubernetes.claims.claim_requests import names_of


class ClaimingGangs:
    """All of them. Of gangs that share a claim, the one that came first has it allocated; the others follow it."""

    def __init__(self) -> None:
        self._named: dict[GangKey, frozenset[str]] = {}
        self._gangs: defaultdict[str, dict[GangKey, None]] = defaultdict(dict)

    def of(self, claim: str) -> list[GangKey]:
        """The gangs that name a claim; of ``ANY_CLAIM`` all that name any."""
        return list(self._named if claim == ANY_CLAIM else self._gangs.get(claim, ()))

    def note(self, key: GangKey, waiting: Iterable[ScheduledPod]) -> Collection[str]:
        """The pods of a gang that are not bound yet; returns the claims that others wait for, and it no longer does."""
        named = frozenset(
            f"{pod.metadata.namespace}/{name}" if name else ANY_CLAIM for pod in waiting for _, name in names_of(pod)
        )
        before = self._named.pop(key, frozenset())
        if named:
            self._named[key] = named
        for claim in named - before:
            self._gangs[claim][key] = None
        for claim in before - named:
            self._gangs[claim].pop(key, None)
            if not self._gangs[claim]:
                del self._gangs[claim]
        return {claim for claim in before - named if claim in self._gangs and claim != ANY_CLAIM}

    def trouble(self, key: GangKey, waiting: Sequence[ScheduledPod], book: ClaimBook) -> str:
        """Why a gang waits for others that name its claims; empty where it does not."""
        namespace = waiting[0].metadata.namespace
        names = [name for pod in waiting for _, name in names_of(pod)]
        for name in dict.fromkeys(names):
            claim = book.claim(namespace, name)
            if claim is None or claim.status.allocation is not None:
                continue
            if names.count(name) > 1:
                remedy = "give each a claim of its own, by a template"
                return f"pods that start together share the claim {name}, which has no devices yet: {remedy}"
            first = next(iter(self._gangs[claim.key]))
            if first != key:
                return f"its claim {name} is shared, and {first.text} goes first"
        return ""
