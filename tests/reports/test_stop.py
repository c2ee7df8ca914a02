"""A stop at each stage of a real turn: nothing starts any more, the job says so, and the session takes the next message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from tests.integration.conversation import TENANT, Talk, check_log
from tests.reports.deployment import Deployment
from turnyard.records.log import RESULT
from turnyard.state import ingress
from turnyard.testing import wait_until

pytestmark = [pytest.mark.xdist_group("deployment"), pytest.mark.timeout(120)]


@dataclass(frozen=True)
class Asked:
    """A message on its way: who sent it where, its job, and how much had run before it."""

    talk: Talk
    deployment: Deployment
    session: str
    job: str
    ran_before: int


Ready = Callable[[Asked], Awaitable[bool]]


async def _at_once(asked: Asked) -> bool:
    return True


async def _running(asked: Asked) -> bool:
    return await asked.talk.state(asked.session) == "running"


async def _waiting(asked: Asked) -> bool:
    return (await asked.talk.job(asked.job)).state == "waiting"


def _in(tool: str) -> Ready:
    async def ready(asked: Asked) -> bool:
        return tool in [what for what, _ in asked.deployment.app.trace()[asked.ran_before :]]

    return ready


# What is said, and when the stop comes.
STAGES: dict[str, tuple[str, Ready]] = {
    "as it is accepted": ("once stop_never", _at_once),
    "as its model answers": ("slowly", _running),
    "in a tool that waits": ("once stop_never", _in("once")),
    "in a tool that blocks its thread": ("sleepy 600", _in("sleepy")),
    "in the first call of a batch": ("batch stop_never", _in("once")),
    "while a call waits for its vendor": ("order stop_open", _waiting),
    "while a lifted call waits for its worker": ("render stop_never", _waiting),
}


@pytest.mark.spec("I15", "runner-16", "L30")
@pytest.mark.parametrize("stage", STAGES)
async def test_once_a_stop_is_done_no_tool_starts_and_the_next_message_is_answered(
    deployment: Deployment, visitor: Talk, stage: str
) -> None:
    said, ready = STAGES[stage]
    session = f"stop {stage}"
    deployment.app.open("stop_open")
    ran_before = len(deployment.app.trace())
    job = await visitor.say(session, said, complete_when="settled")
    asked = Asked(visitor, deployment, session, job, ran_before)
    await wait_until(lambda: ready(asked), description=f"the turn to be {stage}", timeout_s=30)
    assert (await ingress.cancel_job(visitor.yard, job, tenant=TENANT)).code == "accepted"
    assert (await visitor.done(job)).state == "cancelled"
    ran = deployment.app.trace()
    after = await visitor.done(await visitor.say(session, "hi"))
    assert (after.state, after.output and after.output["text"]) == ("succeeded", "hello")
    assert deployment.app.trace() == ran
    records = await visitor.log(session)
    check_log(records)
    assert "all done" not in " ".join(await visitor.story(session))
    if stage in ("in a tool that waits", "in the first call of a batch"):
        # The worker that ran it was told and closed it; it did not have to be taken away from one that does not listen.
        stopped = next(r.turn for r in records if r.turn)
        assert len({r.epoch for r in records if r.turn == stopped}) == 1
    if "batch" in stage:
        assert [r.outcome for r in records if r.type == RESULT] == ["cancelled"] * 3
    await wait_until(visitor.quiet, description="the slot to be free", timeout_s=30)


@pytest.mark.spec("I15", "runner-16")
async def test_a_stop_that_comes_after_the_end_is_late_and_stops_nothing(deployment: Deployment, visitor: Talk) -> None:
    job = await visitor.say("stop late", "hi")
    assert (await visitor.done(job)).state == "succeeded"
    late = await ingress.accept_control(visitor.yard, tenant=TENANT, session="stop late", control="cancel", event="stop-late")
    assert (late.code, (await ingress.cancel_job(visitor.yard, job, tenant=TENANT)).code) == ("late", "late")
    assert (await visitor.done(await visitor.say("stop late", "add 1 1"))).state == "succeeded"
