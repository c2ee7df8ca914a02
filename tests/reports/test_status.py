"""What is said of a job is true: done means committed, and an interrupted one is neither finished nor running for ever."""

from __future__ import annotations

import pytest

from tests.protocol.scene import DAY_MS, OK, Scene, call
from turnyard.errors import FenceLost
from turnyard.records.commit import Answer, Say, TurnView
from turnyard.records.jobs import Job
from turnyard.records.messages import Accepted

STAGES = ("assigned", "begun", "answered with a call", "in a tool", "after a tool")


async def _to(scene: Scene, owner: str, stage: str) -> TurnView | None:
    if stage == "assigned":
        return None
    view = await scene.begin(owner)
    assert view is not None
    made = call(view, 0)
    if stage != "begun":
        view = await scene.ask(view, made, start=(made.id,) if stage in ("in a tool", "after a tool") else ())
    if stage == "after a tool":
        view = await scene.commit(view, append=(Answer(made.id, "result", OK),), claim=True)
    return view


async def _committed(scene: Scene, accepted: Accepted) -> Job:
    """Return the job; what it says was answered is in the log."""
    job = await scene.job(accepted)
    assert (job.state == "succeeded") == (job.output is not None)
    if job.output is not None:
        assert f"={job.output['text']}" in await scene.entries()
    return job


@pytest.mark.spec("I16")
@pytest.mark.parametrize("stage", STAGES)
async def test_a_job_whose_worker_dies_is_not_done_before_another_one_has_committed_its_answer(scene: Scene, stage: str) -> None:
    dead, owner = await scene.worker(), await scene.worker()
    accepted = await scene.say()
    await scene.dispatch()
    left = await _to(scene, dead, stage)
    await scene.tick(dead)
    if stage == "assigned":
        await scene.take(dead)
        await scene.pass_ms(3001)
        await scene.tick()
    assert (await _committed(scene, accepted)).state in ("queued", "running")
    assert await scene.state() == "assigned", "nobody is to go on with it"
    if left is not None:
        with pytest.raises(FenceLost):
            await scene.commit(left, append=(Say({"text": "bye"}),), ending="finish", closing=True, owner=dead)
        assert not (await _committed(scene, accepted)).done, "a word of the dead finished the job"
    view = await scene.begin(owner)
    assert view is not None
    answers = tuple(Answer(row.call, "unknown") for row in view.rows)
    if answers:
        view = await scene.commit(view, append=answers, claim=True)
    assert not (await _committed(scene, accepted)).done
    await scene.reply(view)
    assert (await _committed(scene, accepted)).state == "succeeded"


@pytest.mark.spec("I16")
@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_a_job_that_was_stopped_or_broke_never_says_that_it_succeeded(scene: Scene, ending: str) -> None:
    owner = await scene.worker()
    accepted = await scene.say()
    view = await scene.start(owner)
    view = await scene.commit(view, append=(Say({"text": "half an answer"}),))
    if ending == "cancelled":
        await scene.control("cancel")
        await scene.dispatch()
        await scene.commit(view, ending="finish", closing=True)
    else:
        failure = {"code": "internal", "message": "it broke", "retryable": False, "ref": None}
        await scene.commit(view, ending="finish", closing=True, failure=failure)
    assert (await _committed(scene, accepted)).state == ending
    assert [r.outcome for r in await scene.log() if r.type == "turn/end"] == [ending]


@pytest.mark.spec("rival-7")
@pytest.mark.parametrize("stuck", ["its worker died", "its worker never began", "its cancel was never heard", "its call is never answered"])
async def test_recovering_a_stuck_session_answers_all_that_waits_in_it(scene: Scene, stuck: str) -> None:
    dead = await scene.worker()
    await scene.say("first")
    await scene.dispatch()
    if stuck == "its worker never began":
        assert await scene.take(dead) is not None
    else:
        view = await scene.begin(dead)
        assert view is not None
        if stuck == "its call is never answered":
            waits = call(view, 0, "callback", awaited=True)
            await scene.park(await scene.ask(view, waits), waits.id)
    for i in range(8):
        await scene.say(f"{i}", mode="follow_up" if i % 2 else "steer", user="bob")
    await scene.dispatch()
    if stuck == "its worker died":
        await scene.tick(dead)
    elif stuck == "its cancel was never heard":
        await scene.control("cancel")
        await scene.dispatch()
    # Whatever holds it has a deadline: begin-by, the overdue cancel, the call's own.
    await scene.pass_ms(DAY_MS + 1 if stuck == "its call is never answered" else 10_001)
    await scene.tick()
    alive = await scene.worker()
    await scene.dispatch()
    while (await scene.state()) != "idle":
        view = await scene.begin(alive)
        assert view is not None, f"{stuck}: it is {await scene.head()}"
        await scene.commit(view, ending="finish", closing=True) if view.cancel else await scene.reply(view)
        await scene.dispatch()
    facts = await scene.facts()
    assert (facts["head"]["q"], facts["wakers"], facts["undelayed"], facts["delayed"]) == (0, 0, 0, 0)
    told = [entry for entry in await scene.entries() if entry in {str(i) for i in range(8)}]
    assert sorted(told) == [str(i) for i in range(8)]
