"""The section ``queues`` of the configuration: the tenant tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from millpond.model.amounts import count_text, gpus_text, memory_text, milli_text
from millpond.model.errors import InvalidInputError
from millpond.model.policies import own_orderings_of, own_placements_of
from millpond.model.resources import Amount
from millpond.model.tenancy.cells import CellCount
from millpond.model.tenancy.tenants import ROOT_QUEUE, Queue, pinned_twice
from millpond.model.workloads import Priority
from millpond.specs.config.pools import Registries
from millpond.specs.errors import BadValueError, as_written
from millpond.specs.job.fields import Cpus, Duration, Memory, Name, PriorityName
from millpond.specs.job.mounts import HostPath
from millpond.specs.validation import Shortened, Strict, or_short

UNLIMITED = 2**50
"""In a limit: of what it does not name."""


def _cell_level(text: str) -> str:
    try:
        return CellCount(text, 1).level
    except InvalidInputError as error:
        raise BadValueError(error.cause, error.remedy) from error


CellLevel = Annotated[str, AfterValidator(_cell_level)]
"""A kind of cell, as ``CellCount`` has it."""


def _read_by(read: Callable[[str], object]) -> AfterValidator:
    def checked(text: str) -> str:
        try:
            read(text)
        except InvalidInputError as error:
            raise BadValueError(error.cause, error.remedy) from error
        return text

    return AfterValidator(checked)


QueueOrdering = Annotated[str, _read_by(own_orderings_of)]
QueuePlacement = Annotated[str, _read_by(own_placements_of)]
DeviceModel = Annotated[str, Field(min_length=1, max_length=100)]


class AmountFile(Shortened):
    """A sum of resources; what is left out is nothing in a guarantee and no bound in a limit.

    Attributes:
        gpus: cards.
        cpus: CPU cores.
        memory: host memory.
        card_memory: memory of cards: a slice counts for what it takes, a whole card for all of its own. In a guarantee
            it bounds what ``gpus`` covers, and covers slices by memory alone.
    """

    model_config = or_short({"type": "number", "minimum": 0})

    gpus: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    cpus: Cpus | None = None
    memory: Memory | None = None
    card_memory: Annotated[Memory, Field(ge=1)] | None = None

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """``6`` is six GPUs."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"gpus": value}
        if isinstance(value, str | bool):
            hint = f"write a number of cards, or {{name: value}}; fields are {', '.join(cls.model_fields)}"
            raise BadValueError(f"{as_written(value)} is not a number", hint)
        return value

    def amount(self, unwritten: int) -> Amount:
        """The model's form."""
        return Amount(
            unwritten if self.gpus is None else round(self.gpus * 1000),
            unwritten if self.cpus is None else self.cpus,
            unwritten if self.memory is None else self.memory,
            card_mib=self.card_memory or 0,
        )


class GuaranteeFile(AmountFile):
    """What of each resource it gets whenever it asks; what is left out is not guaranteed.

    Attributes:
        models: cards of single models among these, such as ``{A100: 8}``; ``gpus`` left out: these alone. As soon as
            any guarantee names a model, cards of it are within no guarantee that does not: what others give of no
            model by name, they give of models that no guarantee names.
    """

    models: dict[DeviceModel, Annotated[float, Field(ge=0, le=1_000_000)]] = Field(default={})

    def amount(self, unwritten: int) -> Amount:
        """The model's form."""
        models = _models(self.models)
        together = sum(milli for _, milli in models)
        amount = super().amount(unwritten)
        return replace(amount, gpu_milli=together if self.gpus is None else amount.gpu_milli, models=models)


class LimitFile(AmountFile):
    """The most of each resource; what is left out is not bounded.

    Attributes:
        models: the most cards of each model, such as ``{H100: 4}``; others are bounded by ``gpus`` alone. A machine
            with cards of several models is left out where any of these would be beyond its limit.
    """

    models: dict[DeviceModel, Annotated[float, Field(ge=0, le=1_000_000)]] = Field(default={})

    def amount(self, unwritten: int) -> Amount:
        """The model's form."""
        return replace(super().amount(unwritten), models=_models(self.models))


def _models(written: dict[str, float]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((model, round(gpus * 1000)) for model, gpus in written.items()))


class QueueFile(Strict):
    """A node of the tenant tree.

    Attributes:
        name: jobs name it as ``queue``.
        parent: the queue above.
        guarantee: what it gets whenever it asks; a number is GPUs, and cards of one model are ``models``. What it
            leaves beyond the guarantees of the queues below it, these may have; CPUs, memory and card memory count
            where it names them. It is at most its limit and, if it names a resource, at least what those below are
            guaranteed of it together.
        limit: the most it ever holds; a number is GPUs; left out: no bound. That of each model of cards: ``models``.
        weight: its share of what is left over, compared with its siblings.
        borrows: whether it may use what others leave idle beyond its guarantee.
        may_exceed_cluster: its guarantee may be more than the machines that are known have, as others will join;
            else a change that guarantees all queues together more than these is refused.
        cells: in which shapes guaranteed cards come, as so many of each: ``card``, ``4 cards``, ``switch``, ``socket``,
            ``node``, ``rack of 4 nodes``. Those of the queues below it are among them. Where guarantees name models,
            cells are of those that its own covers.
        pinned: machines of which the queue is guaranteed all cards.
        ordering: who of its jobs is next, ``edf``, or of those of some kinds, ``dev=fifo,train=edf``: ``default``,
            ``fifo``, ``sjf``, ``ssf`` or ``edf``; left out: as in the queue above, and at the top as in the cluster.
        placement: where they go, in the same way: ``service=spread``.
        priorities: classes that its jobs may have, at submission; left out: all that the queues above it allow.
        max_running_jobs: how many of its jobs, and of those of the queues below it, may run at once; ``background``
            does not count.
        max_dev_hours: the longest time limit of a dev job, in hours; the least of its queue and of those above it
            counts.
        min_run: its jobs do not leave for others before they have run this long, or as long as their ``min_run_time``
            if that is more; left out: what the queue above it says.
        data, output: folders of the machines below which its jobs may read (``data:``) and write (``output:``); left
            out: what its parent may, and at the top, anything.
        images: registries and repositories that its jobs' images may come from, beside the catalogue; left out: as
            above.
    """

    name: Name
    parent: Name = ROOT_QUEUE
    guarantee: GuaranteeFile = GuaranteeFile()
    limit: LimitFile | None = None
    weight: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    borrows: bool = True
    may_exceed_cluster: bool = False
    cells: dict[CellLevel, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(default={})
    pinned: list[Name] = Field(default=[])
    ordering: QueueOrdering = ""
    placement: QueuePlacement = ""
    priorities: Annotated[list[PriorityName], Field(min_length=1)] | None = None
    max_running_jobs: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    max_dev_hours: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    min_run: Duration | None = None
    data: list[HostPath] | None = None
    output: list[HostPath] | None = None
    images: Registries | None = None

    def queue(self) -> Queue:
        """The model's form."""
        return Queue(
            self.name,
            self.parent,
            self.guarantee.amount(0),
            self.limit.amount(UNLIMITED) if self.limit else None,
            self.weight,
            self.borrows,
            tuple(CellCount(level, count) for level, count in self.cells.items()),
            tuple(self.pinned),
            self.ordering,
            self.placement,
            tuple(sorted({Priority[name.upper()].value for name in self.priorities or ()})),
            self.max_running_jobs,
            self.min_run,
        )

    def rules(self) -> QueueRules:
        """What holds for its jobs beside their quotas."""
        images = None if self.images is None else tuple(self.images)
        dev_s = None if self.max_dev_hours is None else self.max_dev_hours * 3_600.0
        return QueueRules(self.parent, _paths(self.data), _paths(self.output), images, dev_s)


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Where jobs of a queue may read and write on the machines, and take images from, and how long its dev jobs may
    run, in seconds; None: what its parent's jobs may."""

    parent: str
    data: tuple[Path, ...] | None = None
    output: tuple[Path, ...] | None = None
    images: tuple[str, ...] | None = None
    longest_dev_s: float | None = None


def _paths(written: list[str] | None) -> tuple[Path, ...] | None:
    return None if written is None else tuple(map(Path, written))


class _Promise(NamedTuple):
    """A resource of which guarantees have to add up."""

    is_cards: bool
    guaranteed: Callable[[Amount], int]
    most: Callable[[Amount], int]
    text: Callable[[int], str]


def _promises(queues: Sequence[Queue]) -> Iterator[_Promise]:
    """Cards, of each model that any guarantee names and of all others; CPUs; and memory."""
    named = sorted({model for queue in queues for model, _ in queue.guarantee.models})
    for model in named:
        of_model = partial(_of_model, model)
        yield _Promise(
            True, of_model, partial(_of_model, model, unnamed=UNLIMITED), partial(_gpus, f" of model {model}")
        )
    yield _Promise(True, _of_others, lambda limit: UNLIMITED, partial(_gpus, " of other models" if named else ""))
    yield _Promise(False, lambda each: each.cpu_milli, lambda each: each.cpu_milli, lambda n: f"{milli_text(n)} CPUs")
    yield _Promise(
        False, lambda each: each.memory_mib, lambda each: each.memory_mib, lambda n: f"{memory_text(n)} of memory"
    )
    yield _Promise(
        False,
        lambda each: each.card_mib,
        lambda each: each.card_mib or UNLIMITED,
        lambda n: f"{memory_text(n)} of card memory",
    )


def _of_model(model: str, amount: Amount, unnamed: int = 0) -> int:
    return dict(amount.models).get(model, unnamed)


def _of_others(guarantee: Amount) -> int:
    return guarantee.gpu_milli - sum(milli for _, milli in guarantee.models)


def _gpus(of_model: str, milli: int) -> str:
    return f"{gpus_text(milli)}{of_model}"


def broken_promises(queues: Sequence[Queue]) -> Iterator[tuple[str, str, str, str]]:
    """Guarantees that cannot hold beside a limit, or beside those of the queues below: a row for each.

    Args:
        queues: each of them after its parent.

    Yields:
        the queue and its field that fall short, what is wrong, and the remedy.
    """
    for queue in queues:
        least = sum(cell.least_cards * cell.count for cell in queue.cells) + len(queue.pinned)
        if least * 1000 > queue.guarantee.gpu_milli:
            guaranteed = gpus_text(queue.guarantee.gpu_milli)
            message = f"cells of at least {count_text(least, 'card')}, but {queue.name} is guaranteed {guaranteed}"
            yield queue.name, "cells" if queue.cells else "pinned", message, "let its guarantee cover its cells"
    for name, (message, remedy) in pinned_twice(queues).items():
        yield name, "pinned", message, remedy
    cards: Counter[str] = Counter()
    for part in _promises(queues):
        for queue, below, own in _summed(queues, part.guaranteed):
            promised = max(below, own)
            most = UNLIMITED if queue.limit is None else part.most(queue.limit)
            cards[queue.name] += promised if part.is_cards else 0
            if own < 0:
                single = milli_text(sum(milli for _, milli in queue.guarantee.models))
                message = f"{gpus_text(queue.guarantee.gpu_milli)}, but {single} of single models"
                yield queue.name, "guarantee", message, "let gpus count these too, or leave it out"
            if 0 < own < below:
                message = (
                    f"{part.text(own)}, but the queues below {queue.name} are guaranteed {part.text(below)} together"
                )
                yield queue.name, "guarantee", message, f"raise it to {part.text(below)}, or lower theirs"
            if most < promised:
                yield _beyond_limit(queue.name, part.text, most, promised, own)
    for queue in queues:
        if queue.limit is not None and queue.limit.gpu_milli < cards[queue.name]:
            text = partial(_gpus, "")
            yield _beyond_limit(queue.name, text, queue.limit.gpu_milli, cards[queue.name], queue.guarantee.gpu_milli)


def _summed(queues: Sequence[Queue], guaranteed: Callable[[Amount], int]) -> Iterator[tuple[Queue, int, int]]:
    """Each queue, what those below it are guaranteed of a resource together, and what it is itself."""
    owed: Counter[str] = Counter()
    for queue in reversed(queues):
        below, own = owed[queue.name], guaranteed(queue.guarantee)
        owed[queue.parent] += max(below, own)
        yield queue, below, own


def beyond_cluster(queues: Sequence[Queue], cluster: Amount) -> dict[str, tuple[int, str]]:
    """What all queues together are guaranteed beyond a cluster: by resource, how much, and a sentence.

    Args:
        queues: each of them after its parent.
        cluster: all of it; its cards by model.
    """
    named = {model for queue in queues for model, _ in queue.guarantee.models}
    cluster = replace(cluster, models=tuple(row for row in cluster.models if row[0] in named))
    found: dict[str, tuple[int, str]] = {}
    for part in _promises(queues):
        summed = _summed(queues, part.guaranteed)
        promised = sum(max(below, own) for queue, below, own in summed if queue.parent == ROOT_QUEUE)
        there, text = part.guaranteed(cluster), part.text
        if promised > there and (there or part.is_cards):  # the memory of cards may be unknown
            message = f"all queues together are guaranteed {text(promised)}, but all machines have {text(there)}"
            found[text(0)] = promised - there, message
    return found


def _beyond_limit(
    name: str, text: Callable[[int], str], most: int, promised: int, own: int
) -> tuple[str, str, str, str]:
    whom = "it is" if promised == own else f"the queues below {name} are"
    message = f"at most {text(most)}, but {whom} guaranteed {text(promised)}"
    return name, "limit", message, f"raise it to {text(promised)}, or lower the guarantee"


def parents_first(queues: list[Queue]) -> list[Queue]:
    """The same queues in an order in which each parent comes before its children."""
    by_name = {queue.name: queue for queue in queues}
    ordered: dict[str, Queue] = {}

    def add(queue: Queue) -> None:
        if queue.name not in ordered:
            if queue.parent in by_name:
                add(by_name[queue.parent])
            ordered[queue.name] = queue

    for queue in queues:
        add(queue)
    return list(ordered.values())
