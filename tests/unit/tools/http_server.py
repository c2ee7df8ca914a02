"""An HTTP server of this machine that writes down what it is asked and answers as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from turnyard.outbound import Rules


@dataclass(frozen=True)
class Asked:
    """A request. The names of its headers are in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Asked], Awaitable[bytes]]


async def ok(_asked: Asked) -> bytes:
    """Say yes."""
    return response(200, b"yes")


def response(status: int, body: bytes = b"", **headers: str) -> bytes:
    """An answer as it goes over the wire."""
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Length: {len(body)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Server:
    """A running server. `asked` are the requests so far; `rules` let a tool call it."""

    port: int = 0
    answer: Answer = ok
    asked: list[Asked] = field(default_factory=list[Asked])

    @property
    def rules(self) -> Rules:
        return Rules(http=True, networks=("127.0.0.0/8",), ports=frozenset({self.port}), timeout_s=10)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *rest = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, path, _ = first.split(" ")
            asked = Asked(method, path, headers, body)
            self.asked.append(asked)
            writer.write(await self.answer(asked))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def running(answer: Answer = ok) -> AsyncGenerator[Server]:
    """Run a server while the test goes on."""
    server = Server(answer=answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
