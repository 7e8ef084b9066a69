"""Which vendors of devices this installation knows: the entry points of the group ``millpond.devices``.

Each names a class like ``vendor.DeviceVendor`` that is made without arguments. One that cannot be loaded, or has not
got what a vendor must have, is reported and left out: a fault of another package must not keep a server from its cards.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from millpond.node.devices.vendor import DeviceVendor

GROUP = "millpond.devices"


@dataclass(frozen=True, slots=True)
class FoundVendors:
    """What there is to ask for devices.

    Attributes:
        vendors: by name.
        broken: what could not be used and why, in a clause, by the name of the entry point.
    """

    vendors: tuple[DeviceVendor, ...]
    broken: dict[str, str]


def find_vendors(points: Iterable[EntryPoint] | None = None) -> FoundVendors:
    """All vendors that are installed, in the order of their names.

    Args:
        points: instead of those that are installed.
    """
    vendors: dict[str, DeviceVendor] = {}
    broken = {}
    for point in sorted(entry_points(group=GROUP) if points is None else points, key=lambda each: each.name):
        try:
            vendor = point.load()()
            trouble = _missing_in(vendor) or (
                f"there is another one called {vendor.name}" if vendor.name in vendors else ""
            )
        except Exception as error:  # whatever a third party's code may raise
            trouble = f"{point.value} cannot be used ({type(error).__name__}: {error})"
        if trouble:
            broken[point.name] = trouble
        else:
            vendors[vendor.name] = vendor
    return FoundVendors(tuple(vendors.values()), broken)


def _missing_in(vendor: object) -> str:
    lacking = sorted(name for name in _members() if not hasattr(vendor, name))
    return f"{type(vendor).__name__} lacks {', '.join(lacking)}" if lacking else ""


@cache
def _members() -> tuple[str, ...]:
    """What a vendor must have."""
    methods = (name for name, _ in inspect.getmembers(DeviceVendor, inspect.isfunction) if not name.startswith("_"))
    return (*methods, *inspect.get_annotations(DeviceVendor))
