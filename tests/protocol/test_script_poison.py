"""Who is charged when a worker dies, where a suspect runs again, and how a poisoned turn is closed: on the real server."""

from __future__ import annotations

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import OK, Scene, call
from turnyard.records.commit import Answer, NewCall, TurnView
from turnyard.records.ids import session_key
from turnyard.records.log import NOTICE
from turnyard.state import fleet
from turnyard.state.dead import drop_letter, list_letters, retry_letter
from turnyard.state.upkeep import Suspects

pytestmark = pytest.mark.asyncio


async def child_dies(scene: Scene, owner: str, *suspects: str, alone: bool = False) -> None:
    """A supervisor tells that its child is dead, and which sessions may be why."""
    named = Suspects(tuple(session_key("default", s) for s in suspects), alone=alone)
    await scene.tick(owner, who="supervisor", suspects=named)
    await scene.dispatch()


async def apart(scene: Scene, level: int, *, host: str = "host") -> str:
    """A child for suspects of this level."""
    return await scene.worker(pools=(f"default!{level}",), capacity={1: 16, 2: 1}[level], host=host)


async def started(scene: Scene, owner: str, session: str = "s", *, idempotent: bool = True) -> tuple[TurnView, NewCall]:
    """A turn that is inside its tool."""
    view = await scene.open_turn(owner, session=session)
    made = call(view, 0, idempotent=idempotent)
    return await scene.commit(await scene.ask(view, made), start=(made.id,)), made


async def wanted(scene: Scene, owner: str, *able: int) -> tuple[int, ...]:
    return (await fleet.beat(scene.yard.shards[0], owner, held=-1, able=able or (1, 2))).wanted


async def level(scene: Scene, session: str = "s") -> list[int]:
    """Return isolation, deaths alone and lost hosts as the head counts them."""
    head = await scene.head(session)
    return [int(head.get(name, 0)) for name in ("lv", "dt", "ls")]


async def only_the_suspect_runs_apart(scene: Scene) -> None:
    owner, other = await scene.worker(), await scene.worker()
    for session in ("s", "a", "b"):
        await started(scene, owner, session)
    await child_dies(scene, owner, "s")
    for session in ("a", "b"):
        view = await scene.begin(other, session)
        assert view is not None, f"{session} has to wait for what another did"
        assert await level(scene, session) == [0, 0, 0]
    assert (await scene.state("s"), await level(scene)) == ("ready", [1, 0, 0])
    assert await scene.begin(other, "s") is None
    # One supervisor is asked for a small child, and only one.
    assert await wanted(scene, other, 2) == ()
    assert await wanted(scene, other) == (1,)
    assert await wanted(scene, other) == ()
    small = await apart(scene, 1)
    await scene.dispatch()
    assert await scene.begin(small, "s") is not None


async def three_deaths_alone_close_the_turn(scene: Scene) -> None:
    owner, spare = await scene.worker(), await scene.worker()
    accepted = await scene.say("do it")
    view = await scene.start(owner)
    made = call(view, 0, idempotent=True)
    await scene.commit(await scene.ask(view, made), start=(made.id,))
    await started(scene, owner, "beside")
    await child_dies(scene, owner, "s", "beside")
    for n, at in enumerate((1, 2, 2)):
        assert await level(scene) == [at, n, 0]
        child = await apart(scene, at)
        await scene.dispatch()
        view = await scene.begin(child, "s")
        assert view is not None
        # The mark that its call is started is made anew each time, and forgives nothing.
        await scene.commit(view, start=(made.id,), owner=child)
        await child_dies(scene, child, "s", alone=True)
    view = await scene.begin(spare, "s")
    assert view is not None, "closing runs nothing of the app and needs no child of its own"
    assert view.cancel == "poisoned"
    await scene.commit(view, ending="finish", closing=True)
    job = await scene.job(accepted)
    assert job.error is not None
    assert (job.state, job.error["code"]) == ("failed", "poisoned")
    notice = (await scene.log())[-2]
    assert (notice.type, notice.body["tag"]) == (NOTICE, "poisoned")
    assert f"3 times, last inside tool tool0 ({made.id})" in notice.body["text"]
    assert [r.outcome for r in await scene.log() if r.type == "tool/result"] == ["unknown"]
    (letter,) = await list_letters(scene.yard, session="s")
    assert (letter.reason, letter.job, letter.turn, letter.call) == ("poisoned", accepted.job, view.turn, made.id)
    # The session is as good as new.
    again = await scene.open_turn(spare, "and now")
    assert await level(scene) == [0, 0, 0]
    await scene.reply(again)
    assert (await retry_letter(scene.yard, letter.id)).done


async def only_a_real_result_forgives(scene: Scene) -> None:
    owner = await scene.worker()
    view, made = await started(scene, owner, idempotent=False)
    await child_dies(scene, owner, "s", alone=True)
    child = await apart(scene, 1)
    await scene.dispatch()
    view = await scene.begin(child, "s")
    assert view is not None
    assert await level(scene) == [1, 1, 0]
    view = await scene.commit(view, append=(Answer(made.id, "unknown", None),), claim=True)
    again = call(view, 0, idempotent=True)
    view = await scene.commit(await scene.ask(view, again), start=(again.id,))
    assert await level(scene) == [1, 1, 0]
    view = await scene.commit(view, append=(Answer(again.id, "result", OK),), claim=True)
    assert await level(scene) == [1, 0, 0], "the isolation stays until the turn ends"
    await scene.reply(view)
    assert await level(scene) == [0, 0, 0]


async def lost_hosts_close_the_killer_alone(scene: Scene) -> None:
    """Turn `s` takes its host down each time; `a` is on each of them and runs a long tool."""
    for n in range(5):
        host = f"host{n}"
        owner = await scene.worker(host=host)
        alone = await apart(scene, 2, host=host)
        await scene.dispatch()
        if n == 0:
            await started(scene, owner, "s")
            await started(scene, owner, "a")
        elif n == 1:
            assert await scene.begin(owner, "s") is not None
            assert await scene.begin(owner, "a") is not None
        else:
            await begin_alone(scene, alone, owner)
        for each in (owner, alone):
            await scene.tick(each)
            await scene.dispatch()
    spare = await scene.worker(host="last")
    await apart(scene, 2, host="last")
    await scene.dispatch()
    view = await scene.begin(spare, "s")
    assert view is not None
    assert view.cancel == "poisoned"
    await scene.commit(view, ending="finish", closing=True)
    assert (await level(scene, "a"))[2] < 5


async def begin_alone(scene: Scene, alone: str, owner: str) -> None:
    """Both have lost two hosts: one of them at a time runs, and no ordinary worker takes either."""
    assert await scene.begin(owner, "s") is None
    assert await scene.begin(owner, "a") is None
    first, second = await scene.begin(alone, "s"), await scene.begin(alone, "a")
    assert (first is None) != (second is None)
    if first is None and second is not None:
        # The innocent is first: it gets on, and is forgiven.
        made = next(row.call for row in second.rows)
        second = await scene.commit(second, append=(Answer(made, "result", OK),), claim=True, owner=alone)
        await scene.reply(second, owner=alone)
        await scene.dispatch()
        assert await scene.begin(alone, "s") is not None


@pytest.mark.spec("trap-15")
async def test_of_a_dead_childs_turns_only_the_suspect_runs_apart_and_the_others_go_on_uncharged(scene: Scene) -> None:
    await only_the_suspect_runs_apart(scene)


@pytest.mark.spec("trap-82", "I13", "rival-50", "L43", "turn-51")
async def test_a_turn_that_ends_three_children_which_it_has_to_itself_is_closed_and_its_session_goes_on(scene: Scene) -> None:
    await three_deaths_alone_close_the_turn(scene)


@pytest.mark.spec("trap-82")
async def test_deaths_are_forgiven_by_a_real_result_and_by_nothing_that_was_made_up_for_one(scene: Scene) -> None:
    await only_a_real_result_forgives(scene)


@pytest.mark.spec("trap-84")
async def test_of_the_turns_on_lost_hosts_the_killer_is_closed_at_five_and_no_other(scene: Scene) -> None:
    await lost_hosts_close_the_killer_alone(scene)


async def test_while_a_turn_is_alone_because_of_lost_hosts_its_host_is_charged_to_it_alone(scene: Scene) -> None:
    owner, alone = await scene.worker(host="one"), ""
    await started(scene, owner, "s")
    for _ in range(2):
        await scene.tick(owner)
        owner = await scene.worker(host="one")
        alone = await apart(scene, 2, host="one")
        await scene.dispatch()
        await scene.begin(owner, "s")
    await scene.begin(alone, "s")
    await started(scene, owner, "a")
    await scene.tick(owner, alone)
    assert (await level(scene, "s"), await level(scene, "a")) == ([0, 0, 3], [0, 0, 0])
    await scene.tick(alone)


async def test_the_job_of_a_poisoned_turn_goes_in_its_time_when_its_letter_was_dropped_before_it_closed(scene: Scene) -> None:
    owner, spare = await scene.worker(), await scene.worker()
    accepted = await scene.say("do it")
    await scene.start(owner)
    await child_dies(scene, owner, "s", alone=True)
    for at in (1, 2):
        child = await apart(scene, at)
        await scene.dispatch()
        assert await scene.begin(child, "s") is not None
        await child_dies(scene, child, "s", alone=True)
    [found] = await list_letters(scene.yard)
    assert (await drop_letter(scene.yard, found.id)).done
    view = await scene.start(spare)
    await scene.commit(view, ending="finish", closing=True)
    assert (await scene.job(accepted)).state == "failed"
    shard = scene.yard.shards[0]
    assert await shard.redis.ttl(shard.keys.job(accepted.job or "")) > 0


async def test_a_child_that_its_supervisor_ended_is_charged_to_nobody(scene: Scene) -> None:
    owner, other = await scene.worker(), await scene.worker()
    await started(scene, owner)
    await child_dies(scene, owner)
    assert await level(scene) == [0, 0, 0]
    assert await scene.begin(other, "s") is not None


async def test_a_turn_that_loses_four_children_within_one_step_is_a_suspect_wherever_it_stood(scene: Scene) -> None:
    """Others are in their tools each time, so it never is the only one to look at."""
    owner = await scene.worker()
    await scene.open_turn(owner)
    for n in range(4):
        other = f"other{n}"
        await started(scene, owner, other)
        assert await level(scene) == [0, 0, 0]
        await child_dies(scene, owner, other)
        owner = await scene.worker()
        await scene.dispatch()
        await scene.begin(owner, "s")
    assert await level(scene) == [1, 0, 0]
    assert await scene.state() == "ready"


async def test_a_suspect_that_waits_is_closed_by_any_worker_when_it_is_cancelled(scene: Scene) -> None:
    owner, other = await scene.worker(), await scene.worker()
    await started(scene, owner)
    await child_dies(scene, owner, "s")
    assert await scene.begin(other, "s") is None
    await scene.control("cancel")
    await scene.dispatch()
    view = await scene.begin(other, "s")
    assert view is not None
    await scene.commit(view, ending="finish", closing=True)
    assert await scene.state() == "idle"


async def test_one_child_per_host_runs_turns_alone(scene: Scene) -> None:
    owner, same, elsewhere = await scene.worker(), await scene.worker(), await scene.worker(host="elsewhere")
    for session in ("s", "a"):
        await started(scene, owner, session)
    for at in (1, 2):
        await child_dies(scene, owner, "s", "a")
        if at == 1:
            owner = await apart(scene, 1)
            await scene.dispatch()
            for session in ("s", "a"):
                assert await scene.begin(owner, session) is not None
    assert await level(scene) == [2, 0, 0]
    alone = await apart(scene, 2)
    await scene.dispatch()
    running = [s for s in ("s", "a") if await scene.begin(alone, s)]
    assert len(running) == 1
    assert await wanted(scene, same, 2) == ()
    assert await wanted(scene, elsewhere, 2) == (2,)


async def crowd(scene: Scene) -> tuple[str, list[str], Suspects]:
    """A child with more turns than one tick hands back, the first half of them suspects."""
    owner = await scene.worker(capacity=200)
    names = [f"s{i}" for i in range(130)]
    for name in names:
        await scene.say(session=name)
    for _ in range(8):
        await scene.dispatch()
    for name in names:
        assert await scene.begin(owner, name) is not None
    return owner, names, Suspects(tuple(session_key("default", name) for name in names[:65]))


async def test_a_dead_child_with_more_than_a_hundred_turns_is_charged_in_parts(scene: Scene) -> None:
    owner, names, named = await crowd(scene)
    for _ in range(2):
        await scene.tick(owner, who="supervisor", suspects=named, parts="")
    levels = [(await level(scene, name))[0] for name in names]
    assert levels == [1] * 65 + [0] * 65


async def test_the_suspects_of_a_dead_child_are_charged_though_others_find_the_rest(scene: Scene) -> None:
    owner, names, named = await crowd(scene)
    await scene.tick(owner, who="supervisor", suspects=named, parts="")
    await scene.tick(parts="w")
    assert [(await level(scene, name))[0] for name in names] == [1] * 65 + [0] * 65


BROKEN: dict[str, Broken] = {
    "trap-15": (only_the_suspect_runs_apart, "not (report.suspects[h.sid] or h.at >= WEARY)", "false"),
    "trap-82": (three_deaths_alone_close_the_turn, "if a.append or a.settle then", "if true then forgive(h)"),
    "rival-50": (three_deaths_alone_close_the_turn, "if report.alone then add(h, 'dt', 1) end", ""),
    "I13": (only_a_real_result_forgives, "x.t == 'answer' and (x.o == 'result' or x.o == 'error')", "true"),
    "trap-84": (lost_hosts_close_the_killer_alone, "return h.ls >= ALONE_FROM and 2 or h.lv", "return h.lv"),
}


@pytest.mark.parametrize("row", BROKEN)
async def test_without_its_rule_the_trap_snaps(clean: str, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[row])
