"""Approvals and questions at the command line: what waits for people, and deciding it."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson
import typer

from turnyard.cli.api import with_client
from turnyard.cli.options import Config, Json, Key, Url, settings_of
from turnyard.cli.output import one_line, say, show, write, write_json
from turnyard.errors import InvalidRequest, NotFound
from turnyard.records.approvals import APPROVAL_PREFIX

if TYPE_CHECKING:
    from turnyard.client import Approval, Client

COLUMNS = ("id", "kind", "session", "tool", "args", "approvers", "expires_at")
WIDTH = 60

group = typer.Typer(help="What waits for people: calls to allow or deny, questions to answer.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The id that `approvals list` shows, or a session that waits for one thing only.")]
User = Annotated[str | None, typer.Option("--user", metavar="USER", help="Who decides; else client.user, else who is logged in here.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; of a denied call the model reads it.")]


@group.command("list")
def approvals_list(
    session: Annotated[str | None, typer.Option("--session", metavar="S", help="Of this conversation alone.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="As many at most, oldest first.")] = 50,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """List what waits for people, oldest first."""
    found = with_client(lambda client: client.approvals.list(session=session, limit=limit), url=url, key=key, config=config)
    rows = [each.raw if as_json else {**each.raw, "args": asked_of(each.raw)} for each in found]
    show(rows, COLUMNS, as_json=as_json, empty="nothing waits for a decision")


@group.command("show")
def approvals_show(approval: Id, as_json: Json = False, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Show what is asked, who may decide, until when, and what was decided."""

    async def read(client: Client) -> Approval:
        return await client.approvals.get(await _id_of(client, approval))

    _tell(with_client(read, url=url, key=key, config=config), as_json=as_json)


@group.command("allow")
def approvals_allow(
    approval: Id,
    given: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="Arguments in place of the model's, as a JSON object.")
    ] = None,
    scope: Annotated[str, typer.Option("--scope", metavar="SCOPE", help="once, or session: not asked again in this session.")] = "once",
    reason: Reason = None,
    user: User = None,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Let a call run. Exit code 5: you may not decide it; 7: it was decided otherwise, or its time is over."""
    options: dict[str, Any] = {"scope": scope, "input": None if given is None else read_input(given), "reason": reason}
    _decide(lambda client, ident, who: client.approvals.allow(ident, user=who, **options), approval, user, as_json, url, key, config)


@group.command("deny")
def approvals_deny(
    approval: Id, reason: Reason = None, user: User = None, as_json: Json = False, url: Url = None, key: Key = None, config: Config = None
) -> None:
    """Refuse a call; the model reads the reason and goes on without it."""
    _decide(lambda client, ident, who: client.approvals.deny(ident, user=who, reason=reason), approval, user, as_json, url, key, config)


@group.command("answer")
def approvals_answer(
    approval: Id,
    answer: Annotated[list[str], typer.Argument(metavar="ANSWER...", help="An option by its number or label, several of them, or text.")],
    user: User = None,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Answer a question."""
    said = answer[0] if len(answer) == 1 else answer
    _decide(lambda client, ident, who: client.approvals.answer(ident, said, user=who), approval, user, as_json, url, key, config)


def read_input(text: str) -> dict[str, Any]:
    """Return arguments that were typed.

    Raises:
        InvalidRequest: they are no JSON object.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"--input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("--input is a JSON object with the tool's arguments, such as '{\"amount\": 80}'")
    return cast("dict[str, Any]", value)


def me() -> str:
    """Return who sits at this machine."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "cli"


def asked_of(approval: dict[str, Any]) -> str:
    """Return on one line what a call would do, or what a question asks."""
    if approval["kind"] == "question":
        labels = ", ".join(f"{n} {label}" for n, label in enumerate(approval["options"], 1))
        return one_line(prompt_of(approval) + (f" [{labels}]" if labels else ""), WIDTH)
    args = approval.get("args")
    named = cast("dict[str, Any]", args).items() if isinstance(args, dict) else ()
    return one_line(", ".join(f"{name}={value!r}" for name, value in named), WIDTH)


def prompt_of(question: Mapping[str, Any]) -> str:
    """Return what a question asks, in words."""
    args = question.get("args")
    text = cast("dict[str, Any]", args).get("text") if isinstance(args, dict) else None
    return str(text or question.get("reason") or "a question")


async def _id_of(client: Client, named: str) -> str:
    """Return the id of what is named: itself, or what a session waits for.

    Raises:
        NotFound: the session does not exist, or waits for nobody.
        InvalidRequest: it waits for several things.
    """
    if named.startswith(APPROVAL_PREFIX):
        return named
    found = await client.approvals.list(session=named)
    if not found:
        raise NotFound(f"session {named} waits for nobody's decision: turnyard explain {named}")
    if len(found) > 1:
        raise InvalidRequest(f"session {named} waits for {len(found)} decisions; say which: {', '.join(each.id for each in found)}")
    return found[0].id


def _decide(
    work: Callable[[Client, str, str], Awaitable[Approval]],
    named: str,
    user: str | None,
    as_json: bool,
    url: str | None,
    key: str | None,
    config: Any,
) -> None:
    who = user or settings_of(config=config).client.user or me()

    async def decide(client: Client) -> Approval:
        return await work(client, await _id_of(client, named), who)

    _tell(with_client(decide, url=url, key=key, config=config), as_json=as_json)


def _tell(approval: Approval, *, as_json: bool) -> None:
    found = approval.raw
    if as_json:
        write_json(found)
        return
    write(f"{found['id']}  {found['state']}")
    say(f"{found['tool'] or 'question'}({asked_of(found)}) in session {found['session']}")
    if found["reason"] and found["kind"] != "question":
        say(f"because {one_line(found['reason'], 200)}")
    decided = found["decided"]
    if decided:
        reason = f": {one_line(decided['reason'], 200)}" if decided["reason"] else ""
        say(f"by {decided['by'] or 'nobody'} at {decided['at']}{reason}")
    elif found["state"] == "pending":
        say(f"may be decided by {', '.join(found['approvers']) or 'whoever may use the API'} until {found['expires_at']}")
