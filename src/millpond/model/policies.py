"""The names of the policies that decide who is next and where it goes, and how they are chosen by kind of job.

What is chosen is written as a name for all kinds (``edf``), for some (``dev=fifo,train=edf``), or as both: a name, and
what else holds for some (``fair,dev=fifo``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from millpond.model.errors import InvalidInputError
from millpond.model.workloads import Kind

ORDERINGS = ("default", "fifo", "sjf", "srtf", "srsf", "ssf", "tiresias", "edf", "fair")
OWN_ORDERINGS = ("default", "fifo", "sjf", "ssf", "edf")
"""Those that a queue, or a kind of jobs, may have for itself: that say by each job alone how early it goes.

How queues and users share, and whether all work is placed anew, is decided for the cluster as a whole.
"""
LEARNED = "learned"
LEARNED_FIGURES = (
    "cards", "cards squared", "told", "length", "length squared", "cards by length", "sine of day", "cosine of day"
)  # fmt: skip
"""What ``learned:0.1:-0.2:…`` has a weight for each: logarithms of cards and hours; whether a length is told."""
MOST_WEIGHT = 100.0
PLACEMENTS = ("default", "fgd", "best-fit", "dot-product", "random", "gandiva", "spread", "auto")
BY_LOAD = frozenset({"spread", "auto"})
"""Placements that measured load decides, with ``auto`` for services."""
FOR_ALL_KINDS = ("random", "gandiva")
"""Placements that what has been placed before decides: they hold for all jobs."""


@cache
def orderings_of(text: str) -> tuple[str, dict[Kind, str]]:
    """The ordering of the cluster, and those of kinds of jobs that have one of their own.

    Raises:
        InvalidInputError: an ordering or a kind is unknown, named twice, or not to be had for some kinds alone.
    """
    base, by_kind = _parts("ordering", text, ORDERINGS)
    for kind, name in by_kind.items():
        _require_own(name, f"of kind {kind} alone")
    return base or ORDERINGS[0], by_kind


@cache
def own_orderings_of(text: str) -> dict[Kind, str]:
    """The orderings that a queue has for the kinds of its jobs; for those that are not named, that of the queue above.

    Raises:
        InvalidInputError: as ``orderings_of``, or a queue can have no such ordering.
    """
    base, by_kind = _parts("ordering", text, ORDERINGS, OWN_ORDERINGS)
    for name in (base, *by_kind.values()):
        if name:
            _require_own(name, "of a queue")
    return (dict.fromkeys(Kind, base) if base else {}) | by_kind


@cache
def placements_of(text: str) -> dict[Kind, str]:
    """The placement of each kind of job; kinds that are not named have the default one.

    Raises:
        InvalidInputError: a placement or a kind is unknown, named twice, or not to be had for some kinds alone.
    """
    base, by_kind = _parts("placement", text, PLACEMENTS)
    for kind, name in by_kind.items():
        if name in FOR_ALL_KINDS:
            raise InvalidInputError(f"placement {name!r} of kind {kind} alone", "choose it for all kinds, or another")
        if base in FOR_ALL_KINDS:
            raise InvalidInputError(f"placement {base!r} of all kinds but {kind}", "choose it for all, or another")
    return dict.fromkeys(Kind, base or PLACEMENTS[0]) | by_kind


@cache
def own_placements_of(text: str) -> dict[Kind, str]:
    """The placements that a queue has for the kinds of its jobs; for those that are not named, that of the queue above.

    Raises:
        InvalidInputError: as ``placements_of``, or no queue alone can have such a placement.
    """
    base, by_kind = _parts("placement", text, PLACEMENTS)
    for name in (base, *by_kind.values()):
        if name in FOR_ALL_KINDS:
            raise InvalidInputError(f"placement {name!r} of a queue", "choose it for the whole cluster, or another")
    return (dict.fromkeys(Kind, base) if base else {}) | by_kind


@cache
def learned_weights(name: str) -> tuple[float, ...]:
    """The weights in the name of an ordering, ``learned:0.1:-0.2:…``, one for each of ``LEARNED_FIGURES``.

    Raises:
        InvalidInputError: there are more or fewer, or one is no finite number or too large to have been learnt.
    """
    _, *words = name.split(":")
    try:
        weights = tuple(float(word) for word in words)
    except ValueError:
        weights = ()
    if len(weights) != len(LEARNED_FIGURES) or not all(abs(weight) <= MOST_WEIGHT for weight in weights):
        raise InvalidInputError(
            f"ordering {name!r} has no {len(LEARNED_FIGURES)} weights of at most {MOST_WEIGHT:g}",
            "take its name as `pond learn` printed it",
        )
    return weights


def without_weights(ordering: str) -> str:
    """The name of an ordering, without the weights of a learned one."""
    return ordering.partition(":")[0]


def learned_name(weights: Iterable[float]) -> str:
    """The name of the ordering with these weights."""
    return ":".join((LEARNED, *(f"{weight:.4g}" for weight in weights)))


def _is_known(name: str, names: tuple[str, ...]) -> bool:
    if names is ORDERINGS and without_weights(name) == LEARNED:
        return bool(learned_weights(name))
    return name in names


def _parts(what: str, text: str, names: tuple[str, ...], choice: tuple[str, ...] = ()) -> tuple[str, dict[Kind, str]]:
    """The name that holds for all kinds, empty if there is none, and those of single kinds.

    Args:
        choice: those of the names that can be had here, where not all can.
    """
    base, by_kind = "", dict[Kind, str]()
    for part in text.split(",") if text else ():
        word, equals, name = part.strip().partition("=")
        if not equals:
            word, name = "", word
        if not _is_known(name, names):
            raise InvalidInputError(f"unknown {what} {name!r}", f"choose one of {', '.join(choice or names)}")
        if not equals:
            if base:
                raise InvalidInputError(f"two {what}s of all kinds in {text!r}", "leave one of them out")
            base = name
            continue
        if word not in list(Kind):
            raise InvalidInputError(f"unknown kind {word!r} in {what} {text!r}", f"choose one of {', '.join(Kind)}")
        if Kind(word) in by_kind:
            raise InvalidInputError(f"two {what}s of kind {word} in {text!r}", "leave one of them out")
        by_kind[Kind(word)] = name
    return base, by_kind


def _require_own(name: str, of: str) -> None:
    if name not in OWN_ORDERINGS:
        raise InvalidInputError(
            f"ordering {name!r} {of}", f"choose it for the whole cluster, or one of {', '.join(OWN_ORDERINGS)}"
        )
