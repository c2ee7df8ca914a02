"""How messages are sent from the command line, and how their answers are waited for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnyard.cli.api import with_client
from turnyard.cli.options import Config, Json, Key, Url
from turnyard.cli.output import say, show, write, write_json
from turnyard.errors import InvalidRequest, Overloaded, StoreUnavailable

if TYPE_CHECKING:
    from turnyard.client import Client

WAIT_S = 300.0
# After so long a person wants to know why nothing comes.
FIRST_LOOK_S = 2.0
COLUMNS = ("id", "state", "agent", "session", "created_at", "text")

group = typer.Typer(help="Send messages and look after their answers.", no_args_is_help=True)

Agent = Annotated[str, typer.Argument(metavar="AGENT")]
JobId = Annotated[str, typer.Argument(metavar="JOB")]
Timeout = Annotated[float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait at most.")]


@group.command("submit")
def submit(
    agent: Agent,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; `-` reads it from stdin.")],
    session: Annotated[str | None, typer.Option("--session", metavar="S", help="The conversation; a fresh one when not given.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer and print it.")] = False,
    timeout: Timeout = WAIT_S,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="MODE", help="steer, follow_up, collect, interrupt, rollback or reject.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="On whose behalf.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", metavar="KEY", help="The same key twice is the same job.")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", metavar="NAME=VALUE", help="Kept with the job; may be given again.")
    ] = None,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Send a message to an agent."""
    fields: dict[str, Any] = {
        "session": session,
        "mode": mode,
        "user": user,
        "idempotency_key": idempotency_key,
        "metadata": pairs(metadata) if metadata else None,
    }
    # An empty word is given, too: an unset variable of a script must not quietly mean a conversation of its own.
    given = {name: value for name, value in fields.items() if value is not None}
    message = sys.stdin.read() if text == "-" else text

    async def send(client: Client) -> dict[str, Any]:
        handle = await client.submit(agent, message, **given)
        return await _wait(client, handle.id, timeout) if wait else handle.data

    report(with_client(send, url=url, key=key, config=config), as_json=as_json, final=wait)


@group.command("get")
def get(job: JobId, as_json: Json = False, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Show a job."""

    async def read(client: Client) -> dict[str, Any]:
        return (await client.job(job)).data

    report(with_client(read, url=url, key=key, config=config), as_json=as_json, final=False)


@group.command("list")
def list_(
    session: Annotated[str | None, typer.Option("--session", metavar="S", help="Of this conversation alone.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="queued, running, waiting, succeeded, failed or cancelled.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="How many at most.")] = 50,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """List jobs, newest first."""
    given: dict[str, Any] = {
        name: value for name, value in {"session": session, "state": state, "limit": limit}.items() if value is not None
    }

    async def read(client: Client) -> list[dict[str, Any]]:
        return [handle.data for handle in await client.jobs(**given)]

    show(with_client(read, url=url, key=key, config=config), COLUMNS, as_json=as_json, empty="no jobs")


@group.command("cancel")
def cancel(
    job: JobId,
    cascade: Annotated[bool, typer.Option("--cascade", help="Cancel the sessions that its calls started, too.")] = False,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Ask for a job to be cancelled."""

    async def ask(client: Client) -> dict[str, Any]:
        return await client.cancel(job, cascade=cascade)

    report(with_client(ask, url=url, key=key, config=config), as_json=as_json, final=False)


@group.command("wait")
def wait(job: JobId, timeout: Timeout = WAIT_S, as_json: Json = False, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Wait for a job's end and print its answer."""

    async def ask(client: Client) -> dict[str, Any]:
        return await _wait(client, job, timeout)

    report(with_client(ask, url=url, key=key, config=config), as_json=as_json, final=True)


@group.command("follow")
def follow_job(job: JobId, as_json: Json = False, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Show what happens for a job until it has ended."""
    from turnyard.cli.follow import envelopes, show_until_quiet

    async def ask(client: Client) -> dict[str, Any]:
        async def ended() -> bool:
            return False  # the stream of a job closes by itself

        await show_until_quiet(envelopes(client.job_events(job)), ended, as_json=as_json, forever=True)
        return (await client.job(job)).data

    raise typer.Exit(code_of(with_client(ask, url=url, key=key, config=config)))


def follow(
    session: Annotated[str, typer.Argument(metavar="SESSION")],
    after: Annotated[str | None, typer.Option("--after", metavar="ID", help="Go on behind this event.")] = None,
    forever: Annotated[bool, typer.Option("--forever", "-f", help="Stay when nothing happens any more.")] = False,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Show what happens in a session until nothing is left to happen."""
    from turnyard.cli.follow import envelopes, show_until_quiet

    async def ask(client: Client) -> None:
        why: dict[str, Any] = {}

        async def settled() -> bool:
            why.update(await client.explain(session))
            return why["code"] not in BUSY

        await show_until_quiet(envelopes(client.events(session, after=after)), settled, as_json=as_json, forever=forever)
        if why and why["code"] != "idle" and not as_json:
            todo = f"\n  {why['fix']}" if why["code"] in ("approval", "question") else f": turnyard explain {session}"
            say(f"{why['code']}: {why['detail']}; it goes on without being followed{todo}")

    with_client(ask, url=url, key=key, config=config)


# Explanations of a session that will go on by itself; anything else waits for the world outside.
BUSY = frozenset(
    [
        "running",
        "over_quantum",
        "cancelling",
        "cancel_overdue",
        "poisoned",
        "ghost_owner",
        "amnesty",
        "assigned",
        "assignment_overdue",
        "queued",
        "ingress_backlog",
        "not_woken",
        "debounce",
        "delayed",
        "retry_delay",
    ]
)


async def _wait(client: Client, job: str, timeout_s: float) -> dict[str, Any]:
    first_s = min(FIRST_LOOK_S, timeout_s)
    try:
        with contextlib.suppress(TimeoutError):
            return await client.wait_job(job, timeout_s=first_s)
        with contextlib.suppress(StoreUnavailable, Overloaded):
            _tell_what_it_waits_for((await client.job(job)).data)
        return await client.wait_job(job, timeout_s=timeout_s - first_s)
    except TimeoutError:
        raise TimeoutError(f"job {job} has not ended within {timeout_s:g} s and goes on: turnyard jobs wait {job}") from None


def _tell_what_it_waits_for(job: dict[str, Any]) -> None:
    for call in job["waiting_for"]:
        asked = call.get("approval")
        verb = "answer" if call["kind"] == "question" else "allow"
        todo = f"turnyard approvals {verb} {asked['id']}" if asked else f"turnyard explain {job['session']}"
        say(f"waits for {call['tool'] or call['call']} ({call['kind']}) until {call['expires_at']}: {todo}")


def pairs(given: Sequence[str]) -> dict[str, str]:
    """Return NAME=VALUE words as a mapping.

    Raises:
        InvalidRequest: one of them has no `=`.
    """
    for word in given:
        if "=" not in word:
            raise InvalidRequest(f"--metadata {word}: write NAME=VALUE")
    return dict(word.split("=", 1) for word in given)


def report(job: dict[str, Any], *, as_json: bool, final: bool) -> None:
    """Write a job and end with the exit code it stands for; `final` writes its answer, otherwise its id and state."""
    if as_json:
        write_json(job)
    elif final and job["state"] == "succeeded":
        write(str(job.get("text") or ""))
    elif not final:
        write(job["id"])
        say(f"{job['state']} in session {job['session']}" + (f": {job['text']}" if job.get("text") else ""))
    error = job.get("error")
    if error and not as_json:
        say(f"failed: {error['code']}: {error['message']}")
    if final and job["state"] == "cancelled" and not as_json:
        say(f"cancelled: {job.get('stop_reason') or 'by request'}")
    if final:
        raise typer.Exit(code_of(job))


def code_of(job: dict[str, Any]) -> int:
    """Return the exit code of a job that ended."""
    return {"succeeded": 0, "failed": 1, "cancelled": 9}.get(job["state"], 8)
