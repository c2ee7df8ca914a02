"""How a role's process starts, says that it is well, and stops.

A signal only sets `drain`; the main coroutine finishes what it has in hand and returns, and a second signal changes
nothing. Health is progress: `/healthz` is good while every loop that ever ticked has ticked lately, so a process
that answers but no longer works is restarted. `/readyz` is what the role itself says, and false once it drains.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from turnyard.clock import SystemClock
from turnyard.errors import ConfigError, InvalidRequest, JobCancelled, JobFailed, StoreUnavailable, TurnyardError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from turnyard.ports import Clock

T = TypeVar("T")
Main = Callable[["Life"], Coroutine[Any, Any, "int | None"]]

OK, FAILED, USAGE, CONFIG, UNREACHABLE, FORBIDDEN, NOT_FOUND, REFUSED, TIMED_OUT, CANCELLED, INTERRUPTED = (*range(10), 130)

STALE_AFTER_S = 20.0
REQUEST_WAIT_S = 5.0
LONGEST_REQUEST_BYTES = 8_192
SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("turnyard.lifecycle")


class Progress:
    """When each loop of this process last came round."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ticks = {"start": clock.monotonic()}

    def tick(self, loop: str = "main") -> None:
        """Note that `loop` came round: call it each time it does, also when there was nothing to do."""
        self._ticks.pop("start", None)
        self._ticks[loop] = self._clock.monotonic()

    def forget(self, loop: str) -> None:
        """Stop watching a loop that ended on purpose."""
        self._ticks.pop(loop, None)

    def stale(self, after_s: float) -> dict[str, float]:
        """Return the loops that have not come round for more than `after_s`, each with its age in seconds."""
        now = self._clock.monotonic()
        return {loop: now - then for loop, then in self._ticks.items() if now - then > after_s}


def _never() -> bool:
    return False


@dataclass(slots=True)
class Life:
    """What a role's main coroutine is given: when to stop, where to tick, and whom to tell that it is ready.

    Set `ready` to a function that answers whether this process can take work now.
    """

    clock: Clock
    drain: asyncio.Event = field(default_factory=asyncio.Event)
    progress: Progress = field(init=False)
    ready: Callable[[], bool] = _never

    def __post_init__(self) -> None:
        self.progress = Progress(self.clock)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on the fastest event loop installed, and return what it returned."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def run_role(main: Main, *, health_port: int | None = None, health_host: str = "127.0.0.1") -> int:
    """Serve `main` on an event loop of its own and return the exit code: the last line of a role's `__main__`."""
    return run(serve(main, health_port=health_port, health_host=health_host))


async def serve(
    main: Main,
    *,
    health_port: int | None = None,
    health_host: str = "127.0.0.1",
    stale_after_s: float = STALE_AFTER_S,
    clock: Clock | None = None,
) -> int:
    """Run a role's main coroutine until it returns; return the process's exit code.

    SIGTERM and SIGINT set `life.drain`. What `main` returns is the exit code, None meaning 0. A `TurnyardError` is
    logged in one line and turned into its code; any other exception is logged with its traceback and gives 1.
    With `health_port` (0 for a free one) `/healthz` and `/readyz` are served meanwhile.
    """
    life = Life(clock or SystemClock())
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, life.drain.set)
    try:
        async with _health(life, health_host, health_port, stale_after_s):
            return await main(life) or OK
    except TurnyardError as error:
        log.error("stopped: %s", error)  # noqa: TRY400 - the message is meant for people; a traceback would hide it
        return exit_code(error)
    except Exception:
        log.exception("stopped by an unexpected error")
        return FAILED
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def exit_code(error: BaseException) -> int:
    """Return the exit code that stands for an error on every command line of Turnyard."""
    by_class: tuple[tuple[type[BaseException], int], ...] = (
        (ConfigError, CONFIG),
        (StoreUnavailable, UNREACHABLE),
        (JobCancelled, CANCELLED),
        (JobFailed, FAILED),
        (TimeoutError, TIMED_OUT),
        (InvalidRequest, USAGE),
        (KeyboardInterrupt, INTERRUPTED),
    )
    for kind, code in by_class:
        if isinstance(error, kind):
            return code
    by_status = {
        400: USAGE,
        401: FORBIDDEN,
        403: FORBIDDEN,
        404: NOT_FOUND,
        409: REFUSED,
        410: REFUSED,
        422: REFUSED,
        429: REFUSED,
        503: REFUSED,
    }
    return by_status.get(getattr(error, "status", 0), FAILED)


@contextlib.asynccontextmanager
async def _health(life: Life, host: str, port: int | None, stale_after_s: float) -> AsyncGenerator[None]:
    if port is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_WAIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(life, head, stale_after_s))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=LONGEST_REQUEST_BYTES)
    except OSError as error:
        raise ConfigError(
            f"health port {host}:{port} cannot be opened ({error.strerror or error}); choose another with --health-port"
        ) from error
    log.info("health", extra={"host": host, "port": server.sockets[0].getsockname()[1]})
    async with server:
        yield


def _answer(life: Life, head: bytes, stale_after_s: float) -> bytes:
    words = head.split(b"\r\n", 1)[0].split(b" ")
    path = words[1].split(b"?", 1)[0].decode("latin-1") if len(words) == 3 else ""
    status, text = _judge(life, path, stale_after_s)
    body = f"{text}\n".encode()
    lines = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return lines.encode() + (b"" if words[0] == b"HEAD" else body)


def _judge(life: Life, path: str, stale_after_s: float) -> tuple[str, str]:
    if path == "/healthz":
        stale = life.progress.stale(stale_after_s)
        text = ", ".join(f"{loop} has not come round for {age:.0f} s" for loop, age in stale.items())
        return ("503 Service Unavailable", text) if stale else ("200 OK", "ok")
    if path == "/readyz":
        if life.drain.is_set():
            return "503 Service Unavailable", "draining"
        return ("200 OK", "ready") if life.ready() else ("503 Service Unavailable", "not ready")
    return "404 Not Found", "only /healthz and /readyz are served here"
