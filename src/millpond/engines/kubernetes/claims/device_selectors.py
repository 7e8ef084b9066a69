"""Whether a kind of card is one that a selector of a device class or a claim means.

Selectors are expressions of CEL, over what a driver publishes of a device. Millpond reads the part of the language in
which selectors are written (comparisons, membership, texts, quantities, versions), and of a device what all cards of a
kind have in common: which of a node's like cards a task gets, the scheduler chooses. All else is refused with the
reason, so that no expression is taken for another.
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-claim-v1/ and
https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from lightkube.utils.quantity import parse_quantity

from millpond.engines.kubernetes.cluster.cluster_nodes import DRIVER

KIND_ATTRIBUTES: Final = frozenset(
    {
        "addressingMode", "architecture", "brand", "cudaComputeCapability", "cudaDriverVersion", "driverVersion",
        "productName", "type",
    }
)  # fmt: skip
"""Those of the driver's attributes that cards of one kind share; all others tell single cards apart."""
_LONGEST: Final = 10 * 1024
"""Kubernetes takes no longer expression."""
_NUMBER: Final = re.compile("[0-9]{1,18}")
_MOST_REPEATS: Final = 3
"""Of a pattern: each one more multiplies the time that a text can take, which is one of 64 characters at most."""
_WORDS: Final = {"&&": " and ", "||": " or ", "!": " not ", "true": " True ", "false": " False "}
_TOKEN: Final = re.compile(r"""r?"(?:[^"\\]|\\.)*"|r?'(?:[^'\\]|\\.)*'|&&|\|\||!(?!=)|\btrue\b|\bfalse\b|\s+""")
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OF_TEXTS: Final[Mapping[str, Callable[..., Any]]] = {
    "contains": lambda text, part: part in text,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "lowerAscii": str.lower,
    "upperAscii": str.upper,
    "matches": lambda text, pattern: _pattern(pattern).search(text) is not None,
}
_OF_AMOUNTS: Final[Mapping[str, Callable[..., Any]]] = {
    "compareTo": lambda one, other: (one > other) - (one < other),
    "isGreaterThan": operator.gt,
    "isLessThan": operator.lt,
}


class UnreadableSelectorError(Exception):
    """A selector that Millpond does not read, and why."""


class _NoSuchKeyError(Exception):
    """The device does not have what an expression asks of it."""


@dataclass(frozen=True, slots=True)
class CardKind:
    """What cards have in common that no selector tells apart.

    Attributes:
        attributes: by name, sorted; texts, numbers, flags, and versions as tuples of numbers.
        capacity: by name, sorted, in units of Kubernetes: bytes of memory.
    """

    attributes: tuple[tuple[str, Any], ...]
    capacity: tuple[tuple[str, float], ...]


def version_of(text: str) -> tuple[int, ...]:
    """A version as its numbers.

    Raises:
        UnreadableSelectorError: it has others than numbers.
    """
    parts = text.split(".")
    if not all(map(_NUMBER.fullmatch, parts)):
        raise UnreadableSelectorError(f"{text[:80]!r} is no version of three numbers")
    return tuple(map(int, parts))


@lru_cache(maxsize=50_000)
def is_meant(expression: str, kind: CardKind) -> bool:
    """Whether an expression holds for cards of a kind.

    Raises:
        UnreadableSelectorError: Millpond does not read it.
    """
    maps = {"attributes": {DRIVER: dict(kind.attributes)}, "capacity": {DRIVER: dict(kind.capacity)}}
    device = {"driver": DRIVER, "allowMultipleAllocations": False, **maps}
    try:
        return _truth(_value(_parsed(expression), device))
    except _NoSuchKeyError:
        return False
    except (TypeError, RecursionError) as error:
        raise UnreadableSelectorError("it compares what cannot be compared") from error


def amount_of(text: str) -> float:
    """A quantity of Kubernetes as a number.

    Raises:
        UnreadableSelectorError: it is none.
    """
    try:
        return float(parse_quantity(text) or 0)
    except (ValueError, ArithmeticError) as error:
        raise UnreadableSelectorError(f"{text[:80]!r} is no quantity") from error


@lru_cache(maxsize=1_000)
def _parsed(expression: str) -> ast.expr:
    """What of CEL is read here differs from expressions of Python in its operators alone."""
    if len(expression) > _LONGEST:
        raise UnreadableSelectorError("it is too long")
    in_python = _TOKEN.sub(lambda found: _WORDS.get(found[0], " " if found[0].isspace() else found[0]), expression)
    try:
        return ast.parse(f"({in_python})", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise UnreadableSelectorError("it is written in a part of CEL that Millpond does not read") from error


def _value(node: ast.expr, device: Mapping[str, Any]) -> Any:
    """What a part of an expression comes to."""
    match node:
        case ast.Constant(value=str() | int() as value):
            return value
        case ast.Name(id="device"):
            return device
        case ast.Attribute(value=within, attr=key):
            return _member(node, _value(within, device), key)
        case ast.Subscript(value=within, slice=ast.Constant(value=str() as key)):
            return _member(node, _value(within, device), key)
        case ast.List(elts=elements):
            return [_value(each, device) for each in elements]
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_truth(_value(part, device)) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_truth(_value(part, device)) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _truth(_value(part, device))
        case ast.Compare(left=one, ops=[ast.In()], comparators=[ast.Attribute() | ast.Subscript() as within]):
            return _has(within, _value(one, device), device)
        case ast.Compare(left=one, ops=[ast.In()], comparators=[ast.List() as other]):
            return _value(one, device) in _value(other, device)
        case ast.Compare(left=one, ops=[comparison], comparators=[other]) if type(comparison) in _COMPARISONS:
            return _COMPARISONS[type(comparison)](_value(one, device), _value(other, device))
        case ast.Call(func=ast.Name(id="has"), args=[ast.Attribute(value=within, attr=key)], keywords=[]):
            return _has(within, key, device)
        case ast.Call(func=ast.Name(id="quantity"), args=[ast.Constant(value=str() as text)], keywords=[]):
            return amount_of(text)
        case ast.Call(func=ast.Name(id="semver"), args=[ast.Constant(value=str() as text)], keywords=[]):
            return version_of(text)
        case ast.Call(func=ast.Attribute(value=within, attr=name), args=arguments, keywords=[]):
            return _called(name, _value(within, device), [_value(each, device) for each in arguments])
    raise UnreadableSelectorError(f"Millpond does not read `{ast.unparse(node)[:80]}` in it")


def _called(name: str, value: Any, arguments: list[Any]) -> Any:
    known = _OF_TEXTS if isinstance(value, str) else _OF_AMOUNTS if isinstance(value, float | tuple) else {}
    if name not in known:
        raise UnreadableSelectorError(f"Millpond does not know its function {name}")
    return known[name](value, *arguments)


def _member(node: ast.expr, within: Any, key: str) -> Any:
    if not isinstance(within, Mapping):
        raise UnreadableSelectorError(f"Millpond does not read `{ast.unparse(node)[:80]}` in it")
    if key in within:
        return within[key]
    _require_common(node, key)
    raise _NoSuchKeyError


def _has(within: ast.expr, key: Any, device: Mapping[str, Any]) -> bool:
    found = _value(within, device)
    if key in found:
        return True
    _require_common(within, key)
    return False


def _require_common(node: ast.expr, key: Any) -> None:
    """A device may have it, but what it says of a single card does not choose among nodes."""
    if ".attributes" in ast.unparse(node) and key not in KIND_ATTRIBUTES:
        remedy = f"Millpond chooses these itself: select by {', '.join(_COMMON)}"
        raise UnreadableSelectorError(f"{str(key)[:80]!r} tells single cards apart, and {remedy}")


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UnreadableSelectorError("it does not say yes or no")
    return value


def _pattern(text: str) -> re.Pattern[str]:
    """A pattern that is quickly tried: as Kubernetes' own, it never goes back and forth for long."""
    plain = re.sub(r"\\.|\[[^\]]*\]", "x", text.removeprefix("(?i)"))
    repeats = sum(plain.count(sign) for sign in "*+?{")
    if repeats > _MOST_REPEATS or re.search(r"\)[*+?{]|\(\?", plain):
        raise UnreadableSelectorError(f"its pattern {text[:80]!r} is more than Millpond reads")
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnreadableSelectorError(f"{text[:80]!r} is no pattern") from error


_COMMON: Final = ("productName", "architecture", "cudaComputeCapability", "driverVersion", "the capacity memory")
