"""A machine without cards as a server sends it."""

from __future__ import annotations

MACHINE = {
    "name": "a",
    "pool": "default",
    "cpu_milli": 8000,
    "free_cpu_milli": 7500,
    "memory_mib": 65536,
    "free_memory_mib": 64512,
}
