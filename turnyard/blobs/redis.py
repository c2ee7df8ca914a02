"""Files in the Redis server of the deployment, or in the shard that a tenant's name chooses: small ones, for a while.

A file's content is one string that is written and read in pieces, so no command moves more than one of them. Everything
has a life, also what a writer that died left behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from turnyard.blobs.store import PIECE_BYTES, Place
from turnyard.errors import FilesUnavailable, StoreUnavailable
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from collections.abc import Generator

    from turnyard.state.yard import Shard, Yard

MOST_BYTES = 8_000_000

_UNSEALED_MS = 600_000
_OLDEST = 100
_PAGE = 1_000


class RedisShelf:
    """Implements `Shelf`.

    The index of a folder is a sorted set of `<id>.<size>.<expires_ms>` in the order of the ids; what has expired is taken
    out of it from the oldest end, a hundred at a time, whenever something is put.
    """

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    @property
    def most_bytes(self) -> int | None:
        """Return how large a file may be here."""
        return MOST_BYTES

    def _home(self, folder: str) -> Shard:
        # Not by the hash of a session's name: a folder is none.
        return self._yard.shards[sum(folder.encode()) % len(self._yard.shards)]

    async def write(self, place: Place, pieces: AsyncIterator[bytes], ttl_ms: int) -> None:
        """Write the content of a file piece by piece; until it is sealed it lives for ten minutes."""
        del ttl_ms
        home = self._home(place.folder)
        key, at = home.keys.file(place.folder, place.file) + ":data", 0
        try:
            async for piece in pieces:
                with _using(place):
                    async with home.redis.pipeline(transaction=True) as pipe:
                        pipe.setrange(key, at, piece)
                        pipe.pexpire(key, _UNSEALED_MS)
                        await pipe.execute()
                at += len(piece)
        except BaseException:
            if at:
                with _using(place):
                    await home.redis.unlink(key)
            raise

    async def seal(self, place: Place, card: bytes, size: int, ttl_ms: int) -> None:
        """Write the card of a file, and let its content live as long as that."""
        home = self._home(place.folder)
        key, index = home.keys.file(place.folder, place.file), home.keys.files(place.folder)
        with _using(place):
            seconds, micros = await home.redis.time()
            now_ms = seconds * 1000 + micros // 1000
            over = await self._over(home, index, now_ms)
            longest_ms = max(ttl_ms, await home.redis.pttl(index))
            async with home.redis.pipeline(transaction=True) as pipe:
                pipe.pexpire(f"{key}:data", ttl_ms)
                pipe.set(key, card, px=ttl_ms)
                pipe.zadd(index, {f"{place.file}.{size}.{now_ms + ttl_ms}": 0})
                if over:
                    pipe.zrem(index, *over)
                pipe.pexpire(index, longest_ms)
                await pipe.execute()

    async def _over(self, home: Shard, index: str, now_ms: int) -> list[bytes]:
        """Return which of the oldest members of an index name files that have expired."""
        oldest: list[bytes] = await home.redis.zrevrangebylex(index, "+", "-", start=0, num=_OLDEST)
        return [member for member in oldest if _entry(member)[2] <= now_ms]

    async def card(self, place: Place) -> bytes | None:
        """Return a file's card, None when it is not there."""
        home = self._home(place.folder)
        with _using(place):
            return await home.redis.get(home.keys.file(place.folder, place.file))

    async def read(self, place: Place, start: int, end: int) -> bytes | None:
        """Return a part of a file, None when it is not there."""
        home = self._home(place.folder)
        key = home.keys.file(place.folder, place.file) + ":data"
        found = bytearray()
        for at in range(start, end, PIECE_BYTES):
            with _using(place):
                piece: bytes = await home.redis.getrange(key, at, min(end, at + PIECE_BYTES) - 1)
            found += piece
        return bytes(found) or None

    async def drop(self, place: Place) -> None:
        """Take a file away."""
        home = self._home(place.folder)
        key, index = home.keys.file(place.folder, place.file), home.keys.files(place.folder)
        with _using(place):
            members: list[bytes] = await home.redis.zrangebylex(index, f"[{place.file}.", f"({place.file}/", start=0, num=1)
            async with home.redis.pipeline(transaction=True) as pipe:
                pipe.unlink(key, f"{key}:data")
                if members:
                    pipe.zrem(index, *members)
                await pipe.execute()

    async def names(self, folder: str, *, after: str | None, limit: int) -> Sequence[str]:
        """Return ids of files in a folder in their order, after one of them."""
        home = self._home(folder)
        with _using(folder):
            found: list[bytes] = await home.redis.zrangebylex(
                home.keys.files(folder), f"({after}/" if after else "-", "+", start=0, num=limit
            )
        return [_entry(member)[0] for member in found]

    async def usage(self, folder: str) -> tuple[int, int]:
        """Return how many files there are in a folder, and their bytes together."""
        home = self._home(folder)
        files, size, at = 0, 0, 0
        with _using(folder):
            seconds, _ = await home.redis.time()
            while page := await home.redis.zrange(home.keys.files(folder), at, at + _PAGE - 1):
                alive = [entry for entry in map(_entry, page) if entry[2] > seconds * 1000]
                files, size, at = files + len(alive), size + sum(entry[1] for entry in alive), at + _PAGE
        return files, size

    async def sweep(self) -> None:
        """Do nothing: the server takes away what has expired."""

    async def aclose(self) -> None:
        """Let go of nothing: the yard is its owner's."""


def _entry(member: Any) -> tuple[str, int, int]:
    file, size, expires_ms = text(member).split(".")
    return file, int(size), int(expires_ms)


@contextmanager
def _using(what: Place | str) -> Generator[None]:
    name = what if isinstance(what, str) else what.file
    try:
        with reading(f"files of {name}" if isinstance(what, str) else f"file {name}"):
            yield
    except StoreUnavailable as error:
        raise FilesUnavailable(str(error)) from error
