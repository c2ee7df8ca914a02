"""A proxy between every process and its server, which counts commands and does harm at the one it is told to.

It listens on a unix socket, so the kernel names the process behind each connection. It lives in a thread of its own
with an event loop of its own. A hook sees each command before it is forwarded and again when its reply is here and not
yet relayed, and may answer with a `Fault` either time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.resp import Frames, head_words, is_push

_CHUNK_BYTES = 65_536
_FUNCTION = re.compile(rb"ty_[0-9a-f]+_(\w+?)(_plain)?")


@dataclass(frozen=True, slots=True)
class Command:
    """A command on its way to the server. `nth` counts those of its process from 1; `words` are its first eight.

    `what` is how people call it: the script's name for a call of a function, else the command in lower case.
    """

    pid: int
    link: int
    nth: int
    what: str
    words: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Harm where a command stands: before it is forwarded, or after its effect and before its reply is relayed.

    `strike` does it, in the proxy's thread, so it must not wait. With `cut` the command (or its reply) goes no further
    and the connection is reset; without, all goes on as if nothing had happened.
    """

    strike: Callable[[Command], None]
    cut: bool = True


def signal_to(number: int) -> Callable[[Command], None]:
    """Return a strike that sends a signal to the process behind the command."""

    def strike(command: Command) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(command.pid, number)

    return strike


def nothing(_: Command) -> None:
    """Strike nobody: what happens is the cut alone."""


KILL = Fault(signal_to(signal.SIGKILL))
LOSE = Fault(nothing)

# Asked about each command twice: with None before it is forwarded, with its reply before that is relayed.
Hook = Callable[[Command, "bytes | None"], "Fault | None"]
Which = Callable[[int], bool]
_Harm = tuple[Command, Fault]


def everybody(_: int) -> bool:
    """Mean every process."""
    return True


def harmless(_: Command, __: bytes | None) -> Fault | None:
    """See a command and do nothing."""
    return None


def before(what: str, fault: Fault) -> Hook:
    """Return a hook that does harm once, before the next command called `what` is forwarded."""
    return _once(lambda command, reply: command.what == what and reply is None, fault)


def after(what: str, fault: Fault) -> Hook:
    """Return a hook that does harm once, when the next command called `what` has had its effect."""
    return _once(lambda command, reply: command.what == what and reply is not None, fault)


def _once(here: Callable[[Command, bytes | None], bool], fault: Fault) -> Hook:
    left = [fault]
    return lambda command, reply: left.pop() if left and here(command, reply) else None


class Proxy:
    """Relays between `listen` and the server's unix socket `server` while the block runs.

    `hook` (called in the proxy's thread) and `delay_s` (added to what passes, each way) may be set at any time.
    """

    def __init__(self, server: Path, listen: Path, *, hook: Hook = harmless) -> None:
        self.hook = hook
        self.delay_s = 0.0
        self.server = server
        self._listen = listen
        self._links: dict[asyncio.Task[Any], _Link] = {}
        self._nth: dict[int, int] = {}
        self._count = 0
        self._held: Which | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        """The URL by which processes reach the server through this proxy."""
        return f"unix://{self._listen}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._there(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._there(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def hold(self, which: Which = everybody) -> None:
        """Let nothing of these processes pass, either way, and keep their connections: the line is half open."""
        self._held = which

    def release(self) -> None:
        """Let pass what was held, late as it is."""
        self._held = None
        self._call(self._free)

    def reset(self, which: Which = everybody) -> None:
        """Break every connection of these processes."""

        def cut() -> None:
            for task, link in self._links.items():
                if which(link.pid):
                    task.cancel()

        self._call(cut)

    def pids(self) -> set[int]:
        """Return the processes that are connected."""
        return {link.pid for link in list(self._links.values())}

    def _call(self, act: Callable[[], None]) -> None:
        async def run() -> None:
            act()

        self._there(run())

    def _there(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> None:
        self._freed = asyncio.Event()
        self._listener = await asyncio.start_unix_server(self._accept, self._listen)

    async def _close(self) -> None:
        self._listener.close()
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links)

    def _free(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self._count += 1
        link = _Link(self, self._count, struct.unpack("3i", peer)[0], writer)
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = link
        try:
            await self.pause(link.pid)
            await link.run(reader)
        except (OSError, asyncio.CancelledError):
            pass  # one end is gone, or both are to go
        finally:
            link.cut()
            del self._links[task]

    async def pause(self, pid: int) -> None:
        """Wait as long as what this process says or hears is delayed or held."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        while self._held is not None and self._held(pid):
            await self._freed.wait()

    def command(self, pid: int, link: int, frame: bytes) -> Command:
        """Count a command and read what it is."""
        self._nth[pid] = nth = self._nth.get(pid, 0) + 1
        words = head_words(frame)
        return Command(pid, link, nth, _what(words), words)


class _Link:
    """A connection of a process and its twin to the server."""

    def __init__(self, proxy: Proxy, number: int, pid: int, client: asyncio.StreamWriter) -> None:
        self.number = number
        self.pid = pid
        self._proxy = proxy
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self._asked: deque[Command] = deque()

    async def run(self, client: asyncio.StreamReader) -> None:
        """Relay until either end is gone."""
        server, writer = await asyncio.open_unix_connection(self._proxy.server)
        self._server = writer
        ways = [asyncio.create_task(self._pump(*way)) for way in ((client, writer, self._forward), (server, self._client, self._back))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def cut(self) -> None:
        """Break both ends; what was written to the server is still read there."""
        self._client.transport.abort()
        if self._server is not None:
            self._server.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, judge: Callable[[bytes], _Harm | None]) -> None:
        frames = Frames()
        while data := await reader.read(_CHUNK_BYTES):
            await self._proxy.pause(self.pid)
            if not _relay(frames.feed(data), writer, judge):
                return
            await writer.drain()

    def _forward(self, frame: bytes) -> _Harm | None:
        command = self._proxy.command(self.pid, self.number, frame)
        self._asked.append(command)
        fault = self._proxy.hook(command, None)
        return fault and (command, fault)

    def _back(self, frame: bytes) -> _Harm | None:
        if is_push(frame) or not self._asked:
            return None
        command = self._asked.popleft()
        fault = self._proxy.hook(command, frame)
        return fault and (command, fault)


def _relay(frames: Iterable[bytes], writer: asyncio.StreamWriter, judge: Callable[[bytes], _Harm | None]) -> bool:
    """Write what may pass, in one piece up to where a fault strikes; False when the link ends here."""
    ready = bytearray()
    for frame in frames:
        harm = judge(frame)
        if harm is not None:
            writer.write(bytes(ready))
            ready.clear()
            command, fault = harm
            fault.strike(command)
            if fault.cut:
                return False
        ready += frame
    writer.write(bytes(ready))
    return True


def _what(words: tuple[bytes, ...]) -> str:
    name = words[0].decode("latin-1").lower() if words else ""
    if name in ("fcall", "fcall_ro"):
        found = _FUNCTION.fullmatch(words[1])
        return found[1].decode() if found else name
    return name
