"""Calls that wait outside and need their app's code again, in the words of the tests of single scripts."""

from __future__ import annotations

from typing import Any

from platforms.lifts import Lifts
from tests.protocol.scene import OK, SECRET, Scene, call
from turnyard.records.commit import Answer, NewCall, Park, TurnView
from turnyard.records.ids import hash_secret
from turnyard.records.messages import Accepted
from turnyard.state import calls
from turnyard.state.lanes import sent, take_lane

HOUR_MS = 3_600_000


async def poll(scene: Scene, *, awaited: bool = False, after_ms: int = 5_000, **more: Any) -> tuple[TurnView, NewCall]:
    """A turn whose call is looked at again every few seconds, for an hour at most."""
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "lift", awaited=awaited, queue="slow", timeout_ms=60_000)
    view = await scene.ask(view, made)
    parked = Park(made.id, HOUR_MS, after_ms=after_ms, request={"task": "t-1"}, **more)
    if awaited:
        await scene.commit(view, park=(parked,), ending="park")
        return view, made
    return await scene.commit(view, append=(Answer(made.id, "placeholder", OK),), park=(parked,)), made


async def callback(scene: Scene, *, awaited: bool = False, queue: str | None = "slow", **more: Any) -> tuple[TurnView, NewCall]:
    """A turn whose call waits for what comes to its URL, which its tool reads."""
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback", awaited=awaited, queue=queue)
    view = await scene.ask(view, made)
    parked = Park(made.id, HOUR_MS, hash_secret(SECRET), **more)
    if awaited:
        await scene.commit(view, park=(parked,), ending="park")
        return view, made
    return await scene.commit(view, append=(Answer(made.id, "placeholder", OK),), park=(parked,)), made


async def raw(scene: Scene, view: TurnView | str, made: NewCall, text: str = "a", **more: Any) -> Accepted:
    return await scene.outcome(view, made.id, "raw", body={"content": text}, **more)


async def later(scene: Scene, view: TurnView, made: NewCall, owner: str, after_ms: int | None, *, task: str = "task-1", **more: Any) -> str:
    shard = scene.yard.shards[0]
    said = await calls.put_off(scene.yard, shard, view.store, made.id, owner=owner, task=task, after_ms=after_ms, **more)
    return said.code


async def relayed(scene: Scene) -> list[int]:
    """Carry what the lane owes; return the numbers of the relays that a carrier would make of it."""
    found: list[int] = []
    for item in await take_lane(scene.yard.shards[0], "arq"):
        found += [int(r.extra["re"]) for r in Lifts(None).wanted(item)]  # type: ignore[arg-type]
        await sent(scene.yard.shards[0], "arq", item)
    return found


async def beside(scene: Scene, ordinal: int = 0) -> list[str]:
    """Return the kinds of fields that stand beside the rows."""
    shard = scene.shard()
    raw = await shard.redis.hkeys(shard.keys.calls(f"{scene.sid()}.{ordinal}"))
    return sorted({k.decode().rpartition(":")[2] for k in raw if b":" in k})


async def pass_to(scene: Scene, ms: int) -> None:
    await scene.pass_ms(ms)
    await scene.tick(parts="d")
