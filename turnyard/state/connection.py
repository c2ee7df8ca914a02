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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

from redis import exceptions as rx
from redis.asyncio import Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from turnyard.errors import ConfigError, StoreUnavailable, Unsupported
from turnyard.state.places import Sentinels
from turnyard.state.pool import BoundedPool
from turnyard.state.target import parse_target, safe_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from turnyard.state.places import Place
    from turnyard.state.target import Address, DurableAck, Target

BLOCK_MS = 2_000
COMMAND_TIMEOUT_S = 5.0
BLOCKING_TIMEOUT_S = 6.0
CONNECT_TIMEOUT_S = 2.0
POOL_WAIT_S = 5.0
CONNECT_ATTEMPTS = 3
OLDEST_SERVER = (7, 0)
SAFE_POLICY = "noeviction"

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
    """Return a client of the server at `url`, or of the primary that its Sentinels name; nothing is sent yet.

    With `blocking` the client is for readers that wait in the server up to `BLOCK_MS`: each waiting read holds a
    connection of its own. Replies are bytes. Create it inside the event loop that uses it and `aclose()` it there.

    Raises:
        ConfigError: the URL is not one of a Redis server, or that of a cluster, which is many.
    """
    target = parse_target(url)
    if target.kind == "cluster":
        raise ConfigError(f"{safe_url(url)!r} is a cluster where one plain server is needed; name that one")
    place = Sentinels(target.seeds, target.service, asker(target)) if target.kind == "sentinel" else None
    return client(target, place, blocking=blocking, max_connections=max_connections)


def client(target: Target, place: Place | None, *, blocking: bool = False, max_connections: int = 32, attempts: int | None = None) -> Redis:
    """Return a client of one server of `target`: of the plain one, or of the one that is at `place` whenever it connects.

    Raises:
        ConfigError: redis-py cannot read the URL.
    """
    # What is not where it was is looked for anew rather than tried again.
    tries = attempts or (CONNECT_ATTEMPTS if place is None else 1)
    options: dict[str, Any] = {
        "max_connections": max_connections,
        "wait_s": POOL_WAIT_S,
        "socket_timeout": BLOCKING_TIMEOUT_S if blocking else COMMAND_TIMEOUT_S,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "protocol": 2,
        "decode_responses": False,
        "health_check_interval": 0,
        # redis-py repeats a command only for errors in retry_on_error, which stays empty: this covers connecting alone.
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), tries - 1),
        "retry_on_error": [],
        "retry_on_timeout": False,
    }
    if not target.url.startswith("unix:"):
        options |= {"socket_keepalive": True, "socket_keepalive_options": _keepalive()}
    if place is not None:
        options["place"] = place
    try:
        pool = BoundedPool.from_url(target.url, **options)
    except ValueError as error:
        raise ConfigError(f"{safe_url(target.url)!r} is not the URL of a Redis server: {error}") from error
    return Redis.from_pool(pool)


def asker(target: Target) -> Callable[..., Awaitable[Any]]:
    """Return what asks one server of `target` one question on a connection of its own: (address, command…) to its reply.

    A Sentinel is asked without the credentials, which are those of the servers it watches.
    """

    async def ask(address: Address, *command: str) -> Any:
        url = target.node_url(address)
        if target.kind == "sentinel":
            parts = urlsplit(url)
            url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], path="", query=parts.query))
        redis: Any = client(replace(target, url=url), None, max_connections=1, attempts=1)
        try:
            return await raw(redis, *command)
        finally:
            await redis.aclose()

    return ask


async def raw(redis: Any, *command: str) -> Any:
    """Return a reply as it came: redis-py makes each of these commands into something else in each of its versions."""
    connection = await redis.connection_pool.get_connection()
    try:
        await connection.send_command(*command)
        return await connection.read_response()
    finally:
        await redis.connection_pool.release(connection)


def describe(redis: Redis) -> str:
    """Return where `redis` connects to, without credentials."""
    kwargs = cast("dict[str, Any]", redis.connection_pool.connection_kwargs)
    if "place" in kwargs:
        return str(kwargs["place"])
    if "path" in kwargs:
        return f"unix://{kwargs['path']}"
    scheme = "rediss" if issubclass(cast("type", redis.connection_pool.connection_class), SSLConnection) else "redis"
    return f"{scheme}://{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}/{kwargs.get('db', 0)}"


async def check_server(redis: Redis, *, durable_ack: DurableAck = "none", cluster: bool = False) -> ServerFacts:
    """Ask the server what it is, and refuse one that would lose or evict sessions.

    A server that forbids INFO and CONFIG to this user is accepted; `warnings` then says what could not be checked.
    `durable_ack` is what it must be able to confirm; `cluster` tells whether it is meant to be a node of one.

    Raises:
        StoreUnavailable: the server did not answer.
        Unsupported: its version is older than 7.0, its eviction policy is not noeviction, or it cannot confirm `durable_ack`.
        ConfigError: it refused the credentials, or it is a node of a cluster and was not named as one.
    """
    where = describe(redis)
    info = await _info(redis, where)
    _check_kind(info, where, cluster=cluster)
    await _check_ack(redis, where, info, durable_ack)
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


def _check_kind(info: Mapping[str, str], where: str, *, cluster: bool) -> None:
    if info.get("cluster_enabled") == "1" and not cluster:
        raise ConfigError(f"server {where}: it is a node of a Redis Cluster; write its URL as redis+cluster://host:port")


async def _check_ack(redis: Redis, where: str, info: Mapping[str, str], durable_ack: DurableAck) -> None:
    """A server that cannot confirm what is asked of it would refuse every message."""
    if durable_ack == "none":
        return
    needed = "WAIT" if durable_ack == "replica" else "WAITAOF"
    try:
        (known,) = await raw(redis, "COMMAND", "INFO", needed)
    except rx.NoPermissionError:
        return
    except (ValueError, rx.ResponseError):
        known = None
    if known is None:
        raise Unsupported(f"server {where}: it has no {needed}, so durable_ack={durable_ack} cannot be; take Redis 7.2 or Valkey, or none")
    if durable_ack == "fsync" and info.get("aof_enabled") == "0":
        raise Unsupported(f"server {where}: it keeps no log on disk, so durable_ack=fsync cannot be; set `appendonly yes`")


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
