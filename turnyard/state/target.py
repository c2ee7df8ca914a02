"""Which servers a URL means, and what a yard on them is asked to be.

`redis://`, `rediss://` and `unix://` name one server; `redis+cluster://` nodes of a Redis Cluster to begin with;
`redis+sentinel://` the Sentinels that know where `service` is (`rediss+` for TLS). Credentials are those of the data
servers. The query carries what every process of a yard must agree on, so that one string says it to all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from turnyard.errors import ConfigError

DurableAck = Literal["none", "replica", "fsync"]
Kind = Literal["plain", "cluster", "sentinel"]
Address = tuple[str, int]

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
_PORTS = {"plain": 6379, "cluster": 6379, "sentinel": 26379}
_ACKS = frozenset({"none", "replica", "fsync"})


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names. `url` is the part that redis-py reads; `seeds` whom to ask for the server, none for a plain one.

    `shards` is None where the URL does not say; `durable_ack` is what an accepted message waits for.
    """

    kind: Kind
    url: str
    seeds: tuple[Address, ...] = ()
    service: str = ""
    shards: int | None = None
    durable_ack: DurableAck = "none"

    def node_url(self, address: Address) -> str:
        """Return the URL of one server of this target, with the same credentials."""
        parts = urlsplit(self.url)
        login, at, _ = parts.netloc.rpartition("@")
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        return urlunsplit(parts._replace(netloc=f"{login}{at}{host}:{address[1]}"))


def parse_target(url: str) -> Target:
    """Read a URL.

    Raises:
        ConfigError: it is not one of a Redis server, cluster or Sentinel.
    """
    scheme = url.partition(":")[0].lower()
    if scheme not in SCHEMES:
        raise ConfigError(f"{safe_url(url)!r} is not the URL of a Redis server: it must start with {', '.join(f'{s}://' for s in SCHEMES)}")
    base, _, kind = scheme.partition("+")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{safe_url(url)!r} is not the URL of a Redis server: {error}") from error
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {name: query.pop(name, None) for name in ("service", "shards", "durable_ack")}
    what = cast("Kind", kind or "plain")
    if what == "plain":
        found = Target(what, urlunsplit(parts._replace(query=urlencode(query))))
    else:
        seeds = _seeds(parts.netloc, url, _PORTS[what])
        found = Target(what, urlunsplit(parts._replace(scheme=base, query=urlencode(query))), seeds)
        found = Target(what, found.node_url(seeds[0]), seeds)
    return Target(what, found.url, found.seeds, _service(what, ours["service"], url), _shards(ours["shards"]), _ack(ours["durable_ack"]))


def lifted_target(url: str, lifted_url: str | None) -> str:
    """Return the URL of the server that carries lifted tools: its own if there is one, else the yard's.

    Raises:
        ConfigError: that is a cluster: the queue's keys are not of one slot.
    """
    found = lifted_url or url
    if parse_target(found).kind == "cluster":
        raise ConfigError(
            f"{safe_url(found)!r} is a cluster, and lifted tools need a plain server of their own: "
            f"set redis.lifted_url to one, or give --lifted-redis"
        )
    return found


def safe_url(url: str) -> str:
    """Return `url` without its user, password and query, for messages and logs."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(unreadable)"
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, "", ""))


def _seeds(netloc: str, url: str, port: int) -> tuple[Address, ...]:
    try:
        parts = [urlsplit(f"//{place}") for place in netloc.rpartition("@")[2].split(",") if place]
        seeds = tuple((part.hostname or "localhost", part.port or port) for part in parts)
    except ValueError as error:
        raise ConfigError(f"{safe_url(url)!r} is not the URL of a Redis server: {error}") from error
    if not seeds:
        raise ConfigError(f"{safe_url(url)!r} names no server: write host:port, several with a comma between them")
    return seeds


def _service(kind: Kind, given: str | None, url: str) -> str:
    if kind == "sentinel" and not given:
        raise ConfigError(f"{safe_url(url)!r} does not say which primary: add ?service=NAME, the name that Sentinel watches it under")
    return given or ""


def _shards(given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isdigit() or not 1 <= int(given) <= 256:
        raise ConfigError(f"shards={given} in the URL of the Redis server is not a number from 1 to 256")
    return int(given)


def _ack(given: str | None) -> DurableAck:
    if given is None:
        return "none"
    if given not in _ACKS:
        raise ConfigError(f"durable_ack={given} in the URL of the Redis server is not one of {', '.join(sorted(_ACKS))}")
    return cast("DurableAck", given)
