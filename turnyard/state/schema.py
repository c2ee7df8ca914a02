"""Which forms of stored data this version reads and writes, and which ones a deployment holds.

A deployment holds data of the schemas `read` to `write`, and new data is written in `write`. A version knows the schemas
`oldest` to `newest` and writes whichever of them the deployment says, so an old and a new version run side by side for
as long as both know the deployment's range. `turnyard migrate --finish` moves the range once no older process lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis import exceptions as rx

from turnyard.errors import StoreUnavailable, Unsupported
from turnyard.state.connection import describe
from turnyard.state.keys import LAYOUT

if TYPE_CHECKING:
    from redis.asyncio import Redis


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schemas a version knows: it reads each of `oldest` to `newest` and can write any of them."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        """Return the range in words: `1`, or `1 to 2`."""
        return str(self.oldest) if self.oldest == self.newest else f"{self.oldest} to {self.newest}"


THIS_VERSION = Schemas(oldest=1, newest=1)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a deployment was made with: its shards for ever, and the schemas its data may be in, until it is migrated."""

    shards: int
    read: int
    write: int

    def check(self, schemas: Schemas) -> None:
        """Refuse a version that would meet data it cannot read, or write data that the others cannot.

        Raises:
            Unsupported: the message says which version to use.
        """
        if schemas.newest < self.write:
            raise Unsupported(
                f"this deployment is written in schema {self.write} and this version knows {schemas}: "
                f"it is too old; start a version that knows schema {self.write}"
            )
        if schemas.oldest > self.read:
            raise Unsupported(
                f"this deployment holds data of schema {self.read} and this version knows {schemas}: first run "
                f"`turnyard migrate --finish` with a version that knows schema {self.read} and {schemas.oldest}"
            )


async def read_layout(redis: Redis, *, schemas: Schemas = THIS_VERSION, shards: int | None = None) -> Layout:
    """Return the layout of the deployment on this server, which gets one if it is new; `shards` None: 1.

    Raises:
        StoreUnavailable: the server did not answer.
        Unsupported: another shard count was asked for, or this version must not touch the deployment.
    """
    try:
        found = await _fields(redis)
        if None in found[:2]:
            # A full server refuses even a write that changes nothing, so only a new deployment writes.
            made: Any = redis
            await made.hsetnx(LAYOUT, "shards", str(shards or 1))
            await made.hsetnx(LAYOUT, "schema", str(schemas.newest))
            found = await _fields(redis)
    except (rx.RedisError, OSError) as error:
        raise StoreUnavailable(f"{describe(redis)}: the layout could not be read: {error}") from error
    layout = _layout(found)
    layout.check(schemas)
    if shards is not None and shards != layout.shards:
        raise Unsupported(
            f"this deployment has {layout.shards} shards since its first start, {shards} were asked for; "
            f"ask for {layout.shards} or leave it out"
        )
    return layout


async def check_layout(redis: Redis, schemas: Schemas) -> None:
    """Refuse to go on when the deployment was migrated past this version; one without a layout refuses nobody.

    Raises:
        StoreUnavailable: the server did not answer.
        Unsupported: this process is too old.
    """
    try:
        found = await _fields(redis)
    except (rx.RedisError, OSError) as error:
        raise StoreUnavailable(f"{describe(redis)}: the layout could not be read: {error}") from error
    if None not in found[:2]:
        _layout(found).check(schemas)


async def _fields(redis: Any) -> list[bytes | None]:
    return await redis.hmget(LAYOUT, ["shards", "schema", "read"])


def _layout(found: list[bytes | None]) -> Layout:
    shards, write, read = (int(value) if value is not None else 0 for value in found)
    return Layout(shards, read or write, write)
