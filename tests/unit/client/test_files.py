"""Files through the client and at the command line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from platforms.http.desk import Desk
from platforms.http.options import HttpOptions
from tests.unit.http.fake_edge import FakeEdge
from tests.unit.http.server import served
from turnyard.blobs import StoreLimits, open_memory
from turnyard.cli.entry import run
from turnyard.client import Client, SyncClient
from turnyard.clock import SystemClock
from turnyard.errors import NotFound, QuotaExceeded, TooLarge


@pytest.fixture
def desk() -> Desk:
    limits = StoreLimits(max_bytes=3_000, per_tenant_files=4)
    return Desk(FakeEdge(), SystemClock(), HttpOptions(), blobs=open_memory(SystemClock(), limits))


async def test_a_client_puts_gets_lists_and_deletes_files(desk: Desk) -> None:
    async with served(desk) as url, Client(url) as client:
        data = bytes(range(256)) * 10
        file = await client.files.put(data, name="ü.bin")
        assert (file["name"], file["size"]) == ("ü.bin", 2_560)
        assert await client.files.get(file["id"]) == data
        assert await client.files.get(file["id"], offset=100, length=7) == data[100:107]
        assert await client.files.get(file["id"], offset=2_550) == data[2_550:]
        assert await client.files.get(file["id"], length=0) == b""
        assert await client.files.stat(file["id"]) == file
        others = [await client.files.put(b"%d" % n) for n in range(3)]
        assert {f["id"] for f in await client.files.list()} == {file["id"], *(f["id"] for f in others)}
        assert len(await client.files.list(limit=2)) == 2
        with pytest.raises(QuotaExceeded):
            await client.files.put(b"one more")
        await client.files.delete(file["id"])
        for use in (client.files.get, client.files.stat, client.files.delete):
            with pytest.raises(NotFound):
                await use(file["id"])
        with pytest.raises(TooLarge):
            await client.files.put(b"x" * 3_001)


async def test_code_without_a_loop_has_the_same(desk: Desk) -> None:
    def work(url: str) -> None:
        with SyncClient(url) as client:
            file = client.files.put(b"hello", name="a.txt")
            assert client.files.get(file["id"], offset=1, length=2) == b"el"
            assert client.files.list() == [client.files.stat(file["id"])]
            client.files.delete(file["id"])
            assert client.files.list() == []

    async with served(desk) as url:
        await asyncio.to_thread(work, url)


async def test_files_at_the_command_line(desk: Desk, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("hello")

    async def command(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run, ["files", *words, "--url", url])
        return code, capfd.readouterr().out

    async with served(desk) as url:
        code, put = await command("put", str(tmp_path / "a.txt"))
        file = put.strip()
        assert code == 0
        assert (await command("get", file)) == (0, "hello")
        assert (await command("get", file, "-o", str(tmp_path / "b.txt")))[0] == 0
        assert (tmp_path / "b.txt").read_text() == "hello"
        assert file in (await command("list"))[1]
        assert (await command("rm", file))[0] == 0
        assert (await command("get", file))[0] == 6
