"""A conversation at the terminal, through the running yard, or in this process with a model of one's own."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnyard.cli.api import with_client
from turnyard.cli.options import Config, Key, Url, settings_of
from turnyard.cli.output import say, write
from turnyard.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from turnyard.client import Client, JobHandle

HELP = "Ctrl-D or /quit leaves, Ctrl-C stops the answer, /new starts over"


def chat(
    agent: Annotated[str | None, typer.Argument(metavar="[AGENT]", help="The only one, when there is one.")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="S", help="Go on with this conversation.")] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="PROVIDER:NAME", help="Another model; runs in this process.")] = None,
    app: Annotated[
        str | None, typer.Option("--app", metavar="MOD:APP", help="With --model: where the agent is; else what is up here.")
    ] = None,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Talk to an agent."""
    if model is not None:
        _chat_here(agent, model, app or _app_that_is_up(config))
        return
    name = session or f"chat-{secrets.token_hex(4)}"

    async def talk(client: Client) -> None:
        who = agent or await _only_agent(client)
        say(f"{who} in session {name}. {HELP}.")
        while (text := await _ask()) is not None:
            await _turn(client, who, name, text)

    with_client(talk, url=url, key=key, config=config)


async def _turn(client: Client, agent: str, session: str, text: str) -> None:
    if text == "/new":
        await client.new(session)
        return
    handle = await client.submit(agent, text, session=session)
    showing = asyncio.create_task(_show(handle))
    try:
        await showing
    except (asyncio.CancelledError, KeyboardInterrupt):
        showing.cancel()
        await client.cancel(handle.id)
        say("\nstopped")


async def _show(handle: JobHandle) -> None:
    from turnyard.cli.follow import Printer, envelopes

    printer = Printer()
    async for event in envelopes(handle.events()):
        printer.show(event)


async def _ask() -> str | None:
    """Return the next line that says something, None at the end."""
    while True:
        try:
            text = (await asyncio.to_thread(input, "> ")).strip()
        except EOFError:
            write("")
            return None
        if text == "/quit":
            return None
        if text:
            return text


async def _only_agent(client: Client) -> str:
    names = sorted(str(found["name"]) for found in await client.agents())
    if len(names) != 1:
        raise InvalidRequest(f"say which agent: {', '.join(names)}" if names else "no agent is published; start one: turnyard up MOD:APP")
    return names[0]


def _app_that_is_up(config: Any) -> str:
    from turnyard.cli.state_dir import StateDir

    facts = StateDir(settings_of(config=config).state_dir).facts()
    if facts is None:
        raise InvalidRequest("with --model the agent runs in this process: say where it is with --app MOD:APP")
    return facts.apps[0]


def _chat_here(agent: str | None, model: str, spec: str) -> None:
    from turnyard.app import load_app
    from turnyard.lifecycle import run

    found = load_app(spec)
    names = sorted(manifest.name for manifest in found.manifests())
    who = agent or (names[0] if len(names) == 1 else "")
    if who not in names:
        raise NotFound(f"{spec} has no agent {who or 'that is the only one'}; it has {', '.join(names)}")

    async def talk() -> None:
        conversation = found[who].local(model=model)
        say(f"{who} with {model} in this process, nothing is kept. {HELP.split(',', maxsplit=1)[0]}.")
        while (text := await _ask()) is not None:
            write((await conversation.prompt(text)).text or "")

    run(talk())
