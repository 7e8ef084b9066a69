"""Relay messages in both directions of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_one_ends(*directions: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one of them returns or raises, then cancel the others.

    Raises:
        Exception: what the first one raised.
    """
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
