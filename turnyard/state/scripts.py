"""How a script reaches the server: once in effect, whatever happens to the wire.

The scripts are one library of server-side functions, loaded when a server does not know it yet (docs/adr/0003). Each may be
called again after an unknown outcome, so a call whose connection broke is repeated a few times and then given up as
StoreUnavailable. Calls that wait at the same moment travel together in one round trip; each is still its own transition.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import deque
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from redis import exceptions as rx

from turnyard.errors import StoreUnavailable, TurnyardError, Unsupported
from turnyard.state.confirm import MARK
from turnyard.state.connection import COMMAND_TIMEOUT_S
from turnyard.state.places import is_elsewhere

try:
    import hiredis
except ImportError:  # without the server extra: redis-py packs
    hiredis = None

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from redis.asyncio import Redis

    from turnyard.ports import Clock
    from turnyard.state.confirm import Confirm

log = logging.getLogger("turnyard.state")

FRAGMENTS = (
    "prelude",
    "head",
    "rows",
    "jobs",
    "items",
    "flows",
    "admit",
    "fleet",
    "letters",
    "cancel",
    "poison",
    "claim",
    "ending",
)
# Fragments of a few scripts stand in their blocks: Lua allows two hundred names at a time, and a block sixty from outside of it.
_OWN = {
    "accept": ("outside", "answers"),
    "dispatch": ("arrive",),
    "begin_row": ("outside",),
    "commit": ("outside", "append"),
    "tick": ("outside", "upkeep"),
}
NAMES = (
    MARK,
    "accept",
    "dispatch",
    "begin",
    "begin_row",
    "commit",
    "beat",
    "tick",
    "take",
    "sent",
    "inspect",
    "letter",
    "census",
    "explain",
    "report",
    "share",
)
REFUSED_WHEN_FULL = frozenset({"accept", "commit"})
_FLAGS = {"inspect": "no-writes", "census": "no-writes", "explain": "no-writes"}
_BATCH = 64
_ATTEMPTS = 4
_PAUSE_S = 0.05
_AWAY = ("LOADING", "TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS")


class StoreFull(StoreUnavailable):
    """The Redis server is at its memory limit and takes nothing new: give it room; what is stored is safe."""


class ScriptFailed(TurnyardError):
    """A script failed on the server before it wrote anything it should not: this is a defect of Turnyard, report it."""


class Library:
    """All scripts as one library of functions, named by what it says, so that two versions live side by side."""

    def __init__(self, *, clock_lua: str | None = None) -> None:
        text = library_source()
        if clock_lua is not None:
            text = re.sub(r"local function now\(\).*?\nend\n", lambda _: clock_lua, text, count=1, flags=re.DOTALL)
        self.version = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
        self.source = f"#!lua name=turnyard_{self.version}\n" + text.replace("VERSION_", self.version + "_")

    def function(self, name: str, *, oom: bool) -> str:
        """Return the name of a script's function; with `oom` the one that runs on a full server, too."""
        return f"ty_{self.version}_{name}" if oom or name not in REFUSED_WHEN_FULL else f"ty_{self.version}_{name}_plain"


def library_source() -> str:
    """Return the library without its name: fragments first, then each script in a function of its own.

    `clock_lua` in `Library` replaces how scripts read the time; only tests do that.
    """
    folder = files("turnyard.state") / "lua"
    parts = [(folder / "lib" / f"{fragment}.lua").read_text() for fragment in FRAGMENTS]
    for name in NAMES:
        own = "".join((folder / "lib" / f"{fragment}.lua").read_text() for fragment in _OWN.get(name, ()))
        text = own + (folder / f"{name}.lua").read_text()
        run = "local function run(keys, args)\nenter(keys, args)\nlocal out = main()\nsave_all()\nreturn out\nend\n"
        # A function of its own: Lua lets one have 200 names at most, and the fragments use nearly all of the library's.
        parts.append(f";(function()\n{text}{run}{_registration(name)}end)()\n")
    # Comments cost the server memory; the files keep them.
    lines = (line for part in parts for line in part.splitlines())
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("--")) + "\n"


def _registration(name: str) -> str:
    out = f"redis.register_function{{function_name = 'ty_VERSION_{name}', callback = run, flags = {{'{_FLAGS.get(name, 'allow-oom')}'}}}}\n"
    if name in REFUSED_WHEN_FULL:
        out += f"redis.register_function{{function_name = 'ty_VERSION_{name}_plain', callback = run}}\n"
    return out


@dataclass(slots=True)
class _Call:
    name: str
    args: tuple[Any, ...]
    future: asyncio.Future[Any]
    attempts: int = 0


class Scripts:
    """Sends script calls for one server, those of the same moment together."""

    def __init__(
        self,
        redis: Redis,
        library: Library,
        clock: Clock,
        *,
        lanes: int = 4,
        before_teaching: Callable[[], Awaitable[None]] | None = None,
        confirm: Confirm | None = None,
    ) -> None:
        self._redis = redis
        self._library = library
        self._clock = clock
        self._lanes = lanes
        self._before_teaching = before_teaching
        self._confirm = confirm
        self._waiting: deque[_Call] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self.sent = 0

    async def run(self, name: str, key: str, *args: Any, oom: bool = True) -> Any:
        """Run a script on the shard whose ingress key is `key`, and return its reply.

        With `oom=False` a full server refuses it before it does anything.

        Raises:
            StoreFull: the server is full and the script adds something.
            StoreUnavailable: no answer after a few tries; the script may have run, and the same call may be made again.
            ScriptFailed: the script itself failed.
            Unsupported: the deployment was migrated past this version.
        """
        function = self._library.function(name, oom=oom)
        call = _Call(name, ("FCALL", function, 1, key, *args), asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if len(self._flights) < self._lanes:
            task = asyncio.create_task(self._fly())
            self._flights.add(task)
            task.add_done_callback(self._flights.discard)
        return await call.future

    async def aclose(self) -> None:
        """Fail what still waits; nothing is sent afterwards."""
        for task in list(self._flights):
            task.cancel()
        while self._waiting:
            self._give_up(self._waiting.popleft(), "this process is closing its connection")

    async def _fly(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            batch = [call for call in batch if not call.future.done()]
            if batch:
                await self._deliver(batch)

    async def _deliver(self, batch: list[_Call], *, lesson: bool = False) -> None:
        """Make these calls; with `lesson` the library is loaded right before them, so that nobody can take it away between."""
        load = [("FUNCTION", "LOAD", self._library.source)] if lesson else []
        try:
            replies = await self._send([*load, *(call.args for call in batch), *self._question(batch)])
        except asyncio.CancelledError:
            for call in batch:
                self._give_up(call, "this process is closing its connection")
            raise
        except (rx.DataError, TypeError, ValueError) as error:
            await self._apart(batch, error)
        except (rx.RedisError, OSError) as error:
            await self._again(batch, error)
        else:
            if lesson and _is_refused(replies[0]):
                _refuse(batch, {call.name: _failure(call.name, replies[0]) for call in batch})
                return
            replies = replies[len(load) :]
            if self._confirm is not None and not self._confirm.given(replies[len(batch) :]):
                self._unconfirmed(batch, replies, self._confirm.lacking)
            await self._settle(batch, replies[: len(batch)])

    def _question(self, batch: list[_Call]) -> list[tuple[Any, ...]]:
        return self._confirm.commands(self._library.function(MARK, oom=True), batch[0].args[3]) if self._confirm else []

    def _unconfirmed(self, batch: list[_Call], replies: list[Any], why: str) -> None:
        for call, reply in zip(batch, replies, strict=False):
            if not isinstance(reply, rx.ResponseError):
                self._give_up(call, why)

    async def _apart(self, batch: list[_Call], error: Exception) -> None:
        """Fail the call that cannot be written to the wire; those it was to travel with go alone."""
        if len(batch) > 1:
            for call in batch:
                await self._deliver([call])
        elif not batch[0].future.done():
            batch[0].future.set_exception(ScriptFailed(f"{batch[0].name}: an argument cannot be sent: {error}"))

    async def _send(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send commands over one connection and read their replies; an error reply is returned, not raised."""
        pool: Any = self._redis.connection_pool
        connection = await pool.get_connection("FCALL")
        self.sent += len(commands)
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                replies = await _exchange(connection, commands)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)
        if any(is_elsewhere(reply) for reply in replies):
            pool.doubt()
        return replies

    async def _settle(self, batch: list[_Call], replies: list[Any]) -> None:
        forgotten: list[_Call] = []
        away: list[_Call] = []
        why = ""
        for call, reply in zip(batch, replies, strict=True):
            if call.future.done():
                continue
            if not isinstance(reply, rx.ResponseError):
                call.future.set_result(reply)
            elif str(reply) == "Function not found":
                forgotten.append(call)
            elif is_elsewhere(reply) or str(reply).startswith(_AWAY) or isinstance(reply, rx.BusyLoadingError):
                away.append(call)
                why = str(reply)
            else:
                call.future.set_exception(_failure(call.name, reply))
        if forgotten:
            await self._teach(forgotten)
        if away:
            await self._again(away, rx.ConnectionError(f"the server is not ready: {why}"))

    async def _teach(self, calls: list[_Call]) -> None:
        """Load the library into a server that does not know it, and call again."""
        try:
            if self._before_teaching is not None:
                await self._before_teaching()
        except StoreUnavailable as error:
            await self._again(calls, error)
        except Unsupported as too_old:
            _refuse(calls, dict.fromkeys((call.name for call in calls), too_old))
        else:
            left = self._counted(calls, "the server does not keep functions")
            if left:
                await self._deliver(left, lesson=True)

    async def _again(self, calls: list[_Call], error: Exception) -> None:
        left = self._counted(calls, str(error) or type(error).__name__)
        if left:
            await self._clock.sleep(_PAUSE_S * 2 ** left[0].attempts)
        self._waiting.extendleft(reversed(left))

    def _counted(self, calls: list[_Call], why: str) -> list[_Call]:
        """Count one more attempt; return the calls that may have it, the others are given up."""
        left: list[_Call] = []
        for call in calls:
            call.attempts += 1
            if call.attempts >= _ATTEMPTS:
                self._give_up(call, why)
            elif not call.future.done():
                left.append(call)
        return left

    def _give_up(self, call: _Call, why: str) -> None:
        if not call.future.done():
            call.future.set_exception(StoreUnavailable(f"{call.name}: the Redis server gave no answer ({why}); try again in a moment"))


def _pack(command: tuple[Any, ...]) -> bytes:
    return cast("Any", hiredis).pack_command(command)


async def _exchange(connection: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send commands and read their replies, errors among them as they are.

    The client library guards each reply, and each send, with a timer of its own; the caller's one timer for all of
    them says the same for a fraction of the cost.
    """
    packed: list[bytes] = [_pack(command) for command in commands] if hiredis else connection.pack_commands(commands)
    await connection._send_packed_command(packed)  # noqa: SLF001
    read = connection._parser.read_response  # noqa: SLF001
    return [await read() for _ in commands]


def _is_refused(loaded: Any) -> bool:
    """Tell whether a library was refused for good; where the server is away or has it already, the calls say what is so."""
    known = is_elsewhere(loaded) or str(loaded).startswith(_AWAY) or "already exists" in str(loaded)
    return isinstance(loaded, rx.ResponseError) and not known


def _refuse(calls: list[_Call], errors: Mapping[str, TurnyardError]) -> None:
    for call in calls:
        if not call.future.done():
            call.future.set_exception(errors[call.name])


def _failure(name: str, error: rx.ResponseError) -> TurnyardError:
    text = str(error)
    if text.startswith("OOM") or "command not allowed when used memory" in text:
        return StoreFull(
            f"{name}: the Redis server is at its memory limit and takes nothing new; give it more memory or remove old sessions"
        )
    if text.startswith("NOPERM"):
        return StoreUnavailable(f"{name}: the Redis user may not run this script ({text}); extend its ACL")
    return ScriptFailed(f"{name}: {text}")
