"""The end of an upgrade: may data be written in the newest schema, and who is in the way?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnyard.cli.operators import server_of
from turnyard.cli.options import Config, Json, Redis
from turnyard.cli.output import write, write_json
from turnyard.errors import InvalidRequest

if TYPE_CHECKING:
    from turnyard.state.migration import Outlook


def migrate(
    check: Annotated[bool, typer.Option("--check", help="Say what would be done; exit code 1 when somebody is in the way.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="Do it; exit code 7 when somebody is in the way.")] = False,
    as_json: Json = False,
    redis: Redis = None,
    config: Config = None,
) -> None:
    """End an upgrade: write in the newest schema once no older process lives, and remove what only older versions need."""
    from turnyard.lifecycle import run

    if check == finish:
        raise InvalidRequest("give either --check or --finish")
    found = run(_migrate(server_of(redis, config), really=finish))
    if as_json:
        write_json(_row(found))
    else:
        _show(found)
    if check and found.in_the_way:
        raise typer.Exit(1)


async def _migrate(url: str, *, really: bool) -> Outlook:
    from turnyard.state.migration import finish, look_ahead
    from turnyard.state.yard import Yard

    yard = await Yard.open(url)
    try:
        return await (finish(yard) if really else look_ahead(yard))
    finally:
        await yard.aclose()


def _show(found: Outlook) -> None:
    layout = found.layout
    write(f"written in schema {layout.write}, read from schema {layout.read}; this version would write {found.target}")
    for schema, count in found.sessions.items():
        write(f"  {count} sessions in schema {schema}" + ("; each is rewritten when it next runs" if schema < found.target else ""))
    for process in found.in_the_way:
        write(f"  in the way: {process}; stop or upgrade it")
    if found.stale:
        write(f"  {len(found.stale)} libraries of scripts that no process calls: {', '.join(found.stale)}")
    if found.nothing_to_do:
        write("nothing to do")


def _row(found: Outlook) -> dict[str, Any]:
    return {
        "write": found.layout.write,
        "read": found.layout.read,
        "target": found.target,
        "sessions": found.sessions,
        "in_the_way": [str(p) for p in found.in_the_way],
        "stale_libraries": list(found.stale),
        "nothing_to_do": found.nothing_to_do,
    }
