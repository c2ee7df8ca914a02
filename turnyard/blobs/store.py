"""What every store of files has in common: who may have which file, how large, of which kind, for how long.

Below it is a shelf, which keeps bytes under names that are made here. A file is there from the moment its card is: the
content is written first and the card last, so a put that fails leaves nothing to be seen.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson

from turnyard.blobs.kinds import HEAD_BYTES, kind_of
from turnyard.errors import NotFound, QuotaExceeded, TooLarge
from turnyard.ports import Clock
from turnyard.records.blobs import BlobRef, clean_name, is_file_id, new_file_id

MAX_BYTES = 20_000_000
MAX_FILES = 10_000
TTL_S = 30 * 86_400.0
PIECE_BYTES = 262_144

_COUNTED_FOR_S = 30.0
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """Where one file is: `folder` is its tenant's. Neither part holds anything that somebody wrote."""

    folder: str
    file: str


class Shelf(Protocol):
    """Where the bytes are. What goes wrong in it is told as FilesUnavailable."""

    @property
    def most_bytes(self) -> int | None:
        """Return how large a file may be here, None for any size."""
        ...

    async def write(self, place: Place, pieces: AsyncIterator[bytes], ttl_ms: int) -> None:
        """Write the content of a file, which nobody can see yet; leave nothing when `pieces` raises."""
        ...

    async def seal(self, place: Place, card: bytes, size: int, ttl_ms: int) -> None:
        """Write the card of a file whose content is written: from now on it is there."""
        ...

    async def card(self, place: Place) -> bytes | None:
        """Return a file's card, None when it is not there."""
        ...

    async def read(self, place: Place, start: int, end: int) -> bytes | None:
        """Return the bytes from `start` up to `end`, which are within the file and not nothing; None when it is not there."""
        ...

    async def drop(self, place: Place) -> None:
        """Take a file away, its card first."""
        ...

    async def names(self, folder: str, *, after: str | None, limit: int) -> Sequence[str]:
        """Return ids of files in a folder in their order, after one of them."""
        ...

    async def usage(self, folder: str) -> tuple[int, int]:
        """Return how many files there are in a folder, and their bytes together."""
        ...

    async def sweep(self) -> None:
        """Take away what has expired, of every folder, where nothing else does it."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """How much may be kept: bytes of one file, bytes (None: any) and number of one tenant's, seconds that they stay."""

    max_bytes: int = MAX_BYTES
    per_tenant_bytes: int | None = None
    per_tenant_files: int = MAX_FILES
    ttl_s: float = TTL_S


@dataclass(slots=True)
class _Count:
    """What one tenant has, as counted at `at_s`, and what this process put since."""

    at_s: float
    files: int
    size: int


class FileStore:
    """Implements `Blobs` on a shelf.

    What a tenant has is counted every 30 s; between two counts this process knows of its own files alone, so several
    processes together may go over a tenant's limit by what they take in that time.
    """

    def __init__(self, shelf: Shelf, clock: Clock, limits: StoreLimits | None = None) -> None:
        self._shelf = shelf
        self._clock = clock
        self._limits = limits or StoreLimits()
        self._counts: dict[str, _Count] = {}

    @property
    def max_bytes(self) -> int:
        """Return how large a file may be."""
        most = self._shelf.most_bytes
        return self._limits.max_bytes if most is None else min(most, self._limits.max_bytes)

    async def put(
        self,
        tenant: str,
        data: bytes | AsyncIterable[bytes],
        *,
        name: str = "",
        media_type: str | None = None,
        ttl_s: float | None = None,
    ) -> BlobRef:
        """Keep a file; as `Blobs.put`."""
        now_ms = self._clock.now_ms()
        ttl_ms = round(min(self._limits.ttl_s, self._limits.ttl_s if ttl_s is None else max(1.0, ttl_s)) * 1000)
        place = Place(folder_of(tenant), new_file_id(now_ms))
        count = await self._count(place.folder)
        reader = _Reader(data, self.max_bytes, self._room(count))
        await self._shelf.write(place, reader.pieces(), ttl_ms)
        ref = BlobRef(
            id=place.file,
            size=reader.size,
            media_type=kind_of(bytes(reader.head), said=media_type),
            name=clean_name(name),
            sha256=reader.digest.hexdigest(),
            created_ms=now_ms,
            expires_ms=now_ms + ttl_ms,
        )
        await self._shelf.seal(place, orjson.dumps(asdict(ref)), ref.size, ttl_ms)
        count.files, count.size = count.files + 1, count.size + ref.size
        return ref

    async def read(self, tenant: str, file: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return a part of a file; as `Blobs.read`."""
        ref = await self.stat(tenant, file)
        start = min(max(offset, 0), ref.size)
        end = ref.size if length is None else min(ref.size, start + max(length, 0))
        found = await self._shelf.read(Place(folder_of(tenant), file), start, end) if start < end else b""
        if found is None or len(found) != end - start:
            raise _no_file(file)
        return found

    async def stat(self, tenant: str, file: str) -> BlobRef:
        """Return what is known of a file; as `Blobs.stat`."""
        ref = await self._ref(Place(folder_of(tenant), file)) if is_file_id(file) else None
        if ref is None:
            raise _no_file(file)
        return ref

    async def page(self, tenant: str, *, limit: int = 50, after: str | None = None) -> list[BlobRef]:
        """Return files of a tenant, newest first; as `Blobs.page`."""
        folder = folder_of(tenant)
        names = await self._shelf.names(folder, after=after if after and is_file_id(after) else None, limit=limit)
        found = [await self._ref(Place(folder, name)) for name in names]
        return [ref for ref in found if ref is not None]

    async def delete(self, tenant: str, file: str) -> None:
        """Forget a file; as `Blobs.delete`."""
        ref = await self.stat(tenant, file)
        place = Place(folder_of(tenant), file)
        await self._shelf.drop(place)
        count = self._counts.get(place.folder)
        if count is not None:
            count.files, count.size = count.files - 1, count.size - ref.size

    async def sweep(self) -> None:
        """Take away what has expired, where the store does not do that by itself.

        Raises:
            FilesUnavailable: the store did not answer; the next sweep takes it.
        """
        await self._shelf.sweep()

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._shelf.aclose()

    async def _ref(self, place: Place) -> BlobRef | None:
        """Return what the card of a file says, None when there is none or its time is over."""
        card = await self._shelf.card(place)
        if card is None:
            return None
        known: dict[str, Any] = orjson.loads(card)
        ref = BlobRef(**{name: known[name] for name in BlobRef.__slots__})
        return ref if ref.expires_ms > self._clock.now_ms() else None

    async def _count(self, folder: str) -> _Count:
        now_s = self._clock.monotonic()
        count = self._counts.get(folder)
        if count is None or now_s - count.at_s >= _COUNTED_FOR_S:
            self._counts = {name: known for name, known in self._counts.items() if now_s - known.at_s < _COUNTED_FOR_S}
            count = self._counts[folder] = _Count(now_s, *await self._shelf.usage(folder))
        return count

    def _room(self, count: _Count) -> int | None:
        """Return how many bytes a tenant may still put, None for any.

        Raises:
            QuotaExceeded: it has as many files as it may have.
        """
        if count.files >= self._limits.per_tenant_files:
            raise QuotaExceeded(f"the tenant has {count.files:,} files, as many as it may have: delete some, or wait until they expire")
        most = self._limits.per_tenant_bytes
        return None if most is None else max(0, most - count.size)


class _Reader:
    """Counts, measures and cuts into pieces what is put. `room` is what the tenant has left, None for any."""

    def __init__(self, data: bytes | AsyncIterable[bytes], most_bytes: int, room: int | None) -> None:
        self._data = data
        self._most = most_bytes
        self._room = room
        self.size = 0
        self.head = bytearray()
        self.digest = hashlib.sha256()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the content in pieces of a bounded size.

        Raises:
            TooLarge: it has more than a file may have.
            QuotaExceeded: it has more than the tenant has left.
        """
        if isinstance(self._data, bytes):
            self._check(len(self._data))
            for piece in _cut(self._data):
                yield self._seen(piece)
            return
        async for given in self._data:
            self._check(self.size + len(given))
            for piece in _cut(given):
                yield self._seen(piece)

    def _check(self, size: int) -> None:
        if size > self._most:
            raise TooLarge(f"a file may have at most {self._most:,} bytes here")
        if self._room is not None and size > self._room:
            raise QuotaExceeded(f"the tenant has room for {self._room:,} more bytes of files: delete some, or wait until they expire")

    def _seen(self, piece: bytes) -> bytes:
        self.size += len(piece)
        self.digest.update(piece)
        if len(self.head) < HEAD_BYTES:
            self.head += piece[: HEAD_BYTES - len(self.head)]
        return piece


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]


def folder_of(tenant: str) -> str:
    """Return the name of a tenant's folder: its own where that is plain, else a hash of it; no two tenants share one."""
    return tenant if _PLAIN.match(tenant) else "_" + hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _no_file(file: str) -> NotFound:
    shown = file if is_file_id(file) else "of this name"
    return NotFound(f"no file {shown}: check the id; it may have been deleted, or its time is over")
