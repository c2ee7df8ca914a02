"""Dead letters at the command line: what could not be handled, and what an operator decides about it.

It talks to the server itself, so that it works when the platforms do not.
"""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from turnyard.cli.operators import server_of
from turnyard.cli.options import Config, Json, Redis
from turnyard.cli.output import say, show, write, write_json
from turnyard.errors import Conflict, NotFound

if TYPE_CHECKING:
    from turnyard.state.dead import DeadLetter, Decision
    from turnyard.state.yard import Yard

T = TypeVar("T")

COLUMNS = ("id", "reason", "at", "tenant", "session", "kind", "job")
Letter = Annotated[str, typer.Argument(metavar="LETTER", help="The id that `dead list` shows.")]
Tenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Of this tenant only.")]

group = typer.Typer(help="Dead letters: what could not be handled.", no_args_is_help=True)


@group.command("list")
def dead_list(
    tenant: Tenant = None,
    session: Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Of this session only.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="As many at most, newest first.")] = 50,
    as_json: Json = False,
    redis: Redis = None,
    config: Config = None,
) -> None:
    """List dead letters, newest first."""
    from turnyard.state.dead import list_letters, read_stock

    async def look(yard: Yard) -> Any:
        return await list_letters(yard, tenant=tenant, session=session, limit=limit), await read_stock(yard)

    letters, stock = _at(redis, config, look)
    show([_row(letter) for letter in letters], COLUMNS, as_json=as_json, empty="no dead letter")
    if stock.nearly_full:
        say(f"warning: {stock.bytes} of {stock.cap_bytes} bytes are taken; the oldest letters are lost next: decide about them")


@group.command("show")
def dead_show(letter: Letter, tenant: Tenant = None, as_json: Json = False, redis: Redis = None, config: Config = None) -> None:
    """Show one letter: what came, why it was set aside, what to do."""
    from turnyard.state.dead import read_letter

    found = _at(redis, config, lambda yard: read_letter(yard, letter, tenant=tenant))
    if found is None:
        raise NotFound(f"no dead letter {letter!r}: see `turnyard dead list`")
    if as_json:
        write_json(_row(found))
        return
    for name, value in _row(found).items():
        if name not in ("came", "more", "fix") and value not in ("", None):
            write(f"{name:8} {value}")
    for name, value in (found.more | found.came).items():
        write(f"  {name} = {value}")
    write(f"fix: {found.fix}")


@group.command("retry")
def dead_retry(letter: Letter, tenant: Tenant = None, as_json: Json = False, redis: Redis = None, config: Config = None) -> None:
    """Send what came once more; a message is then a new job. Twice is once. Exit code 7: it cannot be taken, and is kept."""
    from turnyard.state.dead import retry_letter

    _tell(
        letter,
        "retried",
        _at(redis, config, lambda yard: retry_letter(yard, letter, tenant=tenant, by=_me()), audited=True),
        as_json=as_json,
    )


@group.command("drop")
def dead_drop(letter: Letter, tenant: Tenant = None, as_json: Json = False, redis: Redis = None, config: Config = None) -> None:
    """Take a letter out for good; the log says who did."""
    from turnyard.state.dead import drop_letter

    _tell(
        letter,
        "dropped",
        _at(redis, config, lambda yard: drop_letter(yard, letter, tenant=tenant, by=_me()), audited=True),
        as_json=as_json,
    )


def _tell(letter: str, done: str, decision: Decision, *, as_json: bool) -> None:
    if decision.code == "gone":
        raise NotFound(f"no dead letter {letter!r}: it may have been decided already; see `turnyard dead list`")
    if not decision.done:
        raise Conflict(f"dead letter {letter} is kept: {decision.why}")
    if as_json:
        write_json({"letter": letter, "outcome": done, "job": decision.job})
        return
    write(decision.job or letter)
    say(f"{letter} {done}" + (f" as {decision.job}" if decision.job else ""))


def _row(letter: DeadLetter) -> dict[str, Any]:
    facts = asdict(letter)
    at = datetime.fromtimestamp(facts.pop("at_ms") / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"id": facts.pop("id"), "reason": facts.pop("reason"), "at": at, **facts}


def _at(redis: str | None, config: Any, work: Callable[[Yard], Awaitable[T]], *, audited: bool = False) -> T:
    from turnyard import telemetry
    from turnyard.lifecycle import run
    from turnyard.state.yard import Yard

    if audited:
        telemetry.setup(role="cli")

    async def main() -> T:
        yard = await Yard.open(server_of(redis, config))
        try:
            return await work(yard)
        finally:
            await yard.aclose()

    return run(main())


def _me() -> str:
    """Return who decides, for the log line."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
