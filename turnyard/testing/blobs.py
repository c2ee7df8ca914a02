"""What every store of files must do, as tests that a store's own test class inherits.

A subclass says how to open the store with given limits, and its `clock` is the store's; the tests then hold it to the port, each
name being one rule of it. The tests are coroutines: run them with pytest-asyncio in its auto mode.
"""

# ruff: noqa: D102 - the name of a test is its rule

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

import pytest

from turnyard.blobs.store import PIECE_BYTES, FileStore, StoreLimits
from turnyard.errors import NotFound, QuotaExceeded, TooLarge
from turnyard.records.blobs import NAME_BYTES, BlobRef, is_file_id
from turnyard.testing.clock import ManualClock

HOSTILE = ("../../x", "..\\x", "/etc/passwd", "C:\\x", "a\0b", "", ".", "..", "é" * 150, "a/b", "%2e%2e%2f", "\u202egpj.exe", "x\r\ny: z")
LONG = bytes(range(256)) * (PIECE_BYTES // 256 * 2) + b"the end"


async def in_pieces(data: bytes, piece_bytes: int, *, then: Exception | None = None) -> AsyncIterator[bytes]:
    """Yield data in pieces, and raise when it has been given."""
    for at in range(0, len(data), piece_bytes):
        yield data[at : at + piece_bytes]
    if then is not None:
        raise then


class BlobsConformance(ABC):
    """Tests of the port `Blobs`."""

    clock: ManualClock

    @abstractmethod
    async def open(self, limits: StoreLimits) -> FileStore:
        """Return the store with these limits; the test's tenants have nothing in it."""

    async def test_what_was_put_is_read_back_whole_and_in_parts(self) -> None:
        store = await self.open(StoreLimits())
        ref = await store.put("acme", LONG, name="long.bin")
        assert (ref.size, ref.sha256, ref.name) == (len(LONG), hashlib.sha256(LONG).hexdigest(), "long.bin")
        assert await store.read("acme", ref.id) == LONG
        assert await store.stat("acme", ref.id) == ref
        for offset, length in ((0, 1), (PIECE_BYTES - 3, 7), (1, PIECE_BYTES), (len(LONG) - 4, 100), (len(LONG), 5), (3, 0), (-5, 5)):
            assert await store.read("acme", ref.id, offset=offset, length=length) == LONG[max(0, offset) : max(0, offset) + length]
        assert await store.read("acme", ref.id, offset=len(LONG) - 7) == b"the end"
        await store.aclose()

    async def test_what_comes_in_pieces_is_one_file_and_nothing_is_a_file_too(self) -> None:
        store = await self.open(StoreLimits())
        pieces = await store.put("acme", in_pieces(LONG, 100_003))
        assert await store.read("acme", pieces.id) == LONG
        nothing = await store.put("acme", b"")
        assert (nothing.size, await store.read("acme", nothing.id)) == (0, b"")
        await store.aclose()

    async def test_a_put_that_fails_leaves_nothing(self) -> None:
        store = await self.open(StoreLimits())
        with pytest.raises(ZeroDivisionError):
            await store.put("acme", in_pieces(LONG, 100_003, then=ZeroDivisionError()))
        assert await store.page("acme") == []
        ref = await store.put("acme", b"after it")
        assert await store.read("acme", ref.id) == b"after it"
        await store.aclose()

    async def test_a_file_does_not_exist_for_another_tenant(self) -> None:
        store = await self.open(StoreLimits())
        ref = await store.put("acme", b"mine", name="same.txt")
        other = await store.put("umbrella", b"theirs", name="same.txt")
        for use in (store.read, store.stat, store.delete):
            with pytest.raises(NotFound):
                await use("umbrella", ref.id)
        assert [f.id for f in await store.page("umbrella")] == [other.id]
        assert (await store.read("acme", ref.id), await store.read("umbrella", other.id)) == (b"mine", b"theirs")
        await store.aclose()

    async def test_no_name_of_a_tenant_a_file_or_an_id_leads_anywhere_else(self) -> None:
        store = await self.open(StoreLimits())
        refs = {tenant: await store.put(tenant, tenant.encode(), name=tenant) for tenant in HOSTILE}
        for tenant, ref in refs.items():
            assert is_file_id(ref.id)
            assert not set(ref.name) & set("/\\\0\r\n\u202e")
            assert 0 < len(ref.name.encode()) <= NAME_BYTES
            assert await store.read(tenant, ref.id) == tenant.encode()
            assert [f.id for f in await store.page(tenant)] == [ref.id]
            for ident in (*HOSTILE, f"../acme/{ref.id}", f"{ref.id}/../{ref.id}", f"{ref.id}\0", f"{ref.id}\n", ref.id.upper()):
                with pytest.raises(NotFound):
                    await store.read(tenant, ident)
        await store.aclose()

    async def test_a_file_over_the_limit_is_refused_whole_or_in_pieces_and_leaves_nothing(self) -> None:
        store = await self.open(StoreLimits(max_bytes=300_000))
        for data in (b"x" * 300_001, in_pieces(b"x" * 300_001, 1_000)):
            with pytest.raises(TooLarge):
                await store.put("acme", data)
        assert await store.page("acme") == []
        assert (await store.put("acme", b"x" * 300_000)).size == 300_000
        await store.aclose()

    async def test_a_tenant_has_no_more_bytes_and_no_more_files_than_it_may_and_deleting_makes_room(self) -> None:
        store = await self.open(StoreLimits(per_tenant_bytes=100, per_tenant_files=2))
        first = await store.put("acme", b"x" * 60)
        with pytest.raises(QuotaExceeded):
            await store.put("acme", b"x" * 41)
        await store.put("acme", b"x" * 40)
        with pytest.raises(QuotaExceeded):
            await store.put("acme", b"")
        await store.put("umbrella", b"x" * 100)
        await store.delete("acme", first.id)
        await store.put("acme", b"x" * 60)
        again = await self.open(StoreLimits(per_tenant_bytes=100))
        with pytest.raises(QuotaExceeded):
            await again.put("acme", b"x")
        await store.aclose()

    async def test_the_type_is_what_the_content_shows(self) -> None:
        store = await self.open(StoreLimits())
        png = await store.put("acme", b"\x89PNG\r\n\x1a\n....", name="page.html", media_type="text/html")
        page = await store.put("acme", b"\n<HTML><script>", name="a.txt", media_type="text/plain")
        assert (png.media_type, page.media_type) == ("image/png", "text/html")
        assert (await store.put("acme", b"a,b\n1,2", media_type="text/csv")).media_type == "text/csv"
        await store.aclose()

    async def test_a_file_goes_when_its_time_is_over(self) -> None:
        store = await self.open(StoreLimits(ttl_s=60))
        short, long = await store.put("acme", b"short", ttl_s=10), await store.put("acme", b"long", ttl_s=9_999)
        assert long.expires_ms == long.created_ms + 60_000
        await self.clock.advance(11)
        with pytest.raises(NotFound):
            await store.read("acme", short.id)
        assert [f.id for f in await store.page("acme")] == [long.id]
        await self.clock.advance(50)
        with pytest.raises(NotFound):
            await store.stat("acme", long.id)
        await store.aclose()

    async def test_files_are_listed_newest_first_page_by_page(self) -> None:
        store = await self.open(StoreLimits())
        refs: list[BlobRef] = []
        for n in range(5):
            refs.append(await store.put("acme", b"%d" % n))
            await self.clock.advance(0.01)
        await store.delete("acme", refs[2].id)
        wanted = [refs[n].id for n in (4, 3, 1, 0)]
        found: list[str] = []
        after: str | None = None
        while page := await store.page("acme", limit=2, after=after):
            assert len(page) <= 2
            found += [ref.id for ref in page]
            after = found[-1]
        assert found == wanted
        with pytest.raises(NotFound):
            await store.delete("acme", refs[2].id)
        await store.aclose()
