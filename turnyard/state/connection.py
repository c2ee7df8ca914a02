"""How this process reaches a Redis server, and whether that server can be trusted with sessions.

Every client is made here, so that its timeouts, its pool and its protocol are chosen once and hold for every
version of redis-py. Nothing here sends a command twice: only connecting is repeated, because only the caller of
a script knows whether a second send is safe. A blocking reader asks the server to wait `BLOCK_MS`, which stays
well under the time its socket waits, so a healthy idle server never looks like a dead one.
"""

from __future__ import annotations

import logging
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

from redis import exceptions as rx
from redis.asyncio import Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from turnyard.errors import ConfigError, StoreUnavailable, Unsupported
from turnyard.state.pool import BoundedPool

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK_MS = 2_000
COMMAND_TIMEOUT_S = 5.0
BLOCKING_TIMEOUT_S = 6.0
CONNECT_TIMEOUT_S = 2.0
POOL_WAIT_S = 5.0
CONNECT_ATTEMPTS = 3
OLDEST_SERVER = (7, 0)
SAFE_POLICY = "noeviction"
SCHEMES = ("redis", "rediss", "unix")

log = logging.getLogger("turnyard.state")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a checked server says of itself: `kind` is redis, valkey or fake.

    `version` and `policy` are None where it would not tell.
    """

    kind: str
    version: str | None
    policy: str | None
    pid: int | None
    warnings: tuple[str, ...] = ()


def connect(url: str, *, blocking: bool = False, max_connections: int = 32) -> Redis:
    """Return a client of the server at `url` (redis://, rediss:// or unix://); nothing is sent yet.

    With `blocking` the client is for readers that wait in the server up to `BLOCK_MS`: each waiting read holds a
    connection of its own. Replies are bytes. Create it inside the event loop that uses it and `aclose()` it there.

    Raises:
        ConfigError: the URL is not one of a Redis server.
    """
    scheme = url.partition(":")[0].lower()
    if scheme not in SCHEMES:
        raise ConfigError(f"{safe_url(url)!r} is not the URL of a Redis server: it must start with {', '.join(f'{s}://' for s in SCHEMES)}")
    options: dict[str, Any] = {
        "max_connections": max_connections,
        "wait_s": POOL_WAIT_S,
        "socket_timeout": BLOCKING_TIMEOUT_S if blocking else COMMAND_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "protocol": 2,
        "decode_responses": False,
        "health_check_interval": 0,
        # redis-py repeats a command only for errors in retry_on_error, which stays empty: this covers connecting alone.
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), CONNECT_ATTEMPTS - 1),
        "retry_on_error": [],
        "retry_on_timeout": False,
    }
    if scheme != "unix":
        options |= {"socket_keepalive": True, "socket_keepalive_options": _keepalive()}
    try:
        pool = BoundedPool.from_url(url, **options)
    except ValueError as error:
        raise ConfigError(f"{safe_url(url)!r} is not the URL of a Redis server: {error}") from error
    return Redis.from_pool(pool)


def safe_url(url: str) -> str:
    """Return `url` without its user, password and query, for messages and logs."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(unreadable)"
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, "", ""))


def describe(redis: Redis) -> str:
    """Return where `redis` connects to, without credentials."""
    kwargs = cast("dict[str, Any]", redis.connection_pool.connection_kwargs)
    if "path" in kwargs:
        return f"unix://{kwargs['path']}"
    scheme = "rediss" if issubclass(cast("type", redis.connection_pool.connection_class), SSLConnection) else "redis"
    return f"{scheme}://{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}/{kwargs.get('db', 0)}"


async def check_server(redis: Redis) -> ServerFacts:
    """Ask the server what it is, and refuse one that would lose or evict sessions.

    A server that forbids INFO and CONFIG to this user is accepted; `warnings` then says what could not be checked.

    Raises:
        StoreUnavailable: the server did not answer.
        Unsupported: its version is older than 7.0, or its eviction policy is not noeviction.
        ConfigError: it refused the credentials.
    """
    where = describe(redis)
    info = await _info(redis, where)
    if info.get("server_name") == "fake":
        return ServerFacts("fake", None, None, None)
    warnings: list[str] = []
    version = _version(info, where, warnings)
    policy = info.get("maxmemory_policy") or await _configured_policy(redis, where)
    if policy is None:
        warnings.append(f"server {where}: the eviction policy could not be read; make sure that maxmemory-policy is {SAFE_POLICY}")
    elif policy != SAFE_POLICY:
        raise Unsupported(
            f"server {where}: its eviction policy is {policy}, so it may delete sessions when it is full; "
            f"set it with `CONFIG SET maxmemory-policy {SAFE_POLICY}` and in its configuration file"
        )
    if info.get("aof_enabled") == "0":
        warnings.append(f"server {where}: it keeps no log on disk, so all is lost when it ends; set `appendonly yes`")
    if info.get("aof_last_write_status", "ok") != "ok":
        warnings.append(f"server {where}: it cannot write its log and takes nothing new until it can; see whether its disk is full")
    for warning in warnings:
        log.warning(warning)
    pid = info.get("process_id")
    return ServerFacts(info.get("server_name", "redis"), version, policy, int(pid) if pid else None, tuple(warnings))


async def _info(redis: Redis, where: str) -> Mapping[str, str]:
    try:
        raw = await _ask(redis, where, "INFO")
    except rx.ResponseError as error:
        await _ask(redis, where, "PING", refusable=False)
        # A real server knows INFO even where it forbids it.
        return {"server_name": "fake"} if "unknown command" in str(error).lower() else {}
    return parse_info(raw)


def parse_info(raw: Any) -> dict[str, str]:
    """Return the fields of an INFO reply, whichever form the client library gave it."""
    if isinstance(raw, dict):
        return {_text(k): _text(v) for k, v in cast("dict[Any, Any]", raw).items()}
    return dict(line.split(":", 1) for line in _text(raw).splitlines() if ":" in line and not line.startswith("#"))


def _version(info: Mapping[str, str], where: str, warnings: list[str]) -> str | None:
    version = info.get("redis_version")
    if version is None:
        warnings.append(f"server {where}: its version could not be read; Redis 7.0 or Valkey is needed")
        return None
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_SERVER:
        raise Unsupported(
            f"server {where}: it is Redis {version}; Turnyard needs Redis 7.0 or newer, or Valkey: upgrade it or set REDIS_URL to another"
        )
    return info.get("valkey_version", version)


async def _configured_policy(redis: Redis, where: str) -> str | None:
    try:
        raw: dict[Any, Any] = await _ask(redis, where, "CONFIG GET", "maxmemory-policy")
    except rx.ResponseError:
        return None
    policies = [value for name, value in raw.items() if _text(name) == "maxmemory-policy"]
    return _text(policies[0]) if policies else None


def _text(raw: Any) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


async def _ask(redis: Redis, where: str, *command: str, refusable: bool = True) -> Any:
    try:
        return await redis.execute_command(*command)  # pyright: ignore[reportUnknownVariableType]
    except (rx.RedisError, OSError) as error:
        if refusable and isinstance(error, rx.ResponseError):
            raise
        if _hides(error, rx.ResponseError):
            raise ConfigError(
                f"server {where}: it lets nobody in this way ({error}); correct REDIS_URL, or what its user may do"
            ) from error
        if _hides(error, rx.AuthenticationError):
            raise ConfigError(f"server {where}: it refused the user name or password ({error}); correct REDIS_URL") from error
        reason = str(error) or type(error).__name__
        raise StoreUnavailable(f"server {where} does not answer ({reason}); start it, or correct REDIS_URL") from error


def _hides(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Tell a refusal from a silent server; over a unix socket redis-py hides the one inside the other."""
    return error is not None and (isinstance(error, kind) or _hides(error.__cause__, kind))


def _keepalive() -> dict[int, int]:
    """Notice a peer that vanished within about 25 s, where the platform lets us say so."""
    wanted = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
