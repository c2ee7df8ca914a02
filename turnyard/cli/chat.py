"""A conversation at the terminal, through the running yard, or in this process with a model of one's own.

At a terminal one thing shows what the session does and another takes what is typed, so a line typed while the agent
works joins the running turn. From a pipe each line waits for the answer to the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnyard.cli.api import with_client
from turnyard.cli.approvals import me
from turnyard.cli.deciding import Deciding
from turnyard.cli.options import Config, Key, Url, settings_of
from turnyard.cli.output import say, write
from turnyard.errors import AlreadyFinished, InvalidRequest, NotFound, TurnyardError

if TYPE_CHECKING:
    from turnyard.client import Client

HELP = "/quit or Ctrl-D leaves, Ctrl-C stops the answer, /new starts over; what you type meanwhile joins the turn"


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
        talking = Conversation(client, who, name, user=settings_of(config=config).client.user)
        await (talking.at_terminal() if sys.stdin.isatty() else talking.from_pipe())

    with_client(talk, url=url, key=key, config=config)


class Lines:
    """What is typed, line by line. A thread of its own reads, so that nothing waits for the keyboard at the end."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # Not through sys.stdin: a thread that waits inside its buffer makes the interpreter crash when it ends.
        rest = b""
        while piece := os.read(sys.stdin.fileno(), 65_536):
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                self._give(line.decode("utf-8", "replace").strip())
        self._give(rest.decode("utf-8", "replace").strip())
        self._give(None)

    def _give(self, line: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever wanted to know
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)

    def leave(self) -> None:
        """End what is typed, as Ctrl-D does."""
        self._queue.put_nowait(None)

    async def next(self) -> str | None:
        """Return the next line that says something, None at the end."""
        while (line := await self._queue.get()) is not None:
            if line == "/quit":
                return None
            if line:
                return line
        return None


class Conversation:
    """One session at one terminal."""

    def __init__(self, client: Client, agent: str, session: str, *, user: str | None) -> None:
        self._client = client
        self._agent = agent
        self._session = session
        self._user = user
        self._deciding = Deciding(client, user or me())

    async def from_pipe(self) -> None:
        """Answer each line before the next is read."""
        from turnyard.cli.follow import Printer, envelopes

        lines, printer = Lines(), Printer()
        while (text := await lines.next()) is not None:
            if text == "/new":
                await self._client.new(self._session)
                continue
            # Done with its turn: a call that goes on in the background may take days, and the next line would wait for it.
            handle = await self._client.submit(self._agent, text, session=self._session, user=self._user, complete_when="turn")
            async for event in envelopes(handle.events()):
                printer.show(event)

    async def at_terminal(self) -> None:
        """Show what happens and take what is typed, both at once."""
        lines, position = Lines(), await self._position()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: stops.append(asyncio.ensure_future(self._stop(lines))))
        stops: list[asyncio.Future[None]] = []
        showing: asyncio.Task[None] | None = None
        try:
            while (text := await self._next_or_end(lines, showing)) is not None:
                await self._send(text)
                showing = showing or asyncio.create_task(self._show(position))
        finally:
            for task in (showing, *stops):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(t for t in (showing, *stops) if t is not None), return_exceptions=True)

    async def _next_or_end(self, lines: Lines, showing: asyncio.Task[None] | None) -> str | None:
        """Return the next line; what ended the showing is raised, because nothing would be seen any more."""
        reading = asyncio.ensure_future(lines.next())
        await asyncio.wait([t for t in (reading, showing) if t is not None], return_when=asyncio.FIRST_COMPLETED)
        if showing is not None and showing.done():
            reading.cancel()
            await showing
        return await reading

    async def _send(self, text: str) -> None:
        if text == "/new":
            await self._client.new(self._session)
            say("(a new history)")
            return
        if await self._deciding.take(text):
            return
        try:
            await self._client.submit(self._agent, text, session=self._session, user=self._user)
        except TurnyardError as error:
            say(f"not taken: {error}")

    async def _show(self, after: str | None) -> None:
        from turnyard.cli.follow import Printer, envelopes

        printer = Printer()
        async for event in envelopes(self._client.events(self._session, after)):
            printer.show(event)
            self._deciding.see(event)

    async def _position(self) -> str | None:
        """Return where the session's events end now, None for a session that is new."""
        try:
            await self._client.session(self._session)
        except NotFound:
            return None
        async for event in self._client.events(self._session, deltas=False):
            if event.event == "hello":
                return str(event.data["data"]["position"])
        return None

    async def _stop(self, lines: Lines) -> None:
        """Stop the answer; leave when there is none to stop."""
        try:
            await self._client.cancel_session(self._session)
            say("(stopped)")
        except (AlreadyFinished, NotFound):
            lines.leave()


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
    names = sorted(found.agents)
    who = agent or (names[0] if len(names) == 1 else "")
    if who not in names:
        raise NotFound(f"{spec} has no agent {who or 'that is the only one'}; it has {', '.join(names)}")

    async def talk() -> None:
        conversation = found[who].local(model=model, on_delta=lambda delta: write(delta.text, end="") if delta.kind == "text" else None)
        say(f"{who} with {model} in this process, nothing is kept. /quit or Ctrl-D leaves.")
        lines = Lines()
        while (text := await lines.next()) is not None:
            result = await conversation.prompt(text)
            write("")
            if result.state == "failed":
                say(f"failed: {result.error}")

    run(talk())
