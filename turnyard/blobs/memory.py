"""Files in the memory of this process, for sessions that live there and for tests: gone with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from turnyard.blobs.store import Place


class MemoryShelf:
    """Implements `Shelf`."""

    def __init__(self) -> None:
        self._content: dict[Place, bytes] = {}
        self._cards: dict[Place, bytes] = {}

    @property
    def most_bytes(self) -> int | None:
        """Return how large a file may be here: any size."""
        return None

    async def write(self, place: Place, pieces: AsyncIterator[bytes], ttl_ms: int) -> None:
        """Write the content of a file."""
        del ttl_ms
        content = bytearray()
        async for piece in pieces:
            content += piece
        self._content[place] = bytes(content)

    async def seal(self, place: Place, card: bytes, size: int, ttl_ms: int) -> None:
        """Write the card of a file."""
        del size, ttl_ms
        self._cards[place] = card

    async def card(self, place: Place) -> bytes | None:
        """Return a file's card, None when it is not there."""
        return self._cards.get(place)

    async def read(self, place: Place, start: int, end: int) -> bytes | None:
        """Return a part of a file, None when it is not there."""
        content = self._content.get(place)
        return None if content is None else content[start:end]

    async def drop(self, place: Place) -> None:
        """Take a file away."""
        self._cards.pop(place, None)
        self._content.pop(place, None)

    async def names(self, folder: str, *, after: str | None, limit: int) -> Sequence[str]:
        """Return ids of files in a folder in their order, after one of them."""
        return sorted(place.file for place in self._cards if place.folder == folder and place.file > (after or ""))[:limit]

    async def usage(self, folder: str) -> tuple[int, int]:
        """Return how many files there are in a folder, and their bytes together."""
        sizes = [len(self._content[place]) for place in self._cards if place.folder == folder]
        return len(sizes), sum(sizes)

    async def sweep(self) -> None:
        """Do nothing: all of it goes with this process."""

    async def aclose(self) -> None:
        """Let go of nothing."""
