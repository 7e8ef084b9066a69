"""Relay messages in both directions of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

LOOK_EVERY_S: Final = 5.0


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


async def keep_asking(require: Callable[[], None]) -> None:
    """Ask every few seconds whether a session may go on, as nothing may pass through it for long; never returns.

    Raises:
        Exception: what says that it may not.
    """
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        require()
