"""The tools an agent has now: its own and those of its providers, in one order, whoever fails, comes or goes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tools.catalogues import Catalogue, Listed, made
from turnyard import App, ConfigError, Pack, tool
from turnyard.app.calls import Hands
from turnyard.app.toolbox import KEEP_S, Toolbox
from turnyard.engine import transitions
from turnyard.engine.effects import Effect, RunTool, ToolTable
from turnyard.engine.memory import MemorySession
from turnyard.engine.runner import Means, Model, Performer
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import ModelRequest
from turnyard.providers.openai_wire import encode_request
from turnyard.records.log import RESULT
from turnyard.testing import ManualClock, ScriptedModel, call
from turnyard.tools.names import NameFilter

NAMES = st.lists(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), max_size=8)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def box(*providers: Catalogue, own: Any = (), clock: ManualClock | None = None, names: NameFilter | None = None) -> Toolbox:
    """A toolbox whose providers answer at once or never."""
    return Toolbox(own, providers, clock=clock or ManualClock(), names=names, patience_s=0.01)


def offered(tools: Toolbox) -> list[str]:
    """The names a model is offered."""
    return [spec.name for spec in tools.visible()]


async def work(memory: MemorySession, table: ToolTable, means: Means, *, dies: Callable[[Effect], bool] = lambda _effect: False) -> None:
    """Run the session's turn as one worker does, until it is over or the worker dies in front of an effect."""
    view = transitions.begin(memory)
    assert view is not None
    performer = Performer(means)
    await performer.resume(view)
    while not view.ended:
        effect = next_effect(view, table)
        if dies(effect):
            memory.state = "ready"
            return
        done, result = await performer.perform(view, effect)
        view = transitions.commit(memory, view, commit_after(view, done, result=result, facts=table))


# -- names and order


@given(own=NAMES, dynamic=st.lists(NAMES, max_size=3), seed=st.randoms())
async def test_the_same_tools_make_the_same_request_byte_for_byte_in_whatever_order_they_come(own: Any, dynamic: Any, seed: Any) -> None:
    requests: set[bytes] = set()
    for _ in range(2):
        providers = [Catalogue(Listed({n: made(n, said=f"{i} {n}") for n in names}), name=f"p{i}") for i, names in enumerate(dynamic)]
        for provider in providers:
            shuffled = list(provider.listed.tools.items())
            seed.shuffle(shuffled)
            provider.listed.tools = dict(shuffled)
        mine = [made(name) for name in dict.fromkeys(own)]
        seed.shuffle(mine)
        tools = box(*providers, own=mine)
        await tools.refresh()
        assert offered(tools) == sorted({*own, *(name for names in dynamic for name in names)})
        requests.add(encode_request(ModelRequest("m", ({"role": "user", "content": "hi"},), tools.visible())))
        for one in mine:
            assert tools.get(one.name) is one
    assert len(requests) == 1


async def test_a_tool_whose_name_is_taken_is_left_out_and_said_so_once(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Catalogue(name="first"), Catalogue(name="second")
    first.listed.now_has("add", "find", "look")
    second.listed.now_has("find")
    tools = box(first, second, own=[add])
    for _ in range(2):
        await tools.refresh(force=True)
    assert offered(tools) == ["add", "find", "look"]
    assert tools.get("add") is add
    assert tools.get("find") is first.listed.tools["find"]
    left_out = [(r.__dict__["provider"], r.__dict__["tool"]) for r in caplog.records if "left out" in r.message]
    assert left_out == [("first", "add"), ("second", "find")]


async def test_of_two_names_that_become_one_the_first_by_its_own_name_stays() -> None:
    for order in (("a.b", "a-b"), ("a-b", "a.b")):
        listed = Listed({given: made("a_b", said=given) for given in order})
        for given_name, one in listed.tools.items():
            one.given = given_name
        tools = box(Catalogue(listed))
        await tools.refresh()
        assert tools.get("a_b") is listed.tools["a-b"]


# -- who may be called


@pytest.mark.parametrize(
    ("allow", "deny", "left"),
    [(("crm_*",), (), ["crm_get"]), ((), ("crm_*",), ["add"]), ((), (), ["add", "crm_get"]), (("crm_?et", "nobody"), (), ["crm_get"])],
)
async def test_only_tools_that_the_agent_may_use_are_offered(allow: tuple[str, ...], deny: tuple[str, ...], left: list[str]) -> None:
    provider = Catalogue()
    provider.listed.now_has("crm_get")
    tools = box(provider, own=[add], names=NameFilter(allow, deny))
    await tools.refresh()
    assert offered(tools) == left == list(tools.facts)


async def test_a_call_of_a_tool_that_the_agent_may_not_use_is_told_that_it_is_not_available() -> None:
    agent = App().agent("a", model=ScriptedModel([[call("add", a=1, b=2)], "well"]), tools=[add, made("look")], deny=["a*"])
    result = await agent.run("go")
    assert (result.calls[0].content, result.calls[0].outcome) == ("the tool 'add' is not available; not executed", "denied")


def test_an_agent_says_what_it_may_use_or_what_it_may_not() -> None:
    with pytest.raises(ConfigError, match="drop one"):
        App().agent("a", model="openai:x", allow=["a"], deny=["b"])
    with pytest.raises(ConfigError, match="lists of globs"):
        App().agent("a", model="openai:x", allow="crm_*")


# -- what an agent is given


async def test_an_agent_is_given_tools_packs_lists_and_providers() -> None:
    provider = Catalogue(name="crm")
    provider.listed.now_has("find")
    pack = Pack("extra", [made("x"), made("y")])
    agent = App().agent("a", model=ScriptedModel([[call("find")], "found"]), tools=[add, [made("c"), made("b")], pack, provider])
    assert list(agent.tools) == ["add", "c", "b", "x", "y"]
    assert agent.manifest().providers == ("crm",)
    assert [facts.name for facts in agent.manifest().tools] == list(agent.tools)
    assert pack.first.name == "x"
    assert (await agent.run("go")).calls[0].content == "find"
    assert provider.closed == 1


def test_a_pack_of_something_else_or_a_provider_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="pack p: 3 is no tool"):
        Pack("p", [3])
    with pytest.raises(ConfigError, match="pack p has no tools"):
        _ = Pack("p", []).first
    with pytest.raises(ConfigError, match="two providers of tools are called crm"):
        App().agent("a", model="openai:x", tools=[Catalogue(), Catalogue()])


async def test_a_provider_that_several_use_is_closed_when_the_last_one_is_done() -> None:
    app, provider = App(), Catalogue()
    boxes = [app.agent(name, model="openai:x", tools=[provider]).toolbox() for name in "ab"]
    async with boxes[0].opened():
        async with boxes[1].opened():
            pass
        assert provider.closed == 0
    assert provider.closed == 1


# -- providers that come, go, fail and sleep


@pytest.mark.spec("runner-37")
async def test_a_changed_list_is_seen_by_every_worker_at_its_next_look() -> None:
    server = Listed()
    server.now_has("old")
    workers = [box(Catalogue(server)) for _ in range(2)]
    for one in workers:
        assert [spec.name for spec in await one.offer()] == ["old"]
    server.now_has("new")
    for one in workers:
        assert [spec.name for spec in await one.offer()] == ["new"]


async def test_what_did_not_change_is_not_listed_again() -> None:
    provider = Catalogue()
    tools = box(provider)
    for _ in range(3):
        await tools.offer()
    await tools.look_up(["read_entry"])
    assert provider.asked == 1


@pytest.mark.spec("runner-37")
@pytest.mark.parametrize("fault", ["raises", "hangs", "lists nonsense"])
async def test_a_provider_that_fails_harms_nobody_else_and_is_asked_again_later(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    broken, sound = Catalogue(name="broken"), Catalogue(name="sound")
    broken.listed.now_has("lost")
    sound.listed.now_has("find")
    if fault == "raises":
        broken.fault = OSError("no route")
    elif fault == "hangs":
        broken.hangs = True
    else:
        broken.listed.tools = {"x": "a string"}  # pyright: ignore[reportAttributeAccessIssue]
    tools = box(broken, sound, own=[add], clock=clock)
    for _ in range(3):
        assert [spec.name for spec in await tools.offer()] == ["add", "find"]
    await tools.look_up(["lost"])
    assert broken.asked == 1
    assert [r.__dict__["provider"] for r in caplog.records if r.levelno == logging.WARNING] == ["broken"]
    broken.fault, broken.hangs = None, False
    broken.listed.now_has("lost")
    await clock.advance(1.0)
    assert [spec.name for spec in await tools.offer()] == ["add", "find", "lost"]


async def test_a_provider_that_stays_away_is_warned_of_once_and_its_return_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock, provider = ManualClock(), Catalogue()
    provider.fault = OSError("no route")
    tools = box(provider, clock=clock)
    for _ in range(5):
        await tools.offer()
        await clock.advance(61)
    provider.fault = None
    await tools.offer()
    assert provider.asked == 6
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]


async def test_a_provider_that_cannot_count_its_changes_is_listed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Catalogue()
    provider.listed.now_has("find")
    monkeypatch.setattr(Catalogue, "changed", property(lambda _self: 1 // 0))
    tools = box(provider)
    for _ in range(2):
        assert [spec.name for spec in await tools.offer()] == ["find"]


async def test_the_tools_of_a_provider_that_begins_to_fail_stay_a_while() -> None:
    clock, provider = ManualClock(), Catalogue()
    provider.listed.now_has("find")
    tools = box(provider, clock=clock)
    await tools.refresh()
    provider.fault = OSError("gone")
    provider.listed.changes += 1
    await clock.advance(KEEP_S)
    assert [spec.name for spec in await tools.offer()] == ["find"]
    await clock.advance(2.0)
    assert await tools.offer() == ()


async def test_one_who_gives_up_waiting_for_a_provider_does_not_take_its_answer_from_others() -> None:
    provider = Catalogue()
    provider.listed.now_has("find")
    tools = box(provider)
    hasty, patient = (asyncio.ensure_future(tools.offer()) for _ in range(2))
    await asyncio.sleep(0)
    hasty.cancel()
    assert [spec.name for spec in await patient] == ["find"]
    assert provider.asked == 1


@pytest.mark.spec("runner-37")
async def test_a_tool_that_came_unannounced_is_found_when_it_is_called() -> None:
    provider = Catalogue(silent=True)
    provider.listed.now_has("old")

    @tool
    async def install() -> str:
        """Have the server get another tool."""
        provider.listed.now_has("new")
        return "installed"

    model = ScriptedModel([[call("install")], [call("new")], [call("old")], "done"])
    result = await App().agent("a", model=model, tools=[install, provider]).run("go")
    assert [made.content for made in result.calls][:2] == ["installed", "new"]
    assert result.calls[2].content == "ERROR: there is no tool 'old' any more; not executed. Tools: install, new"
    assert provider.asked == 3


@pytest.mark.spec("runner-37")
async def test_a_tool_that_went_between_its_call_and_the_worker_that_resumes_says_so() -> None:
    server = Listed()
    server.now_has("find")
    agent = App().agent("a", model="openai:x", tools=[add])
    model = Model(ScriptedModel([[call("add", a=1, b=1), call("find")], "done"]), "m")
    memory = MemorySession(ManualClock(), {"tenant": "t", "session": "s"})
    memory.accept({"text": "go"})
    workers = [box(Catalogue(server), own=[add]) for _ in range(2)]
    await asyncio.gather(*(one.refresh() for one in workers))
    first, second = ((agent.table(one), agent.means([model], Hands("a", one, None))) for one in workers)
    await work(memory, *first, dies=lambda effect: isinstance(effect, RunTool) and effect.name == "add")
    assert "find" in workers[0].tools
    server.now_has()
    await work(memory, *second)
    results = [r.body.get("content") for r in memory.log if r.type == RESULT]
    gone = "ERROR: there is no tool 'find' any more; not executed. Tools: add"
    assert results[1] == gone
    assert memory.log[-1].body["text"] == "done"


async def test_a_tool_that_goes_while_its_turn_runs_it_is_answered_as_gone() -> None:
    listed = Listed()
    listed.now_has("find")
    tools = box(Catalogue(listed))
    await tools.refresh()
    hands = Hands("a", tools, None)
    listed.now_has()
    await tools.refresh()
    answer: Any = await hands.run(None, RunTool(None, "find", {}, "k"))  # pyright: ignore[reportArgumentType]
    assert (answer.content, answer.is_error) == ("there is no tool 'find' any more; not executed.", True)
