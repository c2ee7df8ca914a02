"""Every store of files holds to the port, and each to what is its own."""

from __future__ import annotations

import errno
import itertools
import os
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.processes import free_port, s3_server
from turnyard.blobs import FileStore, StoreLimits, open_memory
from turnyard.blobs.directory import DirectoryShelf
from turnyard.blobs.redis import RedisShelf
from turnyard.blobs.s3 import Bucket, S3Shelf
from turnyard.blobs.store import PIECE_BYTES, folder_of
from turnyard.errors import ConfigError, FilesUnavailable, NotFound, TooLarge
from turnyard.state.yard import Yard
from turnyard.testing.blobs import LONG, BlobsConformance, in_pieces
from turnyard.testing.clock import ManualClock

pytestmark = pytest.mark.spec("S15")


class TestInMemory(BlobsConformance):
    @pytest.fixture(autouse=True)
    def _place(self) -> None:
        self.clock = ManualClock()
        self.shelf = open_memory(self.clock)._shelf

    async def open(self, limits: StoreLimits) -> FileStore:
        return FileStore(self.shelf, self.clock, limits)


class TestInRedis(BlobsConformance):
    @pytest_asyncio.fixture(autouse=True)
    async def _place(self, clean: str) -> AsyncIterator[None]:
        self.clock = ManualClock()
        self.yard = await Yard.open(clean, shards=3)
        yield
        await self.yard.aclose()

    async def open(self, limits: StoreLimits) -> FileStore:
        return FileStore(RedisShelf(self.yard), self.clock, limits)

    async def keys(self) -> list[str]:
        found: list[str] = []
        for shard in self.yard.shards:
            found += [key.decode() async for key in shard.redis.scan_iter(match="*:file*")]
        return sorted(set(found))

    async def test_it_takes_eight_megabytes_and_no_more_and_no_command_moves_more_than_a_piece(self) -> None:
        store = await self.open(StoreLimits())
        assert store.max_bytes == 8_000_000
        with pytest.raises(TooLarge):
            await store.put("acme", b"x" * 8_000_001)
        ref = await store.put("acme", b"x" * 8_000_000)
        home = RedisShelf(self.yard)._home("acme")
        sent = home.redis.getrange
        lengths: list[int] = []

        async def getrange(key: str, start: int, end: int) -> bytes:
            lengths.append(end - start + 1)
            return await sent(key, start, end)

        home.redis.getrange = getrange
        assert len(await store.read("acme", ref.id)) == 8_000_000
        assert max(lengths) <= PIECE_BYTES
        lengths.clear()
        assert await store.read("acme", ref.id, offset=4_000_000, length=10) == b"x" * 10
        assert lengths == [10]

    async def test_all_of_it_has_a_life_and_a_put_that_fails_leaves_no_key(self) -> None:
        store = await self.open(StoreLimits(ttl_s=1_000))
        with pytest.raises(ZeroDivisionError):
            await store.put("acme", in_pieces(LONG, 100_003, then=ZeroDivisionError()))
        assert await self.keys() == []
        ref = await store.put("acme", b"x", ttl_s=100)
        shard = RedisShelf(self.yard)._home("acme")
        for key in await self.keys():
            assert 90_000 < await shard.redis.pttl(key) <= 100_000
        await store.put("acme", b"y")
        assert 900_000 < await shard.redis.pttl(shard.keys.files("acme")) <= 1_000_000
        await store.delete("acme", ref.id)
        assert not [key for key in await self.keys() if ref.id in key]

    async def test_what_has_expired_leaves_the_index_when_something_is_put(self) -> None:
        store = await self.open(StoreLimits())
        shard = RedisShelf(self.yard)._home("acme")
        index = shard.keys.files("acme")
        ref = await store.put("acme", b"x")
        (member,) = await shard.redis.zrange(index, 0, -1)
        await shard.redis.zadd(index, {f"{ref.id[:-1]}z.5.1000": 0})
        assert member.decode().startswith(f"{ref.id}.1.")
        fresh = await self.open(StoreLimits(per_tenant_bytes=2))
        await fresh.put("acme", b"y")  # what has expired is not counted
        assert len(await shard.redis.zrange(index, 0, -1)) == 2


class TestInADirectory(BlobsConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.clock = ManualClock()
        self.root = tmp_path / "files"

    async def open(self, limits: StoreLimits) -> FileStore:
        return FileStore(DirectoryShelf(self.root, self.clock), self.clock, limits)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.root.rglob("*") if not path.is_dir())

    async def test_a_put_that_fails_leaves_no_file_and_one_that_does_not_is_readable_by_its_owner_alone(self) -> None:
        store = await self.open(StoreLimits())
        with pytest.raises(ZeroDivisionError):
            await store.put("acme", in_pieces(LONG, 100_003, then=ZeroDivisionError()))
        assert self.left() == []
        ref = await store.put("acme", b"x")
        assert self.left() == [ref.id, ref.id]
        assert {path.stat().st_mode & 0o777 for path in self.root.rglob("file_*")} == {0o600}

    async def test_a_link_in_place_of_a_file_or_a_folder_is_not_followed(self, tmp_path: Path) -> None:
        store = await self.open(StoreLimits())
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "x").write_text("secret")
        for part in ("data", "cards"):
            ref = await store.put("acme", b"x")
            place = self.root / part / "acme" / ref.id
            (secret / ref.id).write_bytes((self.root / "cards" / "acme" / ref.id).read_bytes())
            place.unlink()
            place.symlink_to(secret / ("x" if part == "data" else ref.id))
            with pytest.raises(NotFound):
                await store.read("acme", ref.id)
        (self.root / "data" / "umbrella").symlink_to(secret)
        with pytest.raises(FilesUnavailable, match="remove it"):
            await store.put("umbrella", b"y")
        assert {path.name for path in secret.iterdir()} == {"x", ref.id} | {p.name for p in secret.iterdir() if p.name.startswith("file_")}

    async def test_a_fifo_in_place_of_a_file_blocks_nobody(self) -> None:
        store = await self.open(StoreLimits())
        ref = await store.put("acme", b"x")
        place = self.root / "data" / "acme" / ref.id
        place.unlink()
        os.mkfifo(place)
        with pytest.raises(NotFound):
            await store.read("acme", ref.id)

    async def test_what_has_expired_and_what_a_dead_writer_left_is_swept(self) -> None:
        self.clock = ManualClock(now_ms=2_000_000_000_000)
        store = await self.open(StoreLimits())
        gone, kept = await store.put("acme", b"x", ttl_s=10), await store.put("umbrella", b"y")
        (self.root / "data" / "acme" / ".file_dead").write_text("half")
        await self.clock.advance(11)
        await store.sweep()
        assert self.left() == [kept.id, kept.id]
        with pytest.raises(NotFound):
            await store.stat("acme", gone.id)

    async def test_a_full_disk_is_told_as_such_and_leaves_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = await self.open(StoreLimits())

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(FilesUnavailable, match="No space left"):
            await store.put("acme", b"y")
        assert self.left() == []

    def test_a_place_that_cannot_be_used_is_refused_at_the_start(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError, match=r"files\.url"):
            DirectoryShelf(tmp_path / "file" / "below", self.clock)


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """The URL of an S3 server in a process of its own."""
    with s3_server(free_port()) as url:
        yield url


_BUCKETS = itertools.count()


@pytest.mark.xdist_group("s3")
class TestInABucket(BlobsConformance):
    @pytest.fixture(autouse=True)
    def _place(self, s3_url: str) -> None:
        self.clock = ManualClock()
        self.endpoint, self.bucket = s3_url, f"files-{next(_BUCKETS)}"
        urllib.request.urlopen(urllib.request.Request(f"{s3_url}/{self.bucket}", method="PUT"), timeout=30).close()

    def named(self, bucket: str) -> Bucket:
        url = f"s3://{bucket}/some/prefix?endpoint={self.endpoint}&region=eu-central-1"
        return Bucket.parse(url, access_key_id="key", secret_access_key="secret")

    async def open(self, limits: StoreLimits) -> FileStore:
        return FileStore(S3Shelf(self.named(self.bucket)), self.clock, limits)

    async def test_a_large_file_is_put_in_parts_and_one_that_fails_in_the_middle_leaves_none(self) -> None:
        store = await self.open(StoreLimits())
        large = os.urandom(12_000_000)
        ref = await store.put("acme", in_pieces(large, 300_000))
        assert await store.read("acme", ref.id, offset=5_242_870, length=20) == large[5_242_870:5_242_890]
        with pytest.raises(TooLarge):
            await store.put("acme", in_pieces(large * 2, 300_000))
        assert [f.id for f in await store.page("acme")] == [ref.id]

    async def test_a_bucket_that_is_not_there_or_does_not_answer_is_told_as_such(self) -> None:
        with pytest.raises(FilesUnavailable, match="nobody-made-it"):
            await FileStore(S3Shelf(self.named("nobody-made-it")), self.clock).put("acme", b"x")

    @pytest.mark.parametrize("url", ["s3://", "s3://key:secret@bucket", "s3://bucket?acl=public"])
    def test_a_url_that_names_no_bucket_or_holds_a_secret_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigError, match=r"files\.url"):
            Bucket.parse(url)


def test_no_two_tenants_share_a_folder_and_none_has_a_name_that_means_something() -> None:
    tenants = ["acme", "ACME", "_acme", "../acme", "", ".", "a" * 64, "a" * 65, "é", "a\0", folder_of("ACME")]
    folders = [folder_of(tenant) for tenant in tenants]
    assert len(set(folders)) == len(tenants)
    assert all(folder and set(folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for folder in folders)
