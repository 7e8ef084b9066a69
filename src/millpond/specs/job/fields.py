"""The parts of a job file: quantities, counts, slices, places, checkpoints, as validated types."""

from __future__ import annotations

import math
import signal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from millpond.model import amounts
from millpond.model.resources import CARD_MILLI
from millpond.model.states import Outcome
from millpond.specs import quantities, zoned_times
from millpond.specs.errors import BadValueError, as_written, suggest
from millpond.specs.validation import PLAIN_NAME, VARIABLE, Shortened, Unit, or_short

MOST_TASKS = 100_000
MOST_CARDS = 1_024

PriorityName = Literal["background", "low", "normal", "high", "critical"]
"""Classes of priority, as ``model.workloads.Priority``, the lowest first."""

_AMOUNT = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "number", "minimum": 0}]}


Memory = Annotated[
    int,
    BeforeValidator(quantities.memory_mib),
    Unit(amounts.memory_text),
    WithJsonSchema({"type": "string", "examples": ["32GiB", "512MiB"]}),
]
Cpus = Annotated[
    int,
    BeforeValidator(quantities.cpu_milli),
    Unit(amounts.milli_text),
    WithJsonSchema({**_AMOUNT, "examples": [8, "500m"]}),
]
Compute = Annotated[
    int,
    BeforeValidator(quantities.compute_milli),
    Unit(amounts.milli_text),
    WithJsonSchema({**_AMOUNT, "examples": ["25%"]}),
]


Slowdown = Annotated[
    float,
    BeforeValidator(quantities.slowdown),
    Unit(amounts.percent_text),
    WithJsonSchema({**_AMOUNT, "examples": ["5%"]}),
]


Duration = Annotated[
    float,
    BeforeValidator(quantities.seconds),
    Unit(amounts.seconds_text),
    WithJsonSchema({"type": "string", "minLength": 1, "examples": ["2h", "90s"]}),
]


def _deadline(value: Any) -> str:
    """The text as it is, if it can be read; a span is counted from the submission."""
    zoned_times.instant(value, 0.0)
    return str(value)


Deadline = Annotated[
    str,
    BeforeValidator(_deadline),
    WithJsonSchema({"type": "string", "minLength": 1, "examples": ["2026-12-01 18:00 Europe/Berlin", "6h"]}),
]
"""An instant, or a length of time from the submission on; see ``specs.zoned_times``."""

Name = Annotated[str, Field(pattern=PLAIN_NAME, max_length=100)]
"""A name that is safe in ids, paths and URLs."""


def _preemptible(value: Any) -> Any:
    if isinstance(value, bool) or value == "beyond-min":
        return value
    hint = "write true or false, or beyond-min for the tasks beyond the minimum alone"
    raise BadValueError(f"{as_written(value)} is neither true nor false", hint)


Preemptible = Annotated[
    bool | Literal["beyond-min"],
    BeforeValidator(_preemptible),
    WithJsonSchema({"oneOf": [{"type": "boolean"}, {"const": "beyond-min"}]}),
]
SecretName = Annotated[str, Field(pattern=VARIABLE, max_length=100)]

Extras = dict[Name, Annotated[int, Field(ge=0, le=2**40)]]
"""Named extra resources (RDMA cards, licences) and how much of each."""


_CLASSES = tuple(
    kind.value
    for kind in (
        Outcome.USER_ERROR,
        Outcome.OUT_OF_MEMORY,
        Outcome.START_FAILED,
        Outcome.NODE_LOST,
        Outcome.DEVICE_LOST,
    )
)
_EXIT_CODES = frozenset(map(str, range(1, 256)))
_KILLED_BY = 128
"""A shell shows an end by signal N as this and N."""


def _failure(value: Any) -> Any:
    """An exit code or a class of failures as text; a signal is the exit code that it leads to."""
    if str(value) in _EXIT_CODES and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value in _CLASSES:
        return value
    name = value.upper() if isinstance(value, str) else ""
    if name in signal.Signals.__members__:
        return str(_KILLED_BY + signal.Signals[name])
    near = suggest(value, _CLASSES) if isinstance(value, str) else ""
    hint = f"write an exit code from 1 to 255, a signal such as SIGKILL, or one of {', '.join(_CLASSES)}"
    raise BadValueError(f"{as_written(value)} is no failure", f"{near} {hint}" if near.endswith("?") else hint)


Failures = Annotated[
    list[
        Annotated[
            str,
            BeforeValidator(_failure),
            WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 255}, {"type": "string"}]}),
        ]
    ],
    Field(max_length=300),
]
"""Exit codes, signals and classes of failures."""


class RetryDelayFile(Shortened):
    """How long a job waits after a failure of its own before it is tried again; a length of time is ``first``.

    Attributes:
        first: after the first failure.
        factor: each further failure makes it so many times as long.
        longest: up to this.
    """

    model_config = or_short({"type": "string", "minLength": 1})

    first: Annotated[Duration, Field(le=7 * 86_400)] = 0.0
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    longest: Annotated[Duration, Field(le=7 * 86_400)] = 3_600.0

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """``30s`` as the long form."""
        return {"first": value}


class Gpus(Shortened):
    """What one task takes of the cards.

    Attributes:
        cards: how many; more than one means whole cards.
        compute: guaranteed part of the card; left out together with ``memory``: the whole card.
        memory: device memory; left out: the same part of the card as of its compute.
        limit: the most compute it may use while others are idle; default: ``compute``.
    """

    model_config = or_short({"type": "number", "minimum": 0}, {"type": "string", "pattern": "%$"})

    cards: Annotated[int, Field(ge=0, le=MOST_CARDS)] = 1
    compute: Compute | None = None
    memory: Memory | None = None
    limit: Compute | None = None

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """``2`` and ``0.25`` as the long form."""
        hint = "write cards (2), a part of one card (0.25 or 25%), or {cards: 1, memory: 4GiB, compute: 25%}"
        if isinstance(value, str) and value.strip().endswith("%"):
            return {"compute": value}
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise BadValueError(f"{as_written(value)} is not a number of GPUs", hint)
        if value < 0:
            raise BadValueError(f"a negative share of GPUs ({value})", hint)
        if value == int(value):
            return {"cards": int(value)}
        if value > 1:
            raise BadValueError(
                f"{value} GPUs: a fraction of several cards", "ask for whole cards, or for a part of one card"
            )
        return {"compute": value}

    @model_validator(mode="after")
    def _parts_of_one_card(self) -> Gpus:
        if self.cards != 1 and not self.whole:
            raise BadValueError(
                f"a part of each of {self.cards} cards", "ask for whole cards, or for a part of one card"
            )
        if self.compute == 0 and self.memory is None:
            raise BadValueError("a slice without compute and memory", "leave gpus out, or name its memory")
        if self.limit is not None and self.limit < (self.compute or 0):
            raise BadValueError("a compute limit below the guarantee", "raise limit to at least compute")
        return self

    @property
    def whole(self) -> bool:
        """Whether it takes whole cards."""
        return self.memory is None and self.compute in (None, CARD_MILLI)


class Tasks(Shortened):
    """How many identical tasks; ``min`` and ``max`` make the gang elastic. A service with ``min: 0`` may go without.

    Attributes:
        desired: so many to begin with; left out: ``max``.
        min: it starts with so many, and goes on with so many.
        max: it grows up to so many.
    """

    model_config = or_short({"type": "integer", "minimum": 1, "maximum": MOST_TASKS})

    desired: Annotated[int, Field(ge=1, le=MOST_TASKS)] | None = None
    min: Annotated[int, Field(ge=0, le=MOST_TASKS)] = 1
    max: Annotated[int, Field(ge=1, le=MOST_TASKS)]

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """``4`` is exactly four."""
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TASKS:
            hint = f"write a whole number from 1 to {MOST_TASKS}, or {{min: 2, max: 8}}"
            raise BadValueError(f"{as_written(value)} is not a number of tasks", hint)
        return {"desired": value, "min": value, "max": value}

    @model_validator(mode="after")
    def _in_order(self) -> Tasks:
        if not self.min <= self.count <= self.max:
            raise BadValueError(
                f"{self.count} tasks between {self.min} and {self.max}", "an elastic gang needs min <= desired <= max"
            )
        return self

    @property
    def count(self) -> int:
        """Tasks wanted: the most it can use unless said otherwise; one where it may go without any."""
        if self.desired is not None:
            return self.desired
        return self.max if self.min else 1


_PLACES = ("node", "rack", "zone", "any")


def _place(value: Any) -> Any:
    if isinstance(value, str):
        word = value.removeprefix("same-")
        if word not in _PLACES:
            near = suggest(word, _PLACES)
            hint = f"{near} allowed: {', '.join(_PLACES)}" if near.endswith("?") else near
            raise BadValueError(f"{as_written(value)} is not a place", hint)
        return word
    return value


Place = Annotated[
    Literal["node", "rack", "zone", "any"], BeforeValidator(_place), WithJsonSchema({"enum": list(_PLACES)})
]


class Topology(Shortened):
    """Within what all tasks must lie (``require``) or should lie (``prefer``); a bare word is required.

    Attributes:
        prefer: place the tasks there if that is possible.
        require: wait until that is possible.
    """

    model_config = or_short({"type": "string", "enum": [*_PLACES, *(f"same-{place}" for place in _PLACES[:-1])]})

    prefer: Place | None = None
    require: Place | None = None

    @classmethod
    def from_short(cls, value: Any) -> Any:
        if not isinstance(value, str):
            raise BadValueError(
                f"{as_written(value)} is not a place", "write node, rack, zone or any, or {prefer: rack}"
            )
        return {"require": value}

    @model_validator(mode="after")
    def _one_of(self) -> Topology:
        if (self.prefer is None) == (self.require is None):
            raise BadValueError("a topology with neither or both of prefer and require", "write {prefer: rack}")
        return self


def _signal(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    name = value.upper() if value.upper().startswith("SIG") else f"SIG{value.upper()}"
    known = [item.name for item in signal.Signals if item not in (signal.SIGKILL, signal.SIGSTOP)]
    if name not in known:
        near = suggest(name, known)
        hint = near if near.endswith("?") and name not in ("SIGKILL", "SIGSTOP") else "use SIGTERM, SIGINT or SIGUSR1"
        raise BadValueError(f"{as_written(value)} is not a signal that a program can catch", hint)
    return name


class CheckpointFile(Shortened):
    """How a job is asked to save its work, and how long that may take before it is ended by force.

    ``transparent``: it need not save anything to leave its cards; where a pool suspends, it is moved off as it is.

    Attributes:
        mode: ``none`` saves nothing; ``signal`` saves on the signal; ``transparent`` can be moved off as it is.
        signal: what its tasks get before they are ended.
        grace: so long they may take before they are ended by force.
    """

    model_config = or_short({"type": "string", "enum": ["none", "signal", "transparent"]})

    mode: Literal["none", "signal", "transparent"] | None = None
    signal: Annotated[str, BeforeValidator(_signal), WithJsonSchema({"type": "string"})] = "SIGTERM"
    grace: Annotated[Duration, Field(le=86_400)] = 30.0

    @classmethod
    def from_short(cls, value: Any) -> Any:
        if not isinstance(value, str):
            raise BadValueError(
                f"{as_written(value)} is not a checkpoint",
                "write none, signal, transparent, or {signal: SIGUSR1, grace: 60s}",
            )
        return {"mode": value}
