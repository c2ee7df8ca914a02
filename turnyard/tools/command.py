"""How a tool runs a command so that nothing of it is left behind.

The command leads a session of its own: what ends it (its time is over, the call is cancelled, the worker stops) ends all
that it started there. A worker child that dies at once is buried by its supervisor, with whatever it started, wherever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

from turnyard.errors import ToolError
from turnyard.text import bound

_MARK = "TURNYARD_FAMILY"  # set by whoever starts a worker child, who ends all that have it
KEPT_BYTES = 65_536
_CHUNK_BYTES = 65_536
_TERM_S = 0.5  # between asking a group to end and ending it


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command came to. `code` is its exit code, negative when a signal ended it; the texts are cut at the bound given."""

    code: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Tell whether it ended well."""
        return self.code == 0


async def run_command(
    argv: Sequence[str | os.PathLike[str]],
    *,
    given: str | bytes | None = None,
    timeout: timedelta | float | None = None,  # noqa: ASYNC109 - what ends is a process group, not a task
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> Ran:
    """Run a command to its end, without a shell; see `ToolContext.run`.

    Raises:
        ToolError: there is no such command, or its time was over.
    """
    limit_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    async with AsyncExitStack() as stack:
        stdout, stderr = await _pipe(stack), await _pipe(stack)
        try:
            process = await asyncio.create_subprocess_exec(
                *(os.fspath(part) for part in argv),
                stdin=asyncio.subprocess.PIPE if given is not None else asyncio.subprocess.DEVNULL,
                stdout=stdout.end,
                stderr=stderr.end,
                cwd=cwd,
                env=None if env is None else {**env, **family()},
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(f"{argv[0]} cannot be run: {error.strerror or error}") from error
        stack.push_async_callback(_end, process)
        stdout.started()
        stderr.started()
        try:
            async with asyncio.timeout(limit_s):
                return await _followed(process, stdout.reader, stderr.reader, given=given, kept_bytes=kept_bytes)
        except TimeoutError as error:
            raise ToolError(f"{argv[0]} was stopped after {limit_s:g} s; its effect is unknown") from error


class _Pipe:
    """What a command writes to. asyncio's own pipes would have an ended command waited for until all it started has let go of them."""

    def __init__(self, reader: asyncio.StreamReader, end: int) -> None:
        self.reader = reader
        self.end = end

    def started(self) -> None:
        """Let go of the end that the command has now."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1


async def _pipe(stack: AsyncExitStack) -> _Pipe:
    ours, theirs = os.pipe()
    pipe = _Pipe(asyncio.StreamReader(), theirs)
    stack.callback(pipe.started)
    source = os.fdopen(ours, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe.reader), source)
    stack.callback(transport.close)
    return pipe


async def _followed(
    process: asyncio.subprocess.Process,
    out: asyncio.StreamReader,
    err: asyncio.StreamReader,
    *,
    given: str | bytes | None,
    kept_bytes: int,
) -> Ran:
    async with asyncio.TaskGroup() as group:
        stdout, stderr = group.create_task(_head(out, kept_bytes)), group.create_task(_head(err, kept_bytes))
        if given is not None:
            group.create_task(_feed(process, given.encode() if isinstance(given, str) else given))
        code = await process.wait()
        # What it started and left running may hold the pipes open for ever.
        _signal(process.pid, signal.SIGKILL)
    return Ran(code, stdout.result(), stderr.result())


async def _head(stream: asyncio.StreamReader, kept_bytes: int) -> str:
    """Read a stream to its end and return the beginning of it; the rest is read, too, so that the writer never waits."""
    kept, size = bytearray(), 0
    while chunk := await stream.read(_CHUNK_BYTES):
        size += len(chunk)
        kept += chunk[: max(0, kept_bytes - len(kept))]
    text = bound(bytes(kept).decode("utf-8", "ignore" if size > kept_bytes else "replace"), kept_bytes)
    return text if size <= kept_bytes else f"{text}\n[cut after {kept_bytes:,} of {size:,} bytes]"


async def _feed(process: asyncio.subprocess.Process, given: bytes) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(ConnectionError):  # it does not want to know all of it
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the group, whoever of it is still there: first asked, soon after not."""
    try:
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=_TERM_S)
    finally:
        _signal(process.pid, signal.SIGKILL)


def family() -> dict[str, str]:
    """Return what marks a process as one that this worker child started."""
    return {name: os.environ[name] for name in (_MARK,) if name in os.environ}


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
