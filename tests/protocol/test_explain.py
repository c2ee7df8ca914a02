"""Every way of standing still has its code: the state is built on a real server, and the answer names who, since when, and what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from tests.protocol.scene import Scene, call
from turnyard.records.approvals import approval_id
from turnyard.records.commit import Park, TurnView, Wait
from turnyard.records.ids import session_key
from turnyard.state.explain import Explanation, explain
from turnyard.state.flows import set_limits
from turnyard.state.reasons import FIXES
from turnyard.state.schema import Schemas
from turnyard.state.sessions import read_session
from turnyard.state.upkeep import tick

SID = session_key("default", "s")
P = "ty:{0}:"
AGE_MS = 1500


@dataclass
class Stage:
    """A scene, and what must be taken back before its last checks."""

    scene: Scene
    after: AsyncExitStack = field(default_factory=AsyncExitStack)
    full: bool = False

    async def parked(self, kind: Any = "callback", *, awaited: bool = True, deadline_ms: int = 60_000, **more: Any) -> TurnView:
        scene = self.scene
        view = await scene.open_turn(await scene.worker())
        made = call(view, 0, kind, awaited=awaited, **more)
        view = await scene.ask(view, made)
        if awaited:
            return await scene.commit(view, park=(Park(made.id, deadline_ms),), ending="park")
        return await scene.reply(await scene.launch(view, made.id))

    async def put_back(self, name: str, *words: Any) -> None:
        """Remember to run a command once the code was asked for."""
        self.after.push_async_callback(self.scene.yard.redis.execute_command, name, *words)


Build = Callable[[Stage], Awaitable[str | None]]
STATES: dict[str, tuple[Build, str]] = {}


def state(code: str, holder: str) -> Callable[[Build], Build]:
    """Register how a code's state is built and what kind of holder it must name. The state may answer a session other than `s`."""

    def register(build: Build) -> Build:
        STATES[code] = (build, holder)
        return build

    return register


async def ticked(scene: Scene) -> None:
    await scene.yard.redis.hset(P + "limits", "tick", scene.now_ms + AGE_MS)


@state("idle", "user")
async def _(stage: Stage) -> None:
    await stage.scene.reply(await stage.scene.open_turn(await stage.scene.worker()))


@state("paused", "operator")
async def _(stage: Stage) -> None:
    await stage.scene.say()
    await stage.scene.control("pause")
    await stage.scene.dispatch()


@state("running", "worker")
async def _(stage: Stage) -> None:
    await stage.scene.open_turn(await stage.scene.worker())


@state("over_quantum", "worker")
async def _(stage: Stage) -> None:
    await set_limits(stage.scene.yard.shards[0], max_concurrent_turns=1, quantum_ms=1000)
    await stage.scene.open_turn(await stage.scene.worker())
    await stage.scene.say(session="other")
    await stage.scene.dispatch()


@state("cancelling", "worker")
async def _(stage: Stage) -> None:
    await stage.scene.open_turn(await stage.scene.worker())
    await stage.scene.control("cancel")
    await stage.scene.dispatch()


@state("cancel_overdue", "worker")
async def _(stage: Stage) -> None:
    await stage.scene.open_turn(await stage.scene.worker())
    await stage.scene.control("cancel")
    await stage.scene.dispatch()
    await stage.scene.pass_ms(9000)
    await keep_leases(stage.scene)


@state("poisoned", "worker")
async def _(stage: Stage) -> None:
    await stage.scene.open_turn(await stage.scene.worker())
    await stage.scene.control("cancel")
    await stage.scene.dispatch()
    await stage.scene.yard.redis.hset(P + f"s:{SID}:head", "cc", "poisoned")


@state("ghost_owner", "worker")
async def _(stage: Stage) -> None:
    owner = await stage.scene.worker()
    await stage.scene.open_turn(owner)
    await stage.scene.pass_ms(60_000)
    await ticked(stage.scene)


@state("amnesty", "worker")
async def _(stage: Stage) -> None:
    await stage.scene.tick()
    await stage.scene.open_turn(await stage.scene.worker())
    await stage.scene.pass_ms(60_000)
    await stage.scene.tick()


@state("store_full", "server")
async def _(stage: Stage) -> None:
    await stage.scene.open_turn(await stage.scene.worker())
    stage.full = True


@state("assigned", "workers")
async def _(stage: Stage) -> None:
    await stage.scene.worker()
    await stage.scene.say()
    await stage.scene.dispatch()


@state("assignment_overdue", "workers")
async def _(stage: Stage) -> None:
    await stage.scene.worker()
    await stage.scene.say()
    await stage.scene.dispatch()
    await stage.scene.pass_ms(3000)


@state("no_dispatcher", "dispatcher")
async def _(stage: Stage) -> None:
    await stage.scene.say()
    await stage.scene.tick()
    await stage.scene.dispatch()
    await stage.scene.pass_ms(20_000)


@state("ingress_backlog", "dispatcher")
async def _(stage: Stage) -> None:
    shard = stage.scene.yard.shards[0]
    await shard.redis.xadd(shard.keys.ingress, {"v": 1, "kind": "wake"}, id="1-0")
    await stage.scene.say()


@state("not_woken", "dispatcher")
async def _(stage: Stage) -> None:
    await stage.scene.say()
    await stage.scene.dispatch()
    await stage.scene.yard.redis.hset(P + f"s:{SID}:head", "st", "idle")
    await stage.put_back("HSET", P + f"s:{SID}:head", "st", "ready")


@state("queued", "dispatcher")
async def _(stage: Stage) -> str:
    await crowded(stage, max_concurrent_turns=1)
    await set_limits(stage.scene.yard.shards[0], max_concurrent_turns=2)
    return "behind"


@state("no_worker_for_pool", "workers")
async def _(stage: Stage) -> None:
    await stage.scene.say()
    await stage.scene.dispatch()


@state("no_worker_for_agent", "workers")
async def _(stage: Stage) -> None:
    await stage.scene.worker(agents={"other": 0})
    await stage.scene.say()
    await stage.scene.dispatch()


@state("only_older_version", "workers")
async def _(stage: Stage) -> None:
    view = await stage.scene.open_turn(await stage.scene.worker(serial=2))
    await stage.scene.commit(view, ending="yield")
    for worker in stage.scene.owners:
        await stage.scene.tick(worker)
    await stage.scene.worker(serial=1)
    await stage.scene.dispatch()


@state("schema_newer", "workers")
async def _(stage: Stage) -> None:
    await stage.scene.worker(schemas=Schemas(1, 1))
    await stage.scene.yard.redis.hset(P + "limits", "schema", 2)
    await stage.scene.say()
    await stage.scene.dispatch()


async def crowded(stage: Stage, **limits: Any) -> str:
    await set_limits(stage.scene.yard.shards[0], **limits)
    await stage.scene.open_turn(await stage.scene.worker(capacity=limits.pop("capacity", 50)))
    await stage.scene.say(session="behind")
    await stage.scene.dispatch()
    return "behind"


@state("no_capacity", "resource")
async def _(stage: Stage) -> str:
    return await crowded(stage, max_concurrent_turns=1)


@state("tenant_cap", "resource")
async def _(stage: Stage) -> str:
    return await crowded(stage, tenants={"default": 1})


@state("agent_cap", "resource")
async def _(stage: Stage) -> str:
    return await crowded(stage, agents={"bot": 1})


@state("pool_cap", "resource")
async def _(stage: Stage) -> str:
    return await crowded(stage, pools={"default": 1})


@state("workers_busy", "workers")
async def _(stage: Stage) -> str:
    await stage.scene.open_turn(await stage.scene.worker(capacity=1))
    await stage.scene.say(session="behind")
    await stage.scene.dispatch()
    return "behind"


@state("isolated", "workers")
async def _(stage: Stage) -> None:
    view = await stage.scene.open_turn(await stage.scene.worker())
    await stage.scene.yard.redis.hset(P + f"s:{SID}:head", "lv", 1)
    await stage.scene.commit(view, ending="yield")
    await stage.scene.dispatch()


@state("parked", "outside")
async def _(stage: Stage) -> None:
    await stage.parked("callback")


@state("approval", "people")
async def _(stage: Stage) -> None:
    await stage.parked("approval")


@state("question", "people")
async def _(stage: Stage) -> None:
    await stage.parked("question")


@state("lifted_queued", "lifted")
async def _(stage: Stage) -> None:
    await stage.parked("lift")


@state("lifted_running", "worker")
async def _(stage: Stage) -> None:
    view = await stage.parked("lift")
    (name,) = await stage.scene.rows()
    store = f"{SID}.0"
    assert view.ended
    await stage.scene.begin_row(store, name, owner=await stage.scene.worker(role="lifted", agents={}))


@state("child", "session")
async def _(stage: Stage) -> None:
    await stage.parked("child")


async def delayed(stage: Stage, kind: Any) -> None:
    view = await stage.scene.open_turn(await stage.scene.worker())
    await stage.scene.commit(view, wait=(Wait("w1", kind, 60_000),), ending="park")
    seen = await read_session(stage.scene.yard, tenant="default", session="s")
    assert seen is not None
    assert [(call.call, call.kind) for call in seen.parked] == [("w1", kind)]


@state("retry_delay", "clock")
async def _(stage: Stage) -> None:
    await delayed(stage, "retry")


@state("timer", "clock")
async def _(stage: Stage) -> None:
    await delayed(stage, "timer")


@state("debounce", "clock")
async def _(stage: Stage) -> None:
    await stage.scene.say(mode="collect", window_ms=60_000, window_max_ms=90_000)
    await stage.scene.dispatch()


@state("delayed", "clock")
async def _(stage: Stage) -> None:
    await stage.scene.say(delay_ms=60_000)
    await stage.scene.dispatch()


@state("behind_turn", "turn")
async def _(stage: Stage) -> None:
    await stage.scene.open_turn(await stage.scene.worker())
    await stage.scene.say("later", mode="follow_up")
    await stage.scene.dispatch()


async def owing(stage: Stage, due_ms: int) -> None:
    view = await stage.scene.open_turn(await stage.scene.worker(), platform="slack")
    await stage.scene.reply(view, lanes=("slack",))
    await stage.scene.yard.redis.zadd(P + "out:slack", {f"{SID}.0": stage.scene.now_ms + due_ms})


@state("delivery_held", "sender")
async def _(stage: Stage) -> None:
    await owing(stage, 30_000)


@state("delivery_overdue", "sender")
async def _(stage: Stage) -> None:
    await owing(stage, -30_000)


@state("dead_letter", "operator")
async def _(stage: Stage) -> None:
    scene = stage.scene
    await scene.reply(await scene.open_turn(await scene.worker()))
    await scene.yard.redis.xadd(P + "ingress", {"v": "9", "kind": "user", "sid": SID})
    await scene.dispatch()


async def keep_leases(scene: Scene) -> None:
    for owner in scene.owners:
        await scene.yard.redis.zadd(P + "workers", {owner: scene.now_ms + 10_000})


async def asked(scene: Scene, session: str) -> Explanation:
    found = await explain(scene.yard, tenant="default", session=session)
    assert found is not None
    return found


@pytest.mark.spec("rival-37")
@pytest.mark.parametrize("code", FIXES)
async def test_a_session_that_stands_still_says_why_who_since_when_and_what_to_do(scene: Scene, code: str) -> None:
    build, kind = STATES[code]
    stage = Stage(scene)
    if code not in ("amnesty", "no_dispatcher"):
        await ticked(scene)
    session = await build(stage) or "s"
    await scene.pass_ms(AGE_MS)
    before = await scene.snapshot()
    async with stage.after:
        if stage.full:
            await stage.after.enter_async_context(scene.full_server())
        first = await asked(scene, session)
        (found,) = [x for x in (first, *first.also) if x.code == code] or [first]
        assert found.code == code, (first, session)
        assert await scene.snapshot() == before
    assert found.holder is not None
    assert found.holder["kind"] == kind
    assert found.age_ms is not None
    assert found.age_ms >= AGE_MS
    assert found.detail
    assert found.fix == FIXES[code].format(
        pool="default", agent="bot", tenant="default", session=session, approval=found.facts.get("approval")
    )


def test_every_code_has_a_state_that_is_built() -> None:
    assert set(STATES) == set(FIXES)


async def test_another_tenants_session_is_not_explained(scene: Scene) -> None:
    await scene.say()
    assert await explain(scene.yard, tenant="other", session="s") is None


async def test_a_running_turn_names_its_worker_its_step_and_its_tool(scene: Scene) -> None:
    await ticked(scene)
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    found = await asked(scene, "s")
    assert (found.facts["phase"], found.facts["step"]) == ("with the model, or in a hook or check of the app", 1)
    made = call(view)
    await scene.ask(view, made, start=(made.id,))
    found = await asked(scene, "s")
    assert (found.facts["phase"], found.facts["step"]) == ("in tool tool0", 2)
    assert found.holder == {"kind": "worker", "worker": owner, "host": "host", "pid": 1, "lease_left_ms": 10_000}


async def test_a_lifted_call_says_how_often_it_was_relayed_and_who_runs_it(scene: Scene) -> None:
    await ticked(scene)
    await Stage(scene).parked("lift", idempotent=True, deadline_ms=600_000)
    await scene.pass_ms(31_000)
    await scene.tick()
    found = await asked(scene, "s")
    assert (found.code, found.facts["relays"]) == ("lifted_queued", 2)
    assert "relayed 2 times" in found.detail
    (name,) = await scene.rows()
    lifted = await scene.worker(role="lifted", agents={})
    await scene.begin_row(f"{SID}.0", name, owner=lifted)
    found = await asked(scene, "s")
    assert found.code == "lifted_running"
    assert found.holder is not None
    assert found.holder["worker"] == lifted


async def test_of_several_calls_the_one_that_somebody_can_answer_is_named_first_and_all_are_listed(scene: Scene) -> None:
    await ticked(scene)
    view = await scene.open_turn(await scene.worker())
    first, second = call(view, 0, "lift", awaited=True), call(view, 1, "approval", awaited=True)
    view = await scene.ask(view, first, second)
    await scene.commit(view, park=(Park(first.id, 60_000), Park(second.id, 60_000)), ending="park")
    found = await asked(scene, "s")
    assert found.code == "approval"
    assert [c["kind"] for c in found.facts["calls"]] == ["lift", "approval"]


async def test_calls_in_the_background_are_told_beside(scene: Scene) -> None:
    await ticked(scene)
    await Stage(scene).parked("callback", awaited=False)
    found = await asked(scene, "s")
    assert (found.code, [x.code for x in found.also]) == ("idle", ["parked"])


async def test_what_explaining_costs_does_not_grow_with_the_yard(scene: Scene) -> None:
    async def cost() -> int:
        await scene.yard.redis.config_resetstat()
        await asked(scene, "s")
        return await scene.commands()

    await ticked(scene)
    await set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    await scene.open_turn(await scene.worker())
    one = await cost()
    for i in range(100):
        await scene.say(session=f"s{i}")
    await scene.dispatch()
    assert await cost() <= one + 10


async def test_a_supervisors_tick_is_no_dispatchers(scene: Scene) -> None:
    await tick(scene.yard.shards[0], who="supervisor")
    await scene.say()
    await scene.dispatch()
    assert (await asked(scene, "s")).code == "no_dispatcher"


@pytest.mark.parametrize(("kind", "command"), [("approval", "allow"), ("question", "answer")])
async def test_what_people_have_to_decide_is_explained_with_who_until_when_and_the_command(scene: Scene, kind: str, command: str) -> None:
    stage = Stage(scene)
    await stage.parked(kind)
    (name,) = await scene.rows()
    asked = {"approvers": ["ann", "fin-*"], "reason": "over 100", "self_approve": False}
    await scene.yard.redis.hset(P + f"h:{SID}.0:calls", f"{name}:q", orjson.dumps(asked))
    found = await explain(scene.yard, tenant="default", session="s")
    assert found is not None
    ident = approval_id(0, f"{SID}.0", name)
    assert found.fix.startswith(f"turnyard approvals {command} {ident}")
    assert found.holder == {"kind": "people", "who": "ann, fin-*, but not whoever asked for it"}
    assert (found.facts["approval"], found.facts["approvers"], found.facts["reason"]) == (ident, ["ann", "fin-*"], "over 100")
    assert "60.0 s more" in found.detail
    seen = await read_session(scene.yard, tenant="default", session="s")
    assert seen is not None
    assert [(c.approval, c.request) for c in seen.parked] == [(ident, asked)]
