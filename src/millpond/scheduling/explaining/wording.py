"""Amounts of compute and of card memory in words."""

from __future__ import annotations

from millpond.model.amounts import memory_text, milli_text
from millpond.model.resources import CARD_MILLI


def cards_text(milli: int) -> str:
    """``2``, ``0.25``."""
    return milli_text(milli)


def cpus_text(milli: int) -> str:
    """``2 CPUs``, ``1 CPU``."""
    return f"{milli_text(milli)} CPU{'s' * (milli != 1000)}"


def card_memory_text(mib: int) -> str:
    """``8GiB of card memory``."""
    return f"{memory_text(mib)} of card memory"


def gpus_text(milli: int) -> str:
    """``2 GPUs``, ``1 GPU``."""
    return f"{cards_text(milli)} GPU{'s' * (milli != CARD_MILLI)}"
