"""Turns of the real engine on a real server whose clock is held: what they wait for, and what bounds them, wherever they run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from tests.protocol.scene import Scene
from turnyard import App, Limits, Stopping, tool
from turnyard.app.calls import Hands
from turnyard.engine.effects import AskModel, Effect
from turnyard.engine.runner import Model, Performer
from turnyard.engine.turn import commit_after, next_effect
from turnyard.errors import ModelError
from turnyard.ports import AskedCall, Delta, Done, ModelRequest
from turnyard.records.commit import TurnView
from turnyard.state import fleet
from turnyard.state.flows import set_limits

Said = Done | ModelError


@tool
async def look(n: int) -> str:
    """Look at something."""
    return f"seen {n}"


def looks(n: int) -> Done:
    return Done("", (AskedCall("p", "look", f'{{"n": {n}}}'),), {"input_tokens": 10, "output_tokens": 1})


@dataclass
class Told:
    """A model that says what it is told to, one thing after the other, and keeps what it was shown."""

    says: list[Said] = field(default_factory=list[Said])
    always: Callable[[int], Said] | None = None
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        self.requests.append(request)
        said = self.says.pop(0) if self.says else self.always(len(self.requests)) if self.always else Done("fine")
        if isinstance(said, ModelError):
            raise said
        yield said

    async def aclose(self) -> None:
        pass


@dataclass
class Yard:
    """An agent's turns on a scene, driven step by step as workers do, each step on any of them."""

    scene: Scene
    model: Told
    app: App = field(default_factory=App)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        agent = self.app.agent("bot", model="openai:none", tools=[look], limits=self.limits)
        self.table = agent.table()
        self.performer = Performer(agent.means([Model(self.model, "told")], Hands("bot", agent.toolbox(), None)))

    async def effect(self, view: TurnView) -> TurnView:
        """Do the next thing of a turn."""
        effect, result = await self.performer.perform(view, next_effect(view, self.table))
        return await self.scene.commit(view, commit_after(view, effect, result=result, facts=self.table))

    async def run(self, view: TurnView) -> TurnView:
        """Go on until the turn ends or parks."""
        while not view.ended:
            view = await self.effect(view)
        return view

    async def hand_on(self, view: TurnView, owner: str) -> TurnView:
        """Have the turn go on at another worker, which knows nothing of it."""
        await self.effect(replace(view, drain=True))
        return await self.scene.start(owner)

    def due(self, view: TurnView) -> Effect:
        return next_effect(view, self.table)


async def later(scene: Scene, ms: int) -> None:
    """Let time pass while all workers live on."""
    for _ in range(ms // 1000):
        await scene.pass_ms(1000)
        for owner in scene.owners:
            await fleet.beat(scene.yard.shards[0], owner, held=-1)
    await scene.pass_ms(ms % 1000)
    await scene.tick()


async def events(scene: Scene, *types: str, session: str = "s") -> list[dict[str, Any]]:
    return [{"type": r.type} | r.body for r in await scene.log(session) if r.type in types]


def busy(after_s: float | None = None) -> ModelError:
    return ModelError("busy", retryable=True, retry_after_s=after_s)


RETRY = ("retry/start", "retry/end")


@pytest.mark.spec("runner-22")
async def test_a_turn_that_waits_to_ask_again_holds_no_slot_and_goes_on_at_another_worker(scene: Scene) -> None:
    await set_limits(scene.yard.shards[0], max_concurrent_turns=1)
    first, second = await scene.worker(), await scene.worker()
    yard = Yard(scene, Told([busy(after_s=30), Done("a is served")]))
    accepted = await scene.say("a", session="a")
    await yard.run(await scene.start(first, "a"))
    assert (await scene.state("a"), await scene.running()) == ("parked", 0)
    beside = Yard(scene, Told([Done("b is served")]))
    served = await scene.say("b", session="b")
    await beside.run(await scene.start(second, "b"))
    assert (await scene.job(served)).state == "succeeded"
    await later(scene, 29_999)
    assert await scene.state("a") == "parked", "not earlier than the server asked"
    await later(scene, 7502)
    await yard.run(await scene.start(second, "a"))
    job = await scene.job(accepted)
    assert (job.state, len(yard.model.requests)) == ("succeeded", 2)
    started, ended = await events(scene, *RETRY, session="a")
    assert (started["attempt"], started["max_attempts"], started["error_message"]) == (1, 2, "busy")
    assert ended == {"type": "retry/end", "success": True, "attempt": 1, "final_error": None}
    assert yard.model.requests[0].key == yard.model.requests[1].key


@pytest.mark.spec("runner-22")
async def test_a_cancel_during_the_wait_ends_it_at_once_and_in_the_log(scene: Scene) -> None:
    owner = await scene.worker()
    yard = Yard(scene, Told([busy()]))
    accepted = await scene.say()
    await yard.run(await scene.start(owner))
    await scene.cancel()
    await yard.run(await scene.start(owner))
    assert ((await scene.job(accepted)).state, await scene.state()) == ("cancelled", "idle")
    started, ended = await events(scene, *RETRY)
    assert (started["attempt"], ended) == (1, {"type": "retry/end", "success": False, "attempt": 1, "final_error": "cancelled"})
    assert len(yard.model.requests) == 1


@pytest.mark.spec("runner-22")
async def test_what_fails_every_time_fails_the_job_after_its_paid_attempts_and_the_next_turn_counts_anew(scene: Scene) -> None:
    owner = await scene.worker()
    yard = Yard(scene, Told([busy()] * 3 + [busy(), Done("at last")]))
    for state, retries in (("failed", 2), ("succeeded", 1)):
        accepted = await scene.say()
        await yard.run(await scene.start(owner))
        for _ in range(retries):
            assert await scene.state() == "parked"
            await later(scene, 5001)
            await yard.run(await scene.start(owner))
        assert (await scene.job(accepted)).state == state
    told = await events(scene, *RETRY)
    assert [(e["type"], e["attempt"]) for e in told] == [
        ("retry/start", 1), ("retry/start", 2), ("retry/end", 2), ("retry/start", 1), ("retry/end", 1),
    ]  # fmt: skip
    assert [e["success"] for e in told if "success" in e] == [False, True]


async def test_what_arrives_during_the_wait_is_shown_with_the_next_try_and_does_not_hurry_it(scene: Scene) -> None:
    owner = await scene.worker()
    yard = Yard(scene, Told([busy()]))
    await scene.say("one")
    await yard.run(await scene.start(owner))
    await scene.say("two")
    await scene.dispatch()
    assert await scene.state() == "parked"
    await later(scene, 2501)
    await yard.run(await scene.start(owner))
    assert [m["content"] for m in yard.model.requests[-1].messages] == ["one", "two"]


@pytest.mark.spec("runner-20", "turn-47")
async def test_model_calls_are_counted_over_all_workers_and_whatever_is_said_meanwhile(scene: Scene) -> None:
    owners = [await scene.worker(), await scene.worker()]
    yard = Yard(scene, Told(always=looks), limits=Limits(model_calls=6))
    accepted = await scene.say("go")
    view, moves = await scene.start(owners[0]), 0
    while not view.ended:
        if isinstance(yard.due(view), AskModel):
            await scene.say("and this, too")
            moves += 1
            view = await yard.hand_on(view, owners[moves % 2])
        view = await yard.effect(view)
    job = await scene.job(accepted)
    assert (job.state, (job.error or {})["code"], len(yard.model.requests)) == ("failed", "step_limit", 6)


@pytest.mark.spec("runner-20")
@pytest.mark.parametrize(("limit", "asks"), [({"tokens": 33}, 3), ({"tokens": -1, "model_calls": 4}, 4), ({"tool_calls": 2}, 3)])
async def test_every_bound_holds_over_a_change_of_workers(scene: Scene, limit: dict[str, Any], asks: int) -> None:
    owners = [await scene.worker(), await scene.worker()]
    yard = Yard(scene, Told(always=looks), limits=Limits(**limit))
    accepted = await scene.say("go")
    view = await scene.start(owners[0])
    for n in range(50):
        if isinstance(yard.due(view), AskModel):
            view = await yard.hand_on(view, owners[n % 2])
        view = await yard.effect(view)
        if view.ended:
            break
    assert ((await scene.job(accepted)).state, len(yard.model.requests)) == ("failed", asks)


@pytest.mark.spec("runner-20")
async def test_the_time_a_turn_runs_is_counted_by_the_servers_clock_and_its_waits_are_not(scene: Scene) -> None:
    owners = [await scene.worker(), await scene.worker()]
    yard = Yard(scene, Told([busy(after_s=50)], always=looks), limits=Limits(active=10))
    accepted = await scene.say("go")
    await yard.run(await scene.start(owners[0]))
    await later(scene, 63_000)
    view, asked_at = await scene.start(owners[1]), list[int]()
    while not view.ended:
        if isinstance(yard.due(view), AskModel):
            asked_at.append(view.active_ms)
            await scene.pass_ms(4000)
        view = await yard.effect(view)
    assert asked_at == [0, 4000, 8000]
    assert ((await scene.job(accepted)).error or {})["code"] == "budget_exceeded"


@pytest.mark.spec("turn-48")
async def test_close_to_its_limit_the_model_is_told_with_one_request_wherever_the_turn_runs(scene: Scene) -> None:
    owners = [await scene.worker(), await scene.worker()]
    yard = Yard(scene, Told(always=looks), limits=Limits(model_calls=10, soft_ratio=0.4))
    await scene.say("go")
    view = await scene.start(owners[0])
    for n in range(100):
        if isinstance(yard.due(view), AskModel):
            view = await yard.hand_on(view, owners[n % 2])
        view = await yard.effect(view)
        if view.ended:
            break
    told = ["close to its limit" in str(r.messages[0].get("content")) for r in yard.model.requests]
    assert told == [False] * 4 + [True] + [False] * 5


@pytest.mark.spec("runner-19", "runner-21")
async def test_steps_segments_and_tokens_are_counted_on_by_whoever_takes_the_turn_over(scene: Scene) -> None:
    app, heard = App(), list[tuple[int, int, int, int]]()

    @app.hook("turn_stopping")
    def more(_ctx: Any, stopping: Stopping) -> None:
        left = stopping.budget
        heard.append((stopping.steps, stopping.segments, left.continuations, left.tokens))
        stopping.go_on(f"go on, {stopping.segments}")

    owners = [await scene.worker(), await scene.worker()]
    done = Done("done", usage={"input_tokens": 10, "output_tokens": 1})
    yard = Yard(scene, Told([looks(1), done, done, done]), app, Limits(continuations=2, tokens=1000))
    accepted = await scene.say("go")
    view, moves = await scene.start(owners[0]), 0
    while not view.ended:
        moves += 1
        view = await yard.effect(view)
        if not view.ended and not view.rows:
            view = await yard.hand_on(view, owners[moves % 2])
    assert heard == [(2, 0, 2, 978), (3, 1, 1, 967), (4, 2, 0, 956)]
    assert ((await scene.job(accepted)).state, len(yard.model.requests)) == ("succeeded", 4)
    told = await events(scene, "turn/continue")
    assert [(e["segment"], e["reason"], e["steps"], e["messages"]) for e in told] == [
        (1, "no_calls", 2, ["go on, 0"]), (2, "no_calls", 3, ["go on, 1"]),
    ]  # fmt: skip
    # each request was built by a worker that read the log from its beginning
    for before, after in pairwise(yard.model.requests):
        assert list(after.messages)[: len(before.messages)] == list(before.messages)
