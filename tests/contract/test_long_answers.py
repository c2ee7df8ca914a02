"""A long answer of a vendor over the real store: cut and kept whole, for its tenant, once, and for nobody without the secret."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from platforms.http.app import create_app
from platforms.http.desk import Desk
from platforms.http.options import HttpOptions
from tests.protocol.family import Family
from tests.protocol.scene import Scene, call
from turnyard.blobs import FileStore, StoreLimits
from turnyard.blobs.redis import RedisShelf
from turnyard.clock import SystemClock
from turnyard.engine.render import render
from turnyard.records.commit import Park
from turnyard.records.ids import new_call_token, read_call_token
from turnyard.records.log import RESULT
from turnyard.text import OUTPUT_BYTES
from turnyard.wire.yard_edge import YardEdge

pytestmark = [pytest.mark.asyncio, pytest.mark.spec("runner-35")]

LONG = "é" * 60_000 + "the end"


@pytest.fixture
def files(scene: Scene) -> FileStore:
    return FileStore(RedisShelf(scene.yard), SystemClock(), StoreLimits())


@pytest.fixture
async def http(scene: Scene, files: FileStore) -> AsyncIterator[httpx.AsyncClient]:
    edge = await YardEdge.start(scene.yard)
    transport = httpx.ASGITransport(create_app(Desk(edge, SystemClock(), HttpOptions(), blobs=files)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client
    await edge.aclose()


async def parked(scene: Scene, *, ms: int = 60_000) -> str:
    """A turn that waits for a vendor; return its token."""
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    token, hashed = new_call_token(scene.shard().n, view.store, made.id)
    await scene.commit(view, park=(Park(made.id, ms, hashed),), ending="park")
    return token


async def test_it_is_cut_kept_whole_and_shown_with_how_to_read_on_and_said_again_it_is_the_same(
    scene: Scene, http: httpx.AsyncClient, files: FileStore
) -> None:
    token = await parked(scene)
    said = [await http.post(f"/v1/calls/{token}", content=LONG.encode()) for _ in range(3)]
    assert [(r.status_code, r.json()["repeated"]) for r in said] == [(200, False), (200, True), (200, True)]
    assert (await http.post(f"/v1/calls/{token}", content=b"x" + LONG.encode())).status_code == 409
    await scene.dispatch()
    view = await scene.start(await scene.worker())
    (result,) = (e for e in view.entries if e.type == RESULT)
    assert len(result.body["content"].encode()) <= OUTPUT_BYTES
    assert "\ufffd" not in result.body["content"]
    assert (await files.read("default", result.body["ref"])).decode() == LONG
    shown = str(next(m for m in render(view.entries) if m["role"] == "tool")["content"])
    assert f"[event_id={result.seq}: the whole has {len(LONG.encode())} bytes;" in shown
    assert [ref.id for ref in await files.page("default")] == [result.body["ref"]]
    assert await scene.leaks() == []


async def test_one_that_comes_too_late_is_cut_too(scene: Scene, http: httpx.AsyncClient, files: FileStore) -> None:
    token = await parked(scene, ms=1_000)
    await scene.pass_ms(2_000)
    await scene.tick()
    said = [await http.post(f"/v1/outcomes/{token}", json={"result": LONG}) for _ in range(2)]
    assert [(r.status_code, r.json()["repeated"]) for r in said] == [(200, False), (200, True)]
    (kept,) = await files.page("default")
    assert (await files.read("default", kept.id)).decode() == LONG


@pytest.mark.spec("S15")
async def test_for_a_guessed_token_nothing_is_kept(scene: Scene, http: httpx.AsyncClient, files: FileStore) -> None:
    token = await parked(scene)
    guessed, _ = new_call_token(*_place(token))
    for wrong in (guessed, new_call_token(99, "a" * 26 + ".0", "call_x")[0]):
        assert (await http.post(f"/v1/calls/{wrong}", content=LONG.encode())).status_code == 404
    assert await files.page("default") == []


async def test_a_long_answer_of_another_agent_is_cut_and_kept_whole(scene: Scene, files: FileStore) -> None:
    family = await Family.of(scene, blobs=files)
    await family.parent()
    await family.carry()
    await family.finish(0, LONG)
    await family.carry()
    view = await family.woken()
    (result,) = (e for e in view.entries if e.type == RESULT)
    assert len(result.body["content"].encode()) <= OUTPUT_BYTES
    assert result.body["session"] == family.child()
    assert (await files.read("default", result.body["ref"])).decode() == LONG


def _place(token: str) -> tuple[int, str, str]:
    where = read_call_token(token)
    assert where is not None
    return where[:3]


async def test_a_store_that_fails_costs_the_middle_and_not_the_answer(scene: Scene, http: httpx.AsyncClient, files: FileStore) -> None:
    token = await parked(scene)
    files._limits = StoreLimits(per_tenant_files=0)
    said = [await http.post(f"/v1/calls/{token}", content=LONG.encode()) for _ in range(2)]
    assert [(r.status_code, r.json()["repeated"]) for r in said] == [(200, False), (200, True)]
    await scene.dispatch()
    view = await scene.start(await scene.worker())
    (result,) = (e for e in view.entries if e.type == RESULT)
    assert "are lost" in result.body["content"]
    assert "ref" not in result.body
