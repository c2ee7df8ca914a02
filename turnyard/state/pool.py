"""A bounded set of connections in which no permit and no cancel is ever lost.

redis-py's own blocking pool waits on a condition, and up to Python 3.12 a waiter that is cancelled in the moment it is
woken takes the wake-up with it: others then wait for a connection although all are free. A semaphore hands it on.
Its connections send under `asyncio.wait_for`, which up to Python 3.11 forgets a cancel that comes in the moment the
send ends: the task then goes on for ever. Ours send under `asyncio.timeout`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis import exceptions as rx
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection


class _Sending(AbstractConnection):
    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send, within the socket's timeout; redis-py does the same, and forgets cancels."""
        if not self.is_connected:
            await self.connect()
        limit_s, self.socket_timeout = self.socket_timeout, None
        try:
            async with asyncio.timeout(limit_s):
                await super().send_packed_command(command, check_health)
        except TimeoutError:
            raise rx.TimeoutError("the server took no command in time") from None
        finally:
            self.socket_timeout = limit_s


class _Tcp(_Sending, Connection):
    pass


class _Tls(_Sending, SSLConnection):
    pass


class _Unix(_Sending, UnixDomainSocketConnection):
    pass


_SENDING: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: _Tcp,
    SSLConnection: _Tls,
    UnixDomainSocketConnection: _Unix,
}


class BoundedPool(ConnectionPool):
    """At most `max_connections`; whoever asks for one more waits up to `wait_s` seconds."""

    def __init__(
        self,
        max_connections: int = 32,
        wait_s: float = 5.0,
        connection_class: type[AbstractConnection] = Connection,
        **connection: Any,
    ) -> None:
        super().__init__(_SENDING.get(connection_class, connection_class), max_connections, **connection)
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
