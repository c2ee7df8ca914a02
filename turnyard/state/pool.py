"""A bounded set of connections in which no permit and no cancel is ever lost.

redis-py's own blocking pool waits on a condition, and up to Python 3.12 a waiter that is cancelled in the moment it is
woken takes the wake-up with it: others then wait for a connection although all are free. A semaphore hands it on.
Its connections send under `asyncio.wait_for`, which up to Python 3.11 forgets a cancel that comes in the moment the
send ends: the task then goes on for ever. Ours send under `asyncio.timeout`. A pool with a `place` connects to wherever that
says the server is now; what is connected to another is closed before it is used again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from redis import exceptions as rx
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection

from turnyard.state.places import is_elsewhere

if TYPE_CHECKING:
    from turnyard.state.places import Place
    from turnyard.state.target import Address


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


class _Placed(AbstractConnection):
    """Connects to where its place is, and doubts it when that server says or shows that it is not the one."""

    host: str
    port: int

    def __init__(self, *, place: Place, **connection: Any) -> None:
        super().__init__(**connection)
        self._place = place

    async def connect(self) -> None:
        """Find the server and connect to it."""
        if self.is_connected:
            return
        self.host, self.port = await self._place.find()
        try:
            await super().connect()
            if self._place.masters_only:
                await self._check_master()
        except (rx.RedisError, OSError):
            self._place.doubt()
            raise

    async def _check_master(self) -> None:
        await self.send_command("ROLE")
        role = await self.read_response()
        if role[0] != b"master":
            await self.disconnect(nowait=True)
            raise rx.ConnectionError(f"{self.host}:{self.port} is not a primary now")

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Read a reply; one that points elsewhere is the end of this connection, as is a break of it."""
        try:
            reply = cast("Any", await super().read_response(*args, **options))  # pyright: ignore[reportUnknownMemberType]
        except rx.ResponseError as error:
            if not is_elsewhere(error):
                raise
            self._place.doubt()
            await self.disconnect(nowait=True)
            raise rx.ConnectionError(f"{self.host}:{self.port} is not the server to ask now ({error})") from error
        return reply


class _PlacedTcp(_Placed, _Tcp):
    pass


class _PlacedTls(_Placed, _Tls):
    pass


_PLACED: dict[type[AbstractConnection], type[AbstractConnection]] = {_Tcp: _PlacedTcp, _Tls: _PlacedTls}


class BoundedPool(ConnectionPool):
    """At most `max_connections`; whoever asks for one more waits up to `wait_s` seconds."""

    def __init__(
        self,
        max_connections: int = 32,
        wait_s: float = 5.0,
        connection_class: type[AbstractConnection] = Connection,
        place: Place | None = None,
        **connection: Any,
    ) -> None:
        kind = _SENDING.get(connection_class, connection_class)
        if place is not None:
            kind, connection["place"] = _PLACED[kind], place
        super().__init__(kind, max_connections, **connection)
        self.place: Place | None = place
        self._wait_s = wait_s
        self._permits = asyncio.Semaphore(max_connections)

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> AbstractConnection:
        """Return a connection that is ready for a command; the arguments are redis-py's and mean nothing.

        Raises:
            ConnectionError: none became free in time, or the server cannot be reached.
        """
        del command_name, keys, options
        await self._permit()
        connection: Any = self.get_available_connection()
        try:
            if connection.is_connected and self.place is not None and (connection.host, connection.port) != await self.place.find():
                await connection.disconnect(nowait=True)
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

    async def address(self) -> Address | None:
        """Return where the server of a pool with a place is now; None for a pool without one."""
        return None if self.place is None else await self.place.find()

    def doubt(self) -> None:
        """Find the server again before the next command: it said that it is not the one."""
        if self.place is not None:
            self.place.doubt()

    async def _permit(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._permits.acquire()
        except TimeoutError:
            raise rx.ConnectionError(f"no connection became free within {self._wait_s:g} s") from None
