"""Traps of admission on the server: who gets a slot, when, for how long, and what finding that out costs."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import Scene, call
from turnyard.records.commit import Commit, Say
from turnyard.records.ids import session_key
from turnyard.state import fleet
from turnyard.state.flows import dispatch, set_limits
from turnyard.state.turns import begin, commit

pytestmark = pytest.mark.asyncio


@pytest.mark.spec("trap-5")
@pytest.mark.parametrize("how", ["finish", "park", "yield", "begin-by", "death", "cancel"])
async def test_whatever_frees_a_slot_makes_the_next_dispatch_or_tick_give_it_away(scene: Scene, how: str) -> None:
    shard = scene.yard.shards[0]
    await set_limits(shard, max_concurrent_turns=1)
    owner, other = await scene.worker(), await scene.worker()
    await scene.say()
    await scene.dispatch()
    if how == "begin-by":
        await scene.control("pause", session="s")
    view = None if how == "begin-by" else await scene.begin(owner)
    await scene.say(session="waiting", agent="bot")
    await scene.dispatch()
    if view is not None:
        made = call(view, 0, "callback", awaited=True)
        if how == "finish":
            await scene.reply(view)
        elif how == "park":
            await scene.park(await scene.ask(view, made), made.id)
        elif how == "yield":
            await scene.control("pause")
            await scene.dispatch()
            await scene.commit(view, ending="yield")
        elif how == "cancel":
            await scene.control("cancel")
            await scene.dispatch()
            await scene.commit(view, ending="finish", closing=True)
        else:
            await scene.control("pause")
            await scene.dispatch()
            await scene.tick(owner, who="supervisor")
        assert await scene.ingress() == 1, "nobody was woken"
        await dispatch(shard)
    assert await scene.state("waiting") == "assigned"
    await scene.reply(await _begin(scene, other, "waiting"))


@pytest.mark.spec("trap-9")
@pytest.mark.parametrize("shape", ["one flow", "many flows"])
async def test_admission_costs_the_same_behind_twenty_and_behind_two_thousand_sessions_that_may_not_run(scene: Scene, shape: str) -> None:
    shard = scene.yard.shards[0]
    agents = {f"a{i}": 0 for i in range(300)} if shape == "many flows" else {"bot": 0}
    await set_limits(shard, tenants={"big": 1})
    owner = await scene.worker(agents={**agents, "bot": 0}, capacity=1000)
    names = list(agents)

    async def flood(first: int, count: int) -> None:
        for start in range(first, first + count, 200):
            numbers = range(start, min(start + 200, first + count))
            await asyncio.gather(*(scene.say(session=f"b{i}", tenant="big", agent=names[i // 2 % len(names)]) for i in numbers))
            await scene.dispatch()
        while (await dispatch(shard)).admitted:
            pass

    async def cost(small: str) -> tuple[int, int]:
        """What it costs to admit a session behind them, and to give the one slot they share to the next of them."""
        await scene.say(session=small, tenant="small")
        await scene.yard.redis.config_resetstat()
        assert (await dispatch(shard)).admitted == 1
        behind = await scene.commands()
        (sid,) = await shard.redis.smembers(shard.keys.prefix + "run:t/big")
        epoch = int(await shard.redis.hget(shard.keys.head(sid.decode()), "ep"))
        view = await begin(shard, sid.decode(), epoch=epoch, owner=owner, serial=0)
        assert view is not None
        await commit(shard, view, owner, Commit(append=(Say({"text": "x"}),), ending="finish"))
        await scene.yard.redis.config_resetstat()
        assert (await dispatch(shard)).admitted == 1
        return behind, await scene.commands()

    await flood(0, 20)
    few = await cost("first")
    await flood(20, 580 if shape == "many flows" else 1980)
    many = await cost("second")
    # the flow that was woken may have a second session, and is then blocked once more
    assert [many[0] <= few[0] + 20, many[1] <= few[1] + 20] == [True, True], (few, many)
    assert await shard.redis.scard(shard.keys.prefix + "run:t/big") == 1


@pytest.mark.spec("trap-10")
async def test_a_tenant_that_slept_shares_with_the_one_that_worked_instead_of_running_alone(scene: Scene) -> None:
    await set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    owner = await scene.worker()
    names = {"busy": "w", "sleepy": "z"}
    await _turns(scene, owner, "sleepy", 1)
    for i in range(40):
        await scene.say(session=f"w{i}", tenant="busy")
    assert {await _run_next(scene, owner, names) for _ in range(20)} == {"busy"}
    for i in range(12):
        await scene.say(session=f"z{i}", tenant="sleepy")
    order = [await _run_next(scene, owner, names) for _ in range(12)]
    assert 4 <= order.count("sleepy") <= 8
    assert "busy" in order[:3]


@pytest.mark.spec("trap-10", "trap-80")
async def test_the_tags_of_tenants_that_are_gone_do_not_stay(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker()
    for i in range(60):
        await _turns(scene, owner, f"t{i}", 1)
        await scene.tick()
    fields = [f for f in await shard.redis.hkeys(shard.keys.limits) if f.startswith((b"vt:", b"last:"))]
    assert len(fields) <= 2


@pytest.mark.spec("trap-11", "trap-79")
async def test_a_session_that_is_written_to_every_second_gives_its_slot_away_after_the_quantum(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await set_limits(shard, max_concurrent_turns=1, quantum_ms=5000)
    owner = await scene.worker()
    view = await scene.open_turn(owner, "m0")
    await scene.say(session="other")
    turns = 0
    while not view.ended:
        turns += 1
        assert turns < 20, "it holds its slot for ever"
        await scene.pass_ms(1000)
        await scene.say(f"m{turns}")
        await scene.dispatch()
        view = await scene.reply(view)
    assert turns == 5
    await dispatch(shard)
    assert (await scene.state("other"), await scene.state()) == ("assigned", "ready")
    await scene.reply(await _begin(scene, owner, "other"))
    await dispatch(shard)
    assert await scene.state() == "assigned"


@pytest.mark.spec("trap-11")
async def test_a_session_that_is_written_to_every_second_keeps_its_slot_while_nobody_waits(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "m0")
    for i in range(40):
        await scene.pass_ms(1000)
        await scene.say(f"m{i}")
        await scene.dispatch()
        await fleet.beat(scene.yard.shards[0], owner, held=1)
        view = await scene.reply(view)
        assert not view.ended
    assert view.epoch == 1


@pytest.mark.spec("trap-78")
async def test_a_turn_of_a_newer_agent_is_offered_to_no_worker_with_an_older_one(scene: Scene) -> None:
    old, new = await scene.worker(serial=1), await scene.worker(serial=2)
    view = await scene.open_turn(new)
    await scene.commit(view, ending="yield")
    await scene.dispatch()
    assert await scene.take(old) is None
    scene._lists[new].extra = ("default:bot@2",)
    again = await scene.begin(new)
    assert again is not None
    assert again.epoch == 2
    await scene.commit(again, ending="yield")
    await fleet.leave(scene.yard.shards[0], new)
    await scene.tick()
    assert await scene.state() == "ready"
    assert await scene.running() == 0
    await scene.worker(serial=3)
    await scene.dispatch()
    assert await scene.state() == "assigned"


@pytest.mark.spec("trap-81")
async def test_free_slots_are_spread_over_the_tenants_that_wait(scene: Scene) -> None:
    shard = scene.yard.shards[0]
    await set_limits(shard, max_concurrent_turns=4)
    for i in range(8):
        for tenant in ("a", "b"):
            await scene.say(session=f"s{i}", tenant=tenant)
    await scene.dispatch()
    await scene.worker()
    await scene.tick()
    running = [await shard.redis.scard(shard.keys.prefix + f"run:t/{tenant}") for tenant in ("a", "b")]
    assert running == [2, 2]


async def _begin(scene: Scene, owner: str, session: str, tenant: str = "default"):
    view = await scene.begin(owner, session, tenant=tenant)
    assert view is not None
    return view


async def _turns(scene: Scene, owner: str, tenant: str, count: int) -> None:
    for i in range(count):
        view = await scene.open_turn(owner, session=f"{tenant}{i}", tenant=tenant)
        await scene.pass_ms(100)
        await scene.reply(view)


async def _run_next(scene: Scene, owner: str, tenants: dict[str, str]) -> str:
    """Admit, run whatever got the slot for a while, and return its tenant."""
    await scene.dispatch()
    shard = scene.yard.shards[0]
    (sid,) = await shard.redis.zrange(shard.keys.prefix + "running", 0, -1)
    for tenant, letter in tenants.items():
        for i in range(40):
            name = f"{letter}{i}"
            if session_key(tenant, name) == sid.decode():
                await scene.take(owner, name, tenant)
                view = await scene.begin_as(owner, int((await scene.head(name, tenant))["ep"]), name, tenant=tenant)
                assert view is not None
                await scene.pass_ms(500)
                await fleet.beat(shard, owner, held=1)
                await scene.commit(view, Commit(append=(Say({"text": "x"}),), ending="finish"))
                return tenant
    raise AssertionError("an unknown session runs")


# Which rule saves each of these, and how the Lua looks without it.
BROKEN: dict[str, Broken] = {
    "trap-5": (
        partial(test_whatever_frees_a_slot_makes_the_next_dispatch_or_tick_give_it_away, how="finish"),
        *("if call('EXISTS', FLOWS) == 1 then call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'wake') end", ""),
    ),
    "trap-9": (
        partial(test_admission_costs_the_same_behind_twenty_and_behind_two_thousand_sessions_that_may_not_run, shape="many flows"),
        *(
            "    if call('ZCARD', flow_key(flow)) > 0 then\n      offer(flow)\n      return",
            "    if call('ZCARD', flow_key(flow)) > 0 then\n      offer(flow)",
        ),
    ),
    "trap-10": (
        test_a_tenant_that_slept_shares_with_the_one_that_worked_instead_of_running_alone,
        *(
            "return math.max(tonumber(limit('v') or 0), tonumber(limit('vt:' .. tenant) or 0))",
            "return tonumber(limit('vt:' .. tenant) or 0)",
        ),
    ),
    "trap-80": (test_the_tags_of_tenants_that_are_gone_do_not_stay, "    forget_tags()\n", ""),
    "trap-11": (
        test_a_session_that_is_written_to_every_second_gives_its_slot_away_after_the_quantum,
        *("not closing and not tired and", "not closing and"),
    ),
    "trap-78": (
        test_a_turn_of_a_newer_agent_is_offered_to_no_worker_with_an_older_one,
        "if not newer then return '0' end",
        "if true then return '0' end",
    ),
    "trap-81": (
        test_free_slots_are_spread_over_the_tenants_that_wait,
        *("local tag = start + est / tonumber(limit('wt:' .. h.tn) or 1)", "local tag = start"),
    ),
}


@pytest.mark.parametrize("row", BROKEN)
async def test_without_its_rule_the_trap_snaps(clean: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[row])
