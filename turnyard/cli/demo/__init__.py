"""Everything at once, on this machine, without a key: a story that is told while it is checked.

It runs in a folder of its own and on free ports, so any number of demos may run side by side. A promise that is not
kept is named, and makes the exit code 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnyard.cli.demo.stage import Stage
    from turnyard.cli.demo.transcript import Transcript

APP = "turnyard.cli.demo.studio:app"
STORY_S = 60.0


def demo(keep: Annotated[bool, typer.Option("--keep", help="Leave the yard up until Ctrl-C, to look around in it.")] = False) -> None:
    """Show a whole yard: a parked call, four things in one context, a kill, a hand-over."""
    if not play(APP, keep=keep):
        raise typer.Exit(1)


def play(app: str, *, keep: bool = False) -> bool:
    """Tell the story with this app's `studio` agent; return whether every promise was kept.

    Raises:
        TurnyardError: the yard could not be put up.
        KeyboardInterrupt: it was told to stop; everything it started is gone.
    """
    from turnyard.lifecycle import run

    # No variable of the caller's own yard may reach this one.
    for name in [name for name in os.environ if name.startswith("TURNYARD_") or name == "REDIS_URL"]:
        del os.environ[name]
    folder = Path(tempfile.mkdtemp(prefix="turnyard-demo-"))
    try:
        with contextlib.chdir(folder):
            return run(_play(app, folder, keep=keep))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _play(app: str, folder: Path, *, keep: bool) -> bool:
    from rich.console import Console

    from turnyard.app import load_app
    from turnyard.cli.demo.stage import raised
    from turnyard.cli.demo.transcript import Transcript
    from turnyard.clock import SystemClock

    clock = SystemClock()
    tell = Transcript(Console(highlight=False), clock)
    _stop_on_signals()
    tell.chapter("A yard on this machine")
    async with raised(app, load_app(app).manifests(), folder, clock) as stage:
        roles = ", ".join(f"{name} {pid}" for name, pid in stage.roles)
        tell.line("demo", f"up in {tell.elapsed_s:.1f} s at {stage.url}, server: {stage.server}; each role is a process: {roles}")
        await _tell(tell, stage, folder)
        if keep:
            tell.line("demo", f"the yard stays up until Ctrl-C; its state is in {stage.state.root}")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
    return not tell.broken


async def _tell(tell: Transcript, stage: Stage, folder: Path) -> None:
    """Tell the story and how it ended; what goes wrong is a broken promise."""
    from turnyard.cli.demo.price import examine, show_price
    from turnyard.cli.demo.scene import Scene
    from turnyard.cli.demo.story import tell_story
    from turnyard.client import Client
    from turnyard.clock import SystemClock
    from turnyard.errors import TurnyardError

    tell.restart()
    tell.chapter("1 · A tool that takes long")
    async with Client(stage.url) as client:
        scene = Scene(stage, client, tell, SystemClock(), folder)
        try:
            async with asyncio.timeout(STORY_S):
                await tell_story(scene)
                await show_price(scene)
                await examine(scene)
        except (TimeoutError, TurnyardError) as error:
            tell.check("the story comes to its end", kept=False, seen=str(error) or f"not within {STORY_S:g} s")
    tell.table("What the story took", [*scene.figures.items(), ("time", f"{tell.elapsed_s:.1f} s")])
    tell.verdict()


def _stop_on_signals() -> None:
    """Let a signal end the story in order; another one changes nothing."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - we are inside one
    told = False

    def stop() -> None:
        nonlocal told
        if not told:
            told = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
