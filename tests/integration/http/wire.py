"""A wire between a client and a door that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class Wire:
    """Forwards connections to a door; `cut` breaks all that are open, and the next ones go through."""

    def __init__(self, door: str) -> None:
        parts = urlsplit(door)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port
        self._open: set[asyncio.StreamWriter] = set()
        self.cuts = 0
        self.url = ""

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        both = {writer, back}
        self._open |= both
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))
        self._open -= both

    def cut(self) -> None:
        """Reset every open connection."""
        self.cuts += 1
        for writer in self._open:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def wire_to(door: str) -> AsyncIterator[Wire]:
    """A wire to the door at this URL."""
    wire = Wire(door)
    server = await asyncio.start_server(wire._connected, "127.0.0.1", 0)
    wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield wire
    finally:
        wire.cut()
        server.close()
