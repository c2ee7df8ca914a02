"""A replica takes over: found through Sentinel, behind by some writes, or waited for before anything is confirmed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles, roles
from tests.protocol.scene import CLOCK, Scene, call, shown
from tests.servers import private_server
from tests.topologies import Node, Pair, a_pair, eventually
from turnyard.errors import Diverged, FenceLost, StoreUnavailable, Unsupported
from turnyard.records.commit import Answer
from turnyard.state import fleet, ingress
from turnyard.state.scripts import Library
from turnyard.state.yard import Yard
from turnyard.testing import wait_until

__all__ = ["roles"]


@pytest.fixture
def app(tmp_path: Path) -> SampleApp:
    """The sample app in a directory of its own."""
    return SampleApp(tmp_path)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary and its replica."""
    with a_pair() as made:
        yield made


async def _answers(talk: Talk) -> bool:
    try:
        await talk.yard.redis.set("ty:{ctl}:probe", 1)
        await talk.yard.redis.delete("ty:{ctl}:probe")
    except (RedisError, OSError):
        return False
    return True


@pytest.mark.spec("rival-36")
@pytest.mark.parametrize("how", ["killed", "replaced"])
async def test_turns_go_on_at_the_primary_that_sentinel_names(how: str, roles: Roles, app: SampleApp) -> None:
    with a_pair(sentinel=True) as pair:
        yard = await Yard.open(pair.url)
        talk = Talk(yard)
        roles.dispatcher(pair.url)
        roles.worker(pair.url, app.path, "--processes", "1")
        await talk.enrolled(1)
        held = await talk.say("held", "again gate")
        await wait_until(lambda: app.ran("again") != [], description="the tool to run")
        await talk.done(await talk.say("before", "add 1 2"))
        eventually(pair.in_step, "the replica to have it all")
        if how == "killed":
            pair.primary.kill()
        else:
            assert pair.sentinel is not None
            pair.sentinel.ask("SENTINEL", "FAILOVER", "yard")
        eventually(lambda: pair.named() == pair.replica.port, "the Sentinel to name the replica")
        await wait_until(partial(_answers, talk), description="this client to find the new primary", timeout_s=20)
        app.open("gate")
        assert (await talk.done(held)).state == "succeeded"
        assert (await talk.done(await talk.say("after", "add 3 4"))).state == "succeeded"
        for session in ("held", "before", "after"):
            check_log(await talk.log(session))
        await yard.aclose()


async def _promoted_behind(pair: Pair) -> None:
    """Hold what follows from the replica, as a link that lags does; it is a primary of its own from now on."""
    eventually(pair.in_step, "the replica to have what was before")
    pair.replica.ask("REPLICAOF", "NO", "ONE")


async def _at(url: str, scene: Scene) -> Scene:
    """The same deployment as the replica knows it."""
    there = await Scene.open(url)
    there.now_ms = scene.now_ms
    await there.pass_ms(0)
    there._lists, there._serials, there._owners = scene._lists, scene._serials, scene._owners
    return there


@pytest.mark.spec("I1", "trap-17")
async def test_after_a_failover_that_lost_commits_the_old_worker_is_refused_and_begins_again(pair: Pair) -> None:
    scene = await Scene.open(pair.primary.url)
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0)
    view = await scene.ask(view, made)
    await _promoted_behind(pair)
    ahead = await scene.commit(view, start=(made.id,))
    there = await _at(pair.replica.url, scene)
    with pytest.raises(Diverged):
        await there.commit(ahead, ending="yield")
    again = await there.begin_as(owner, view.epoch)
    assert again is not None
    assert (again.rev, shown(again)) == (view.rev, shown(view))
    again = await there.commit(again, start=(made.id,))
    await there.reply(await there.commit(again, append=(Answer(made.id, "result", {"content": "3"}),), claim=True))
    check_log(await there.log())
    await there.close()
    await scene.yard.aclose()


@pytest.mark.spec("trap-7", "trap-51")
async def test_after_a_failover_that_lost_a_begin_two_workers_with_one_epoch_never_both_write(pair: Pair) -> None:
    scene = await Scene.open(pair.primary.url)
    first, second = await scene.worker(), await scene.worker()
    await scene.say()
    await scene.dispatch()
    await _promoted_behind(pair)
    lost = await scene.begin(first)
    assert lost is not None
    there = await _at(pair.replica.url, scene)
    with pytest.raises(FenceLost):
        await there.commit(lost, owner=first, ending="yield")
    won = await there.begin_as(second, lost.epoch)
    assert won is not None
    assert won.epoch == lost.epoch
    with pytest.raises(FenceLost):
        await there.commit(lost, owner=first, ending="yield")
    await there.reply(won)
    assert await there.entries() == ["hello", "=bye"]
    await there.close()
    await scene.yard.aclose()


@pytest.mark.spec("L20")
async def test_what_was_answered_before_the_failover_is_not_run_again_after_it(pair: Pair) -> None:
    scene = await Scene.open(pair.primary.url)
    owner = await scene.worker()
    message = scene.message("once")
    assert (await ingress.accept_message(scene.yard, message)).code == "accepted"
    await scene.reply(await scene.start(owner))
    await _promoted_behind(pair)
    await scene.say("lost")
    there = await _at(pair.replica.url, scene)
    assert (await ingress.accept_message(there.yard, message)).code == "duplicate"
    assert (await there.dispatch()).admitted == 0
    assert await there.entries() == ["once", "=bye"]
    await there.say("new")
    view = await there.start(owner)
    await there.reply(view)
    assert await there.entries() == ["once", "=bye", "new", "=bye"]
    await there.close()
    await scene.yard.aclose()


def _stop(node: Node) -> None:
    assert node.process is not None
    node.process.send_signal(signal.SIGSTOP)


def _go_on(node: Node) -> None:
    assert node.process is not None
    node.process.send_signal(signal.SIGCONT)


async def test_an_accept_that_no_replica_confirmed_is_not_taken_for_done_and_neither_is_its_repeat(pair: Pair) -> None:
    scene = await Scene.open(f"{pair.primary.url}?durable_ack=replica")
    owner = await scene.worker()
    assert (await scene.say("first")).code == "accepted"
    view = await scene.start(owner)
    made = call(view, 0)
    _stop(pair.replica)
    try:
        message = scene.message("second", session="other")
        with pytest.raises(StoreUnavailable, match="did not confirm"):
            await ingress.accept_message(scene.yard, message)
        # Whoever repeats it may be another process, whose connection has written nothing yet.
        other = await Yard.open(scene.url, library=Library(clock_lua=CLOCK))
        with pytest.raises(StoreUnavailable, match="did not confirm"):
            await ingress.accept_message(other, message)
        await other.aclose()
        # What waits for no confirmation does not wait with those that do.
        assert not (await fleet.beat(scene.yard.shards[0], owner, held=1)).lost
        view = await scene.ask(view, made)
    finally:
        _go_on(pair.replica)
    eventually(pair.in_step, "the replica to catch up")
    assert (await ingress.accept_message(scene.yard, message)).code == "duplicate"
    await scene.commit(view, start=(made.id,))
    await scene.close()


async def test_a_mark_that_no_replica_confirmed_starts_no_tool(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnyard.state.turns._PATIENCE_S", 0.0)
    scene = await Scene.open(f"{pair.primary.url}?durable_ack=replica")
    owner = await scene.worker()
    view = await scene.open_turn(owner)
    made = call(view, 0)
    view = await scene.ask(view, made)
    _stop(pair.replica)
    try:
        with pytest.raises(StoreUnavailable, match="did not confirm"):
            await scene.commit(view, start=(made.id,))
    finally:
        _go_on(pair.replica)
    eventually(pair.in_step, "the replica to catch up")
    assert (await scene.commit(view, start=(made.id,))).code == "ALREADY"
    await scene.close()


async def test_an_accept_waits_for_the_disk_where_that_is_asked_for(pair: Pair) -> None:
    scene = await Scene.open(f"{pair.primary.url}?durable_ack=fsync")
    assert (await scene.say()).code == "accepted"
    await scene.close()


async def test_a_server_that_cannot_confirm_is_refused_at_the_start() -> None:
    with private_server() as url, pytest.raises(Unsupported, match="keeps no log on disk"):
        await Yard.open(f"{url}?durable_ack=fsync")
    with private_server("--rename-command", "WAITAOF", "") as url, pytest.raises(Unsupported, match="has no WAITAOF"):
        await Yard.open(f"{url}?durable_ack=fsync")
