"""What a user's module may declare, how it is loaded, and what a wrong one is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import turnyard
from turnyard import App, ConfigError, Limits, ToolContext, TurnContext, load_app, tool
from turnyard.app.models import open_models
from turnyard.errors import UnknownAgent
from turnyard.ports import Clock
from turnyard.testing import ManualClock, ScriptedModel, TestModel, call


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(lift=True, queue="gpu", timeout=60, idempotent=True)
async def render(scene: str) -> str:
    """Render."""
    return scene


@tool(park=5)
async def order(part: str) -> str:
    """Order."""
    return part


def refused(**options: Any) -> str:
    """What declaring an agent so is answered."""
    declared: dict[str, Any] = {"model": "openai:x"} | options
    with pytest.raises(ConfigError) as caught:
        App().agent(declared.pop("name", "a"), **declared).check()
    return str(caught.value)


# -- declaring


@pytest.mark.spec("turn-44")
@pytest.mark.parametrize("name", ["", "A", "1a", "a b", "a.b", "x" * 64, "ä"])
def test_a_name_that_cannot_be_used_everywhere_is_refused(name: str) -> None:
    assert "1 to 63 of a-z" in refused(name=name)


@pytest.mark.spec("turn-44")
def test_a_declaration_that_could_not_run_is_refused_when_it_is_made() -> None:
    assert "is no tool; put @tool above" in refused(tools=[len])
    assert "two tools are called add" in refused(tools=[add, add])
    assert "mode='shout' is not one of" in refused(mode="shout")
    assert "strategy='magic' is not one of" in refused(strategy="magic")
    assert "model= is 'provider:NAME'" in refused(model=())
    assert "model= is 'provider:NAME'" in refused(model=[3])
    assert "terminal_tool='leave' is not among its tools (add)" in refused(terminal_tool="leave", tools=[add])
    assert "has no JSON form" in refused(output=App)
    assert "pool 'GPU'" in refused(pool="GPU")


@pytest.mark.parametrize(("limit", "value"), [("parallel_tools", 0), ("paid_attempts", 0), ("tool_calls", -2), ("tokens", -5)])
def test_a_limit_that_makes_no_sense_is_refused(limit: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{limit}={value}"):
        Limits(**{limit: value})


def test_two_agents_of_one_name_are_refused_also_when_an_app_is_included() -> None:
    app, other = App(), App()
    app.agent("a", model="openai:x")
    other.agent("a", model="openai:x")
    with pytest.raises(ConfigError, match="two agents are called a"):
        app.agent("a", model="openai:y")
    with pytest.raises(ConfigError, match="one of the app that is included"):
        app.include(other)


def test_an_included_app_brings_its_agents_once() -> None:
    app, other = App(), App()
    other.agent("b", model="openai:x")
    app.agent("a", model="openai:x")
    app.include(other)
    app.include(other)
    assert [one.name for one in app] == ["a", "b"]
    assert app["b"].home is other
    with pytest.raises(UnknownAgent, match="no agent 'c'; it has a, b"):
        app["c"]


def test_a_tool_may_be_made_for_one_agent_alone() -> None:
    agent = App().agent("a", model="openai:x", tools=[add])

    @agent.tool
    async def near() -> str:
        """Near."""
        return "here"

    @agent.tool(lift=True)
    async def far() -> str:
        """Far."""
        return "there"

    assert {name: one.kind for name, one in agent.tools.items()} == {"add": "plain", "near": "plain", "far": "lift"}
    with pytest.raises(ConfigError, match="two tools are called near"):
        agent.add(near)


# -- what others are told of an agent


def test_a_manifest_says_what_edges_and_relays_need() -> None:
    app = App()
    limits = Limits(model_calls=7, parallel_tools=3)
    app.agent("a", model=["fast", "openai:x"], tools=[add, render], pool="gpu", mode="collect", complete_when="settled", limits=limits)
    (manifest,) = app.manifests()
    assert (manifest.name, manifest.pool, manifest.mode, manifest.complete_when, manifest.models) == (
        "a",
        "gpu",
        "collect",
        "settled",
        ("fast", "openai:x"),
    )
    assert manifest.limits["model_calls"] == 7
    assert [(t.name, t.kind, t.queue, t.idempotent) for t in manifest.tools] == [
        ("add", "plain", None, False),
        ("render", "lift", "gpu", True),
    ]


def test_a_version_changes_with_the_declaration_and_only_with_it() -> None:
    def version(**options: Any) -> str:
        app = App()
        app.agent("a", **({"model": "openai:x", "tools": [add]} | options))
        return app.manifests()[0].version

    assert version() == version()
    assert len(version()) == 6
    assert len({version(), version(tools=[add, render]), version(limits=Limits(tokens=5)), version(pool="gpu")}) == 4
    assert version(roles={"artifact": lambda message: message}) != version()
    assert version(version="v7") == "v7"


def test_the_engine_is_told_how_long_each_kind_of_call_may_wait() -> None:
    table = App().agent("a", model="openai:x", tools=[add, render, order], limits=Limits(model_calls=0)).table()
    assert table.bounds.model_calls == 100
    assert {name: fact.timeout_ms for name, fact in table.tools.items()} == {"add": None, "render": 60_000, "order": 5000}
    assert (table.tools["render"].queue, table.tools["render"].idempotent) == ("gpu", True)


# -- running in this process


async def test_instructions_may_depend_on_the_turn() -> None:
    async def persona(ctx: TurnContext) -> str:
        return f"You help {ctx.user} of {ctx.tenant} with {ctx.deps}."

    model = ScriptedModel(["hi"])
    talk = App().agent("a", model=model, instructions=persona).local(deps="cars", user="u7")
    await talk.prompt("hello")
    assert model.requests[0].messages[0] == {"role": "system", "content": "You help u7 of default with cars."}


async def test_deps_come_from_the_lifespan_of_the_app_that_declared_the_agent() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_app: App) -> AsyncGenerator[str]:
        events.append("open")
        yield "the pool"
        events.append("close")

    @tool
    async def which(ctx: ToolContext[str]) -> str:
        """Say the deps."""
        return ctx.deps

    home, app = App(lifespan=lifespan), App()
    agent = home.agent("a", model=TestModel(), tools=[which])
    home.agent("b", model=TestModel())
    app.include(home)
    app.agent("c", model=TestModel())
    assert (await agent.run("hi")).text == "the pool"
    assert events == ["open", "close"]
    with agent.override(deps="a fake"):
        assert (await agent.run("hi")).text == "a fake"
    assert (await agent.run("hi")).text == "the pool"
    async with app.running() as deps:
        assert deps == {"a": "the pool", "b": "the pool", "c": None}
    assert events == ["open", "close"] * 3


async def test_an_override_holds_inside_its_block_only() -> None:
    agent = App().agent("a", model=TestModel(text="real"), tools=[add])
    with agent.override(model=TestModel([], text="outer")):
        with agent.override(model=TestModel([], text="inner"), deps=1):
            assert (await agent.run("hi")).text == "inner"
        assert (await agent.run("hi")).text == "outer"
    assert (await agent.run("hi")).text == "real"


class Answer(BaseModel):
    text: str
    ticket: str | None = None


@dataclass
class Point:
    x: int


async def test_typed_output_is_given_as_its_type_and_corrected_until_it_fits() -> None:
    fenced = '```json\n{"text": "done", "ticket": "T1"}\n```'
    model = ScriptedModel(["done", fenced])
    agent = App().agent("a", model=model, output=Answer)
    result = await agent.run("hi")
    assert result.output == Answer(text="done", ticket="T1")
    assert "JSON Schema" in model.requests[0].messages[0]["content"]
    assert model.requests[0].settings["response_format"]["json_schema"]["schema"]["title"] == "Answer"
    assert "does not fit the required output" in model.requests[1].messages[-1]["content"]
    assert (await App().agent("a", model=ScriptedModel(['{"x": 3}']), output=Point).run("hi")).output == Point(3)


async def test_the_model_for_tests_answers_with_the_declared_type() -> None:
    agent = App().agent("a", model="openai:x", output=Answer, tools=[add])
    with agent.override(model=TestModel(call_tools=["add"])):
        result = await agent.run("hi")
    assert isinstance(result.output, Answer)
    assert result.calls[0].name == "add"


async def test_typed_output_that_never_fits_fails_the_turn() -> None:
    result = await App().agent("a", model=ScriptedModel(["no", "no", "no", "no"]), output=Answer).run("hi")
    assert (result.state, (result.error or {})["code"]) == ("failed", "output_invalid")


async def test_a_tool_knows_whose_call_it_serves_and_its_key_stays_the_same() -> None:
    seen: list[ToolContext[Any]] = []

    @tool
    async def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        seen.append(ctx)
        await ctx.progress(0.5, "half")
        return "x"

    agent = App().agent("a", model=ScriptedModel([call("look"), "done"]), tools=[look])
    result = await agent.local(user="u7").prompt("hi")
    assert (seen[0].user, seen[0].agent, seen[0].tenant) == ("u7", "a", "default")
    assert seen[0].call_id == result.calls[0].id
    assert len(seen[0].idempotency_key) > 20


# -- models


async def test_models_of_the_app_are_looked_for_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text("replies:\n  - text: from the file\n")
    (tmp_path / "mine.py").write_text('from turnyard import App\napp = App()\napp.agent("a", model="scripted:hello.yaml")\n')
    app = load_app(f"{tmp_path}/mine.py:app")
    assert (await app["a"].run("hi")).text == "from the file"


async def test_a_model_name_that_nobody_gave_a_meaning_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="model 'fast' is no provider:NAME"):
        await App().agent("a", model="fast").run("hi")


async def test_a_name_in_the_settings_stands_for_one_or_several_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(f"replies:\n  - text: {name}\n")
    (tmp_path / "turnyard.yaml").write_text('models: {smart: ["scripted:one.yaml", "scripted:two.yaml"]}\n')
    clock: Clock = ManualClock()
    async with open_models(["smart"], base_dir=tmp_path, clock=clock) as models:
        assert len(models) == 2


# -- loading


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, in which nothing that was imported before counts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


GOOD = 'from turnyard import App\napp = App()\napp.agent("a", model="openai:x")\n'


def fault(spec: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_app(spec)
    return str(caught.value)


def test_an_app_is_loaded_from_a_module_or_a_file(here: Path) -> None:
    (here / "userpkg").mkdir()
    (here / "userpkg" / "mod.py").write_text(GOOD)
    (here / "userfile.py").write_text("from helper_of_user import NAME\n" + GOOD)
    (here / "helper_of_user.py").write_text("NAME = 1\n")
    assert load_app("userpkg.mod:app").spec == "userpkg.mod:app"
    assert load_app(f"{here}/userfile.py:app").base_dir == here
    assert load_app("userfile.py:app") is load_app(f"{here}/userfile.py:app")
    import userfile  # pyright: ignore[reportMissingImports]

    assert load_app("userfile.py:app") is userfile.app


def test_two_files_of_one_name_are_two_apps(here: Path) -> None:
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name / "samename.py").write_text(GOOD.replace('"a"', f'"{name}"'))
    assert [list(load_app(f"{name}/samename.py:app").agents) for name in ("a", "b")] == [["a"], ["b"]]


@pytest.mark.parametrize("spec", ["app", "app:", ":app", ""])
def test_what_names_no_app_is_told_the_form(spec: str) -> None:
    assert "write MOD:APP" in fault(spec)


def test_a_module_or_file_that_is_not_there_is_named_with_where_it_was_looked_for(here: Path) -> None:
    assert f"no module 'nowhere.to_be' in {here}" in fault("nowhere.to_be:app")
    assert "path/to/nowhere/to_be.py:app" in fault("nowhere.to_be:app")
    assert "missing.py: no such file" in fault("missing.py:app")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1\nraise ValueError('bad value')\n", ["ValueError: bad value", "broken.py, line 2"]),
        ("import not_installed_at_all\n", ["not_installed_at_all", "broken.py, line 1", "install what provides 'not_installed_at_all'"]),
        ("def f(:\n", ["broken.py, line 1", "correct the syntax"]),
        ("raise BaseException('of no class')\n", ["BaseException: of no class", "broken.py, line 1"]),
        ("raise SystemExit(1)\n", ["SystemExit: 1", '__name__ == "__main__"']),
        (
            "from turnyard import App\nApp().agent('A', model='x')\n",
            ["agent 'A': a name is", "broken.py, line 2", "correct the declaration"],
        ),
    ],
)
@pytest.mark.parametrize("form", ["broken.py:app", "broken:app"])
def test_a_module_that_fails_is_told_where_and_why(here: Path, source: str, says: list[str], form: str) -> None:
    (here / "broken.py").write_text(source)
    told = fault(form)
    assert all(part in told for part in says), told
    assert "broken" not in sys.modules


def test_a_module_without_the_app_is_told_what_it_has(here: Path) -> None:
    (here / "other.py").write_text(GOOD + "thing = 3\nempty = App()\n")
    assert "no 'main'; it has app, empty" in fault("other:main")
    assert "a 'thing' that is a int, not an App" in fault("other:thing")
    assert "the app has no agents; declare one with empty.agent(" in fault("other:empty")
    (here / "bare.py").write_text("x = 1\n")
    assert "it makes no App; write app = App()" in fault("bare:app")


# -- the package


def test_importing_the_package_brings_in_nothing_heavy() -> None:
    heavy = "{'fastapi', 'arq', 'redis', 'uvicorn', 'pydantic', 'httpx', 'orjson', 'asyncio', 'typer', 'rich', 'yaml'}"
    code = f"import sys; import turnyard; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_declaring_an_app_needs_no_server_library() -> None:
    heavy = "{'fastapi', 'arq', 'redis', 'uvicorn', 'httpx', 'typer', 'rich', 'yaml', 'mcp', 'mcp_types', 'httpx2'}"
    code = (
        f"import sys; from turnyard import MCP, App, tool, Park, ToolContext; MCP('http://a.b'); print(sorted({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_every_public_name_is_there_and_no_other() -> None:
    for name in turnyard.__all__:
        assert getattr(turnyard, name).__name__ == name
    assert sorted(turnyard.__dir__()) == sorted(turnyard.__all__), "ruff keeps them in order"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        turnyard.nothing  # noqa: B018
