"""A bounded set of connections in which no permit is ever lost.

redis-py's own blocking pool waits on a condition, and up to Python 3.12 a waiter that is cancelled in the moment it is
woken takes the wake-up with it: others then wait for a connection although all are free. A semaphore hands it on.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis import exceptions as rx
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection


class BoundedPool(ConnectionPool):
    """At most `max_connections`; whoever asks for one more waits up to `wait_s` seconds."""

    def __init__(self, max_connections: int = 32, wait_s: float = 5.0, **connection: Any) -> None:
        super().__init__(max_connections=max_connections, **connection)
        self._wait_s = wait_s
        self._permits = asyncio.Semaphore(max_connections)

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> AbstractConnection:
        """Return a connection that is ready for a command; the arguments are redis-py's and mean nothing.

        Raises:
            ConnectionError: none became free in time, or the server cannot be reached.
        """
        del command_name, keys, options
        await self._permit()
        connection = self.get_available_connection()
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        """Take a connection back."""
        try:
            await super().release(connection)
        finally:
            self._permits.release()

    async def _permit(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._permits.acquire()
        except TimeoutError:
            raise rx.ConnectionError(f"no connection became free within {self._wait_s:g} s") from None
