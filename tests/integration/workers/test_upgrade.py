"""An upgrade as it happens: processes of two versions at work, the old ones leave, the range moves, no old one comes back."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.integration.workers.newer import NEWER
from tests.processes import Role, Roles
from turnyard.errors import Conflict
from turnyard.records.ids import session_key
from turnyard.state.migration import finish
from turnyard.state.presence import read_processes
from turnyard.state.yard import Yard
from turnyard.testing import wait_until

MODULE = "tests.integration.workers.newer"


def newer(roles: Roles, role: str, url: str, *more: str) -> Role:
    return roles.start(MODULE, role, "--redis", url, *more)


async def schema_of(yard: Yard, session: str) -> int:
    sid = session_key("default", session)
    shard: Any = yard.shard_for(sid)
    return int(await shard.redis.hget(shard.keys.head(sid), "sc") or 1)


async def test_old_and_new_work_side_by_side_until_the_old_ones_are_gone(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    yard = await Yard.open(clean, schemas=NEWER)
    dispatchers, workers = [roles.dispatcher(clean)], [roles.worker(clean, app.path, "--concurrency", "4")]
    new = newer(roles, "worker", clean, "--app", f"{app.path}:app", "--concurrency", "4")
    newer(roles, "dispatcher", clean)
    await talk.enrolled(4)
    # Both take turns at the same time: as many are held open as one of them alone has no room for.
    jobs = [await talk.say(f"s{i}", "again both") for i in range(12)]
    await wait_until(lambda: all(set(app.ran("again")) & set(role.children()) for role in (new, workers[0])), description="both to work")
    app.open("both")
    assert {(await talk.done(job)).state for job in jobs} == {"succeeded"}
    with pytest.raises(Conflict, match=r"dispatcher .*schema 1"):
        await finish(yard)
    for old in (*dispatchers, *workers):
        old.process.send_signal(signal.SIGTERM)
        assert old.process.wait(30) == 0
    await talk.enrolled(2)
    assert (await finish(yard)).layout.write == NEWER.newest
    assert (await talk.done(await talk.say("s1", "add 5 5"))).state == "succeeded"
    assert (await talk.done(await talk.say("fresh", "add 5 5"))).state == "succeeded"
    assert [await schema_of(yard, session) for session in ("s1", "fresh", "s2")] == [2, 2, 1]
    check_log(await talk.log("s1"))
    for late in (roles.worker(clean, app.path), roles.dispatcher(clean)):
        assert late.process.wait(30) == 3
        assert "it is too old" in late.log()
    await yard.aclose()


async def test_a_worker_that_was_frozen_through_the_migration_touches_nothing_and_ends(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    yard = await Yard.open(clean, schemas=NEWER)
    newer(roles, "dispatcher", clean)
    frozen = roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: len(app.ran("again")) == 1, description="the old worker to run the tool")
    pids = [frozen.process.pid, *frozen.children()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await talk.enrolled(0)
    await yard.redis.delete("ty:{ctl}:processes")  # its entry would be forgotten by itself a quarter of a minute later
    newer(roles, "worker", clean, "--app", f"{app.path}:app")
    await wait_until(lambda: len(app.ran("again")) == 2, description="the new worker to run the tool", timeout_s=30)

    async def finished() -> bool:
        return (await finish(yard)).layout.write == NEWER.newest

    await wait_until(finished, description="the range to move")
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert frozen.process.wait(30) != 0
    assert "start a newer version" in frozen.log()
    app.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert len(app.ran("again")) == 2
    check_log(await talk.log("s1"))
    assert all(p.schemas == NEWER for p in await read_processes(yard.redis))
    await yard.aclose()
