"""How many pods of a spread constraint each place has, and which places may have no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from millpond.engines.kubernetes.adoption.affinities.spread_terms import SpreadTerm


class SpreadCounts:
    """The counts of one constraint.

    A place is full when one more pod would make it too uneven. That follows from its own count and the smallest one, so
    all places are looked at only when the smallest changes.
    """

    def __init__(self, term: SpreadTerm) -> None:
        self._term = term
        self.key = term.topology_key
        self.by_node: Counter[str] = Counter()
        self._nodes: Counter[str] = Counter()
        """By place: so many of its nodes count."""
        self._pods: Counter[str] = Counter()
        self._places_with: Counter[int] = Counter()
        """By number of pods: so many places have it."""

    def add(self, node: str, labels: Mapping[str, str], count: int) -> list[str]:
        """So many more pods on a node, or fewer; the places that are full since, or no longer are."""
        self.by_node[node] += count
        if self.by_node[node] <= 0:
            del self.by_node[node]
        place = self._term.place_of(node, labels)
        return [] if place is None else self._change(place, 0, count)

    def relabel(self, node: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
        """A node has other labels; the places that are full since, or no longer are."""
        old, new = self._term.place_of(node, before), self._term.place_of(node, after)
        if old == new:
            return []
        pods, news = self.by_node.get(node, 0), []
        if old is not None:
            news += self._change(old, -1, -pods)
        if new is not None:
            news += self._change(new, 1, pods)
        return news

    def has(self, labels: Mapping[str, str]) -> bool:
        """Whether the place of a node with these labels is full."""
        place = labels.get(self.key, "")
        return place in self._nodes and self._is_full(self._pods[place], self._least())

    @property
    def by_place(self) -> tuple[tuple[tuple[str, int], ...], int]:
        """How many each place has, of places with any; and how many places have none."""
        there = tuple(sorted((place, count) for place, count in self._pods.items() if count))
        return there, len(self._nodes) - len(there)

    def overfull_with(self, more: Counter[str]) -> set[str]:
        """The places that have too many once so many more pods, by place, lie there too."""
        counts = {place: self._pods[place] + more[place] for place in self._nodes}
        least = min(counts.values(), default=0) if len(counts) >= self._term.least_places else 0
        return {place for place, count in counts.items() if count - least > self._term.most}

    @property
    def full(self) -> list[str]:
        """All places that are."""
        least = self._least()
        return [place for place in self._nodes if self._is_full(self._pods[place], least)]

    def _change(self, place: str, nodes: int, pods: int) -> list[str]:
        least, was_full = self._least(), place in self._nodes and self._is_full(self._pods[place], self._least())
        if place in self._nodes:
            self._enter(self._pods[place], -1)
        self._nodes[place] += nodes
        self._pods[place] += pods
        if self._nodes[place] > 0:
            self._enter(self._pods[place], 1)
        else:
            del self._nodes[place], self._pods[place]
        now = self._least()
        is_full = place in self._nodes and self._is_full(self._pods[place], now)
        news = [place] if was_full is not is_full else []
        if now != least:
            counts = ((other, self._pods[other]) for other in self._nodes if other != place)
            news += [other for other, count in counts if self._is_full(count, least) is not self._is_full(count, now)]
        return news

    def _enter(self, pods: int, places: int) -> None:
        self._places_with[pods] += places
        if not self._places_with[pods]:
            del self._places_with[pods]

    def _least(self) -> int:
        if len(self._nodes) < self._term.least_places:
            return 0
        return min(self._places_with, default=0)

    def _is_full(self, pods: int, least: int) -> bool:
        return pods + self._term.counts_itself - least > self._term.most
