"""The wire to an MCP server that is a process of its own: one message a line, over its stdin and stdout.

The process ends with the connection, and with the worker: it has the mark by which whoever buries a dead worker finds what
that started. What it says that is no message is passed over; a process that says little else,
or a line without an end, is done with.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import anyio.lowlevel
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from turnyard.tools.command import family
from turnyard.tools.mcp.wire import MOST_ANSWER_BYTES, Wire

MOST_NONSENSE = 100  # lines in a row
_LEAVE_S = 2.0  # how long a process may take to end by itself once nobody speaks to it
_TERM_S = 1.0
_CHUNK_BYTES = 65_536


def over_stdio(command: tuple[str, ...], env: Mapping[str, str], *, cwd: str | None, gone: Callable[[], None]) -> Wire:
    """Return the wire to a process. It inherits no more of the environment than PATH, HOME and the like, and this process's stderr.

    `gone` is called when it has ended, or will not be heard any more.
    """

    @asynccontextmanager
    async def wire() -> AsyncGenerator[tuple[Any, Any]]:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=get_default_environment() | dict(env) | family(),
            cwd=cwd,
            start_new_session=True,
            limit=MOST_ANSWER_BYTES,
        )
        try:
            yield _Heard(process, gone), _Said(process)
        finally:
            await _end(process)

    return wire()


class _Stream:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def aclose(self) -> None:
        """Do nothing: the streams are closed with the process."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None


class _Heard(_Stream):
    """What the process says."""

    def __init__(self, process: asyncio.subprocess.Process, gone: Callable[[], None]) -> None:
        super().__init__(process)
        self._gone = gone

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        for _ in range(MOST_NONSENSE):
            await anyio.lowlevel.checkpoint()  # one that never stops talking leaves room for others
            line = await self._line()
            if not line:
                break
            with contextlib.suppress(ValueError):
                return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        self._gone()
        raise StopAsyncIteration

    async def _line(self) -> bytes:
        stdout = self._process.stdout
        try:
            return await stdout.readline() if stdout is not None else b""
        except (ValueError, ConnectionError):  # a line too long, or no process any more
            return b""


class _Said(_Stream):
    """What is said to the process."""

    async def send(self, item: SessionMessage, /) -> None:
        """Say a message.

        Raises:
            BrokenResourceError: nobody listens any more.
        """
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            raise anyio.BrokenResourceError
        try:
            stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
        except ConnectionError as error:
            raise anyio.BrokenResourceError from error


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process and its group: by itself, then asked, then not."""
    ended, drained = asyncio.ensure_future(process.wait()), asyncio.ensure_future(_discard(process))
    try:
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.wait({ended}, timeout=_LEAVE_S)
        if not ended.done():
            _signal(process.pid, signal.SIGTERM)
            await asyncio.wait({ended}, timeout=_TERM_S)
    finally:
        _signal(process.pid, signal.SIGKILL)
    # one that was killed is gone in a moment; what it left behind elsewhere may hold its output open, and is not waited for
    await asyncio.wait({ended}, timeout=_TERM_S)
    ended.cancel()
    drained.cancel()


async def _discard(process: asyncio.subprocess.Process) -> None:
    """Read on, so that a process that has more to say comes to its end."""
    stdout = process.stdout
    with contextlib.suppress(ConnectionError):
        while stdout is not None and await stdout.read(_CHUNK_BYTES):
            pass


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
