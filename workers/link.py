"""The wire between a supervisor and one child: JSON lines over a socket pair.

Either end sees the other's death as the end of the stream, whatever killed it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import orjson

_LINE_BYTES = 8 * 1024 * 1024  # a child that holds thousands of turns names them all in one line


class Link:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Link:
        """Return a link over a connected socket, which it then owns."""
        sock.setblocking(False)
        return cls(*await asyncio.open_connection(sock=sock, limit=_LINE_BYTES))

    @property
    def hung_up(self) -> bool:
        """Tell whether the other end is gone and all that it said was received."""
        return self._reader.at_eof() or self._reader.exception() is not None

    def send(self, **message: Any) -> None:
        """Say something; lost when the other end is gone."""
        if not self._writer.is_closing():
            self._writer.write(orjson.dumps(message) + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """Return what the other end said next, or None when it is gone."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            return None
        return cast("dict[str, Any]", orjson.loads(line)) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def read_line(sock: socket.socket) -> dict[str, Any] | None:
    """Return the next line of a socket that no loop reads yet, or None when the other end is gone.

    What follows that line stays in the socket.
    """
    got = bytearray()
    while not got.endswith(b"\n"):
        seen = sock.recv(65536, socket.MSG_PEEK)
        if not seen:
            return None
        got += sock.recv(seen.find(b"\n") + 1 or len(seen))
    return cast("dict[str, Any]", orjson.loads(bytes(got)))
