"""Amounts of compute in words."""

from __future__ import annotations

from millpond.model.resources import CARD_MILLI


def cards_text(milli: int) -> str:
    """``2``, ``0.25``."""
    return f"{milli / CARD_MILLI:g}"


def gpus_text(milli: int) -> str:
    """``2 GPUs``, ``1 GPU``."""
    return f"{cards_text(milli)} GPU{'s' * (milli != CARD_MILLI)}"
