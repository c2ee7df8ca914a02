"""What operators ask a running yard: who works, which agents there are, why a session stands still, what is broken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnyard.cli.api import with_client
from turnyard.cli.options import Config, Json, Key, Redis, Url, settings_of
from turnyard.cli.output import say, show, write, write_json
from turnyard.errors import StoreUnavailable

if TYPE_CHECKING:
    from turnyard.state.audit import Finding

AGENT_COLUMNS = ("name", "version", "pool", "mode", "models", "tools")
WORKER_COLUMNS = ("pid", "role", "host", "pools", "running", "capacity", "agents", "beat_age_s", "worker")

workers = typer.Typer(help="Worker processes.", no_args_is_help=True)


def agents(as_json: Json = False, url: Url = None, key: Key = None, config: Config = None) -> None:
    """List the agents that workers have published."""
    rows = with_client(lambda client: client.agents(), url=url, key=key, config=config)
    shown = rows if as_json else [{**row, "tools": [tool["name"] for tool in row.get("tools") or ()]} for row in rows]
    show(shown, AGENT_COLUMNS, as_json=as_json, empty="no agent is published; start a worker: turnyard worker MOD:APP")


@workers.command("list")
def workers_list(as_json: Json = False, url: Url = None, key: Key = None, config: Config = None) -> None:
    """List live worker children: the pid, how busy it is, when it was last heard of."""
    rows = sorted(
        with_client(lambda client: client.workers(), url=url, key=key, config=config),
        key=lambda row: (row["role"] != "worker", -row["running"], row["pid"]),
    )
    show(rows, WORKER_COLUMNS, as_json=as_json, empty="no worker is alive; start one: turnyard worker MOD:APP")


def explain(
    session: Annotated[str, typer.Argument(metavar="SESSION")],
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Say why a session moves or does not, and what to do about it."""
    found = with_client(lambda client: client.explain(session), url=url, key=key, config=config)
    if as_json:
        write_json(found)
        return
    write(f"{found['code']}: {found.get('detail') or ''}".rstrip(": "))
    facts: dict[str, Any] = found.get("facts") or {}
    calls: list[dict[str, Any]] = facts.get("calls") or []
    for call in calls:
        until = (
            datetime.fromtimestamp(call["until_ms"] / 1000, UTC).isoformat(timespec="seconds") if call.get("until_ms") else "no deadline"
        )
        write(f"  {call.get('tool') or call.get('call')} ({call.get('kind')}) until {until}")
    if found.get("fix"):
        write(f"fix: {found['fix']}")


def doctor(
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Look at this many sessions at most.")] = None,
    as_json: Json = False,
    redis: Redis = None,
    config: Config = None,
) -> None:
    """Check the server, and what must hold of every session; changes nothing."""
    from turnyard.lifecycle import run

    facts, findings = run(_examine(_server_of(redis, config), limit))
    rows = [{"session": found.session, "invariant": found.invariant, "detail": found.detail} for found in findings]
    if as_json:
        write_json({"server": facts, "findings": rows})
    else:
        say(f"server   {facts['kind']} {facts['version'] or 'of unknown version'}")
        for warning in facts["warnings"]:
            say(f"warning  {warning}")
        show(rows, ("session", "invariant", "detail"), as_json=False, empty="nothing is broken")
    if rows:
        raise typer.Exit(1)


async def _examine(url: str, limit: int | None) -> tuple[dict[str, Any], list[Finding]]:
    from dataclasses import asdict

    from turnyard.state.audit import audit
    from turnyard.state.connection import check_server
    from turnyard.state.yard import Yard

    yard = await Yard.open(url)
    try:
        facts = asdict(await check_server(yard.redis))
        return facts, await audit(yard, limit=limit)
    finally:
        await yard.aclose()


def _server_of(redis: str | None, config: Any) -> str:
    """Return the configured server, else the one that runs from the state directory; none is started to be examined."""
    from turnyard.state.embedded import running_server

    settings = settings_of(config=config, redis=redis)
    found = settings.redis.connection_url() or getattr(running_server(settings.state_dir), "url", None)
    if found is None:
        raise StoreUnavailable(
            f"no server is configured and none runs from {settings.state_dir}; give --redis, set REDIS_URL, or `turnyard up`"
        )
    return found
