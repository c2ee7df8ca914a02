"""How a whole yard on one machine goes up and down.

`up` checks the apps, finds or starts a server, and keeps the roles until it is told to stop; detached, a process of
its own does that and this one only waits until it is ready. `down` ends what the state directory names, and nothing
else: processes are known by pid and start time.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnyard.cli.options import Apps, Config, Json, Redis, settings_of
from turnyard.cli.output import say, write, write_json
from turnyard.cli.roles import given
from turnyard.cli.state_dir import StateDir, UpFacts
from turnyard.errors import TurnyardError

if TYPE_CHECKING:
    from turnyard.cli.plan import Plan
    from turnyard.records.manifest import Manifest
    from turnyard.settings import Settings

DETACH_WITHIN_S = 90.0
DOWN_WITHIN_S = 160.0
KILL_WITHIN_S = 5.0


def up(
    apps: Apps,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when everything is ready.")] = False,
    reload: Annotated[bool, typer.Option("--reload", help="Restart what runs your code when a file changes.")] = False,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="Port of the API, 0 for a free one.  [default: 8420]")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address of the API.  [default: 127.0.0.1]")] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=256, help="How many worker children.")] = 2,
    as_json: Json = False,
    redis: Redis = None,
    config: Config = None,
    kept: Annotated[bool, typer.Option("--kept", hidden=True)] = False,
) -> None:
    """Run every role on this machine and serve the API."""
    settings = settings_of(config=config, redis=redis)
    state = StateDir(settings.state_dir)
    if detach:
        words = [*apps, *(["--reload"] if reload else []), *given("--port", port), *given("--host", host)]
        words += [*given("--processes", processes), *given("--redis", redis), *given("--config", str(config) if config else None)]
        _detached(state, words, as_json=as_json)
        return
    state.hold()
    try:
        manifests = _manifests(apps, settings)
        # They may hold the very port that is asked for.
        _end_leftovers(state)
        plan = _plan(apps, manifests, settings, host, port, processes)
        state.turn_logs()
        _keep(plan, state, settings, config, reload=reload, quiet=kept, as_json=as_json)
    finally:
        state.release()


def down(
    now: Annotated[bool, typer.Option("--now", help="Do not wait for what is in hand; it is taken up by the next `up`.")] = False,
    config: Config = None,
) -> None:
    """Stop the yard of this directory and the server it started; nothing accepted is lost."""
    import asyncio

    from turnyard.state.embedded import stop_server

    state = StateDir(settings_of(config=config).state_dir)
    stopped = _end(state, grace_s=0.0 if now else DOWN_WITHIN_S)
    server = asyncio.run(stop_server(state.root))
    state.clear()
    say("down" if stopped or server else f"nothing is up in {state.root}")


def announce(facts: UpFacts, *, as_json: bool) -> None:
    """Tell that a yard is ready, where it is, what its server is worth, and what to try next."""
    if as_json:
        write_json({**asdict(facts), "pid": facts.keeper.pid})
        return
    agent = facts.agents[0] if facts.agents else "AGENT"
    durable = "" if facts.durable else ": NOT DURABLE, everything is lost when it stops"
    say(f"server   {facts.server}{durable}")
    say(f"agents   {', '.join(facts.agents)}")
    say(f'next     turnyard submit {agent} "hello" --wait')
    say("api:")
    write(facts.url)


def _manifests(apps: list[str], settings: Settings) -> list[Manifest]:
    from turnyard.cli.apps import checked_apps

    return [manifest for app in checked_apps(apps, settings) for manifest in app.manifests()]


def _plan(apps: list[str], manifests: list[Manifest], settings: Settings, host: str | None, port: int | None, processes: int) -> Plan:
    from turnyard.cli.plan import make_plan

    http = settings.platforms.http
    return make_plan(apps, manifests, host=host or http.host, port=http.port if port is None else port, processes=processes)


def _keep(plan: Plan, state: StateDir, settings: Settings, config: Path | None, *, reload: bool, quiet: bool, as_json: bool) -> None:
    from turnyard.cli.yard import keep_yard
    from turnyard.lifecycle import run

    def ready(facts: UpFacts) -> None:
        if not quiet:
            announce(facts, as_json=as_json)

    run(keep_yard(plan, state, settings, config, on_ready=ready, reload=reload, show_logs=not quiet))


def _detached(state: StateDir, words: list[str], *, as_json: bool) -> None:
    """Start the keeper as a process of its own and wait for it; its last words are ours when it fails."""
    from turnyard.state import pids

    # Refuse here, where the person sees it, and give the lock to the keeper. What is recorded stays: by that the
    # keeper finds what an earlier one left running.
    state.hold()
    state.release()
    with state.log("up").open("wb") as sink:
        keeper = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "turnyard.cli", "up", *words, "--kept"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )

    def ready() -> UpFacts | None:
        facts = state.facts()
        return facts if facts is not None and facts.keeper.pid == keeper.pid and facts.phase == "ready" else None

    def settled() -> bool:
        return keeper.poll() is not None or ready() is not None

    try:
        in_time = pids.poll_until(settled, timeout_s=DETACH_WITHIN_S)
    except KeyboardInterrupt:
        keeper.terminate()
        raise
    facts = ready()
    if keeper.returncode is not None or facts is None or not in_time:
        keeper.terminate()
        told = state.log("up").read_text(encoding="utf-8", errors="replace").strip()
        say(told or f"turnyard: the yard ended without a word (exit code {keeper.wait()}); `turnyard up` without --detach shows more")
        raise typer.Exit(keeper.wait() or 1)
    keeper.returncode = 0  # it lives on; without this the interpreter warns that nobody waited for it
    announce(facts, as_json=as_json)


def _end_leftovers(state: StateDir) -> None:
    """End roles whose keeper was killed: they would serve old code beside the new."""
    if state.alive():
        say("ending what an earlier `up` left running")
        _end(state, grace_s=DOWN_WITHIN_S)
    state.clear()


def _end(state: StateDir, *, grace_s: float) -> bool:
    """End every process of the recorded yard; False when none ran."""
    from turnyard.state import pids

    alive = state.alive()
    number = signal.SIGTERM if grace_s else signal.SIGKILL
    for _, mark in alive:
        pids.send(mark, number)
    if grace_s and not pids.poll_until(lambda: not state.alive(), timeout_s=grace_s):
        for name, mark in state.alive():
            say(f"{name} (pid {mark.pid}) is still busy and is killed; the next `up` takes over what it ran")
            pids.send(mark, signal.SIGKILL)
    left = [name for name, mark in alive if not pids.wait_gone(mark, timeout_s=KILL_WITHIN_S)]
    if left:
        raise TurnyardError(f"could not end {', '.join(left)}; see {state.root / 'up.json'} for their pids")
    return bool(alive)
