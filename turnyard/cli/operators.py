"""What operators ask a running yard: who works, which agents there are, what is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnyard.cli.api import with_client
from turnyard.cli.options import Config, Json, Key, Redis, Url, settings_of
from turnyard.cli.output import one_line, say, show, write, write_json
from turnyard.errors import StoreUnavailable

if TYPE_CHECKING:
    from turnyard.state.audit import Finding
    from turnyard.state.dead import DeadStock

AGENT_COLUMNS = ("name", "version", "pool", "mode", "models", "tools")
WORKER_COLUMNS = ("pid", "role", "host", "pools", "running", "capacity", "agents", "beat_age_s", "worker")

_LOG = 2000  # records of one log that doctor reads

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


def doctor(
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Look at this many sessions of each shard at most.")] = 1000,
    as_json: Json = False,
    redis: Redis = None,
    config: Config = None,
) -> None:
    """Check the server, and what must hold of sessions, logs, slots and queues; changes nothing. Exit code 1: something is broken."""
    from turnyard.lifecycle import run

    facts, findings = run(_examine(server_of(redis, config), limit))
    rows = [{"session": found.session, "invariant": found.invariant, "detail": found.detail, "fix": found.fix} for found in findings]
    if as_json:
        write_json({"server": facts, "findings": rows})
    else:
        say(f"server   {facts['kind']} {facts['version'] or 'of unknown version'}")
        for warning in facts["warnings"]:
            say(f"warning  {warning}")
        for row in rows:
            write(f"{one_line(row['session'], 80)}  broken: {row['invariant']}\n  {row['detail']}\n  fix: {row['fix']}")
        if not rows:
            say("nothing is broken")
    if rows:
        raise typer.Exit(1)


async def _examine(url: str, limit: int) -> tuple[dict[str, Any], list[Finding]]:
    from dataclasses import asdict

    from turnyard.state.audit import audit
    from turnyard.state.dead import read_stock
    from turnyard.state.yard import Yard

    yard = await Yard.open(url)
    try:
        servers = [asdict(facts) for facts in await yard.check()]
        stock = await read_stock(yard)
        return servers[0] | {"warnings": [w for facts in servers for w in facts["warnings"]] + _of_letters(stock)}, await audit(
            yard, limit=limit, logs=_LOG
        )
    finally:
        await yard.aclose()


def _of_letters(stock: DeadStock) -> list[str]:
    """Warn of dead letters: each is something that somebody asked for and did not get."""
    if not stock.letters:
        return []
    room = "; the oldest are lost next" if stock.nearly_full else ""
    return [f"{stock.letters} dead letters take {stock.bytes} of {stock.cap_bytes} bytes{room}: see `turnyard dead list`"]


def server_of(redis: str | None, config: Any) -> str:
    """Return the configured server, else the one that runs from the state directory; none is started to be examined."""
    from turnyard.state.embedded import running_server

    settings = settings_of(config=config, redis=redis)
    found = settings.redis.connection_url() or getattr(running_server(settings.state_dir), "url", None)
    if found is None:
        raise StoreUnavailable(
            f"no server is configured and none runs from {settings.state_dir}; give --redis, set REDIS_URL, or `turnyard up`"
        )
    return found
