"""The choices of one request, side by side. Where one fails or the client leaves, the others' places are freed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def all_of(choices: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all, in order. Raises: what the first one that fails raises."""
    going = [asyncio.create_task(choice) for choice in choices]
    try:
        return await asyncio.gather(*going)
    finally:
        for task in going:
            task.cancel()


async def as_they_come(choices: Sequence[AsyncIterator[T]]) -> AsyncGenerator[tuple[int, T], None]:
    """The parts of all, each with its choice's number. Raises: what the first one that fails raises."""
    queue: asyncio.Queue[tuple[int, T | None, Exception | None]] = asyncio.Queue()

    async def pump(index: int, parts: AsyncIterator[T]) -> None:
        try:
            async for part in parts:
                await queue.put((index, part, None))
            await queue.put((index, None, None))
        except Exception as error:
            await queue.put((index, None, error))

    pumps = [asyncio.create_task(pump(index, parts)) for index, parts in enumerate(choices)]
    num_going = len(pumps)
    try:
        while num_going:
            index, part, error = await queue.get()
            if error is not None:
                raise error
            if part is None:
                num_going -= 1
            else:
                yield index, part
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
