"""Everything at once, on this machine, without a key: what the demo shows and what it finds.

It uses a temporary directory and a free port, and checks what it shows: it fails when something is not as promised.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnyard.cli.output import say, write
from turnyard.errors import TurnyardError

if TYPE_CHECKING:
    from turnyard.client import Client

AGENT = "demo"
ANSWER_WITHIN_S = 60.0
KILL_AFTER = 2
COUNT_TO = 6


def demo(keep: Annotated[bool, typer.Option("--keep", help="Leave the yard up, to look around in it.")] = False) -> None:
    """Show a whole yard: a turn, a lifted tool, a late result, a worker killed on purpose."""
    folder = Path(tempfile.mkdtemp(prefix="turnyard-demo-"))
    for name in ("app.py", "demo.yaml"):
        source = resources.files("turnyard.cli").joinpath("templates", f"{'demo_' if name == 'app.py' else ''}{name}.tmpl")
        (folder / name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    # No variable of the caller's own yard may reach this one.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNYARD_") and name != "REDIS_URL"}
    environ["TURNYARD_STATE"] = str(folder / "state")
    say(f"starting a yard in {folder}")
    try:
        _command(folder, environ, "up", "app.py:app", "--detach", "--port", "0")
        _show(folder)
    finally:
        if keep:
            say(f"still up; stop it with: cd {folder} && TURNYARD_STATE=state turnyard down")
        else:
            _command(folder, environ, "down")
            shutil.rmtree(folder, ignore_errors=True)


def _command(folder: Path, environ: dict[str, str], *words: str) -> None:
    command = [sys.executable, "-m", "turnyard.cli", *words]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise TurnyardError(f"turnyard {words[0]} failed:\n{done.stderr.strip()}")


def _show(folder: Path) -> None:
    from turnyard.client import Client
    from turnyard.lifecycle import run

    url = (folder / "state" / "url").read_text(encoding="utf-8").strip()

    async def main() -> None:
        async with Client(url) as client:
            await _a_turn(client)
            await _a_lifted_tool(client, (folder / "picture").touch)
            await _a_killed_worker(client)

    run(main())
    _check_repeats((folder / "counted").read_text(encoding="utf-8").split())
    write("everything was as promised")


async def _a_turn(client: Client) -> None:
    say("\n1. A turn: the model asks for a tool, the tool answers, the model answers. Each is one checkpoint.")
    _told("add 2 and 3")
    answer = await client.run(AGENT, "add 2 and 3", session="one", timeout=ANSWER_WITHIN_S)
    _answered(answer["text"], "2 + 3 = 5")


async def _a_lifted_tool(client: Client, finish: Callable[[], None]) -> None:
    say("\n2. A lifted tool: the call is parked, no worker waits for it, and the conversation goes on.")
    _told("render the harbour")
    job = await client.submit(AGENT, "render the harbour", session="two")
    events = client.events("two", deltas=False)
    _answered(await _next_message(events), "The harbour is being rendered. What else?")
    await client.notice("two", "It began to rain.", group="weather", key="rain", agent=AGENT)
    say("   a notice is left for the agent; it is shown with whatever comes next")
    explained = await client.explain("two")
    say(f"   why does it stand still? {explained['code']}: {explained['detail']}")
    say("   … and now the picture is finished:")
    finish()
    text = await _next_message(events)
    while "ready" not in text:
        say(f"   « {text}")
        text = await _next_message(events)
    _answered(text, "Your picture is ready: harbour.png")
    await job.result(timeout=ANSWER_WITHIN_S)


async def _a_killed_worker(client: Client) -> None:
    say("\n3. A worker is killed in the middle: another one goes on with the next call.")
    _told("count")
    await client.submit(AGENT, "count", session="three")
    results = 0
    async for event in client.events("three", deltas=False):
        kind, data = event.event, event.data["data"]
        if kind == "tool/result":
            results += 1
            say(f"   count said {data['content']}")
            if results == KILL_AFTER:
                say(f"   kill -9 {await _kill_holder(client, 'three')}")
        elif kind == "message/end" and data.get("text"):
            _answered(data["text"], ", ".join(str(n) for n in range(1, COUNT_TO + 1)))
            break


def _check_repeats(said: list[str]) -> None:
    """Tell how many calls were lost or made twice; a crash may repeat one."""
    repeated = len(said) - COUNT_TO
    if repeated > 1 or set(said) != {str(n) for n in range(1, COUNT_TO + 1)}:
        raise TurnyardError(f"a crash may repeat one call, and {repeated} were repeated: {' '.join(said)}")
    say(f"   calls lost: none; calls made twice: {repeated}")


async def _kill_holder(client: Client, session: str) -> int:
    """Kill the worker that holds the session, or any when it has just let go."""
    holder = (await client.session(session))["holder"]
    workers = [w for w in await client.workers() if w["role"] == "worker"]
    victim: dict[str, Any] = next((w for w in workers if w["worker"] == holder), workers[0])
    os.kill(victim["pid"], signal.SIGKILL)
    return victim["pid"]


async def _next_message(events: AsyncIterator[Any]) -> str:
    async for event in events:
        if event.event == "message/end" and event.data["data"].get("text"):
            return str(event.data["data"]["text"])
    raise TurnyardError("the stream of events ended before the agent answered")


def _told(text: str) -> None:
    say(f"   » {text}")


def _answered(text: str, expected: str) -> None:
    say(f"   « {text}")
    if text != expected:
        raise TurnyardError(f"the agent was expected to say {expected!r} and said {text!r}")
