"""Why does a session stand still? The answer of the API, for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from turnyard.cli.api import with_client
from turnyard.cli.options import Config, Json, Key, Url
from turnyard.cli.output import one_line, write, write_json


def explain(
    session: Annotated[str, typer.Argument(metavar="SESSION")],
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Say why a session moves or does not, who or what it waits for, since when, and what to do about it."""
    found = with_client(lambda client: client.explain(session), url=url, key=key, config=config)
    if as_json:
        write_json(found)
        return
    for said in (found, *found.get("also", ())):
        _show(said)


def _show(said: dict[str, Any]) -> None:
    write(f"{said['code']}: {said.get('detail') or ''}".rstrip(": "))
    facts: dict[str, Any] = said.get("facts") or {}
    calls: list[dict[str, Any]] = facts.get("calls") or []
    for call in calls:
        write(f"  {call.get('tool') or call.get('call')} ({call.get('kind')}) until {_moment(call.get('until_ms'))}")
    if facts.get("reason"):
        write(f"  {'asks' if said['code'] == 'question' else 'because'} {one_line(str(facts['reason']), 200)}")
    if facts.get("ids"):
        write(f"  letters {', '.join(facts['ids'])}")
    holder: dict[str, Any] = said.get("holder") or {}
    if holder:
        write("  held by " + ", ".join(str(v) if k == "kind" else f"{k} {v}" for k, v in holder.items() if v not in (None, "")))
    if said.get("age_ms") is not None:
        write(f"  for {said['age_ms'] / 1000:.1f} s")
    if said.get("fix"):
        write(f"  fix: {said['fix']}")


def _moment(ms: int | None) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") if ms else "no deadline"
