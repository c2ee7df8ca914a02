"""What a call token opens, seen from outside: one call, one outcome, until its time is over, and nothing without its secret."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest

from tests.contract.door import door_of, everything
from tests.protocol.scene import DAY_MS, Scene, call
from turnyard.records.commit import Answer, Park, TurnView
from turnyard.records.ids import new_call_token, read_call_token
from turnyard.state.audit import audit

pytestmark = [pytest.mark.asyncio, pytest.mark.spec("S6")]


@pytest.fixture
async def http(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    async with door_of(scene) as client:
        yield client


async def parked(scene: Scene, *, session: str = "s", ms: int = 60_000, calls: int = 1) -> tuple[TurnView, list[str]]:
    """A turn that waits for its vendors, each of which has a token."""
    view = await scene.open_turn(await scene.worker(), session=session)
    made = [call(view, i, "callback", awaited=True) for i in range(calls)]
    view = await scene.ask(view, *made)
    tokens = [new_call_token(scene.shard(session).n, view.store, each.id) for each in made]
    parks = tuple(Park(each.id, ms, hashed) for each, (_, hashed) in zip(made, tokens, strict=True))
    return await scene.commit(view, park=parks, ending="park"), [token for token, _ in tokens]


def seen(response: httpx.Response) -> tuple[int, dict[str, Any]]:
    return response.status_code, {k: v for k, v in response.json().items() if k != "ref"}


def forged(token: str, like: str) -> str:
    """The secret of one call, the place of another."""
    secret, place = (base64.urlsafe_b64decode(t + "=" * (-len(t) % 4)) for t in (token, like))
    return base64.urlsafe_b64encode(secret[:32] + place[32:]).decode().rstrip("=")


async def outcomes(scene: Scene, *tokens: str) -> list[str | None]:
    """How the calls of these tokens ended."""
    rows = await scene.rows()
    return [rows[where[2]].get("o") for token in tokens if (where := read_call_token(token)) is not None]


async def test_only_the_hash_of_a_secret_of_256_bits_is_stored(scene: Scene, http: httpx.AsyncClient) -> None:
    _, (token,) = await parked(scene)
    secret = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))[:32]
    where = read_call_token(token)
    assert where is not None
    assert len(secret) * 8 == 256
    asked = [await http.get(f"/v1/sessions/s{part}") for part in ("", "/entries", "/explain")]
    assert (await http.post(f"/v1/calls/{token}", content=b"paid")).status_code == 200
    told = b"".join([r.content for r in asked] + [repr(await audit(scene.yard, limit=10, logs=100)).encode()])
    stored = await everything(scene)
    assert where[3].encode() in stored
    for spelling in (secret, token.encode(), base64.b64encode(secret), secret.hex().encode(), token[:40].encode()):
        assert spelling not in stored
        assert spelling not in told


async def test_whatever_is_wrong_with_a_token_the_answer_is_the_same_and_says_nothing(scene: Scene, http: httpx.AsyncClient) -> None:
    _, (open_call, used, expired) = await parked(scene, calls=3)
    _, (short,) = await parked(scene, session="t", ms=1_000)
    assert (await http.post(f"/v1/calls/{used}", content=b"x")).status_code == 200
    await scene.pass_ms(2_000)
    await scene.tick()
    foreign = new_call_token(0, "nowhere.0", "call_x")[0]
    wrong = [forged(foreign, token) for token in (open_call, used, expired, short)]
    wrong += [forged(open_call, used), forged(used, open_call), foreign, open_call[:-1], open_call + "A", "garbage", "%00"]
    answers = [seen(await http.post(f"/v1/{route}/{token}", json={"result": 1})) for token in wrong for route in ("calls", "outcomes")]
    paths = {answer.pop("instance") for _, answer in answers}
    assert paths == {"/v1/calls", "/v1/outcomes"}
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 404
    assert not re.search(r"expire|decided|used|wrong|secret", orjson.dumps(answers[0][1]).decode())
    assert await outcomes(scene, open_call, used, expired) == [None, "result", None]


async def test_the_token_of_one_call_opens_no_other(scene: Scene, http: httpx.AsyncClient) -> None:
    _, (first, second) = await parked(scene, calls=2)
    assert (await http.post(f"/v1/calls/{forged(first, second)}", content=b"x")).status_code == 404
    assert await outcomes(scene, first, second) == [None, None]
    assert (await http.post(f"/v1/calls/{second}", content=b"x")).status_code == 200
    assert await outcomes(scene, first, second) == [None, "result"]


async def test_a_replay_changes_nothing_and_another_outcome_is_refused(scene: Scene, http: httpx.AsyncClient) -> None:
    _, (token,) = await parked(scene)
    first, again = [await http.post(f"/v1/calls/{token}", content=b"paid") for _ in range(2)]
    assert [(r.status_code, r.json()["repeated"]) for r in (first, again)] == [(200, False), (200, True)]
    other = [await http.post(f"/v1/outcomes/{token}", json=body) for body in ({"result": "lost"}, {"error": "lost"})]
    assert [seen(r)[0] for r in other] == [409, 409]
    assert [record.type for record in await scene.log()].count("call/resolved") == 1


async def test_a_token_is_good_before_its_call_is_parked(scene: Scene, http: httpx.AsyncClient) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=True)
    view = await scene.ask(view, made)
    token, hashed = new_call_token(scene.shard("s").n, view.store, made.id)
    view = await scene.commit(view, start=(made.id,), tokens=((made.id, hashed),))
    assert (await http.post(f"/v1/calls/{token}", content=b"paid")).status_code == 200
    view = await scene.commit(view, park=(Park(made.id, 60_000, hashed),))
    assert await outcomes(scene, token) == ["result"]
    await scene.commit(view, append=(Answer(made.id, "result"),), claim=True)
    await scene.cancel()


async def test_after_the_deadline_an_outcome_settles_nothing_and_after_a_week_the_token_is_unknown(
    scene: Scene, http: httpx.AsyncClient
) -> None:
    _, (token,) = await parked(scene)
    await scene.pass_ms(60_001)
    await scene.tick()
    assert await outcomes(scene, token) == ["timeout"]
    assert (await http.post(f"/v1/calls/{token}", content=b"late")).status_code == 200
    assert (await http.post(f"/v1/calls/{token}", content=b"later")).status_code == 409
    assert await outcomes(scene, token) == ["timeout"]  # what came late is told as that
    await scene.reply(await scene.start(await scene.worker()))
    await scene.pass_ms(8 * DAY_MS)
    await scene.tick()
    assert seen(await http.post(f"/v1/calls/{token}", content=b"late")) == seen(await http.post("/v1/calls/garbage", content=b"late"))
