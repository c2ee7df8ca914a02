"""`python -m tests.faults.load URL HTTP_URL SEED SECONDS SHARE SHARES`: what users, clients and vendors do, from a seed.

Every session has a plan of its own made of the seed alone: which messages in which mode through which door, and which
cancels, pauses, histories and notices between them. Whoever gets no answer asks again under the same key until there
is one, as a platform's retry does, so in the end every message is known to be accepted or refused. An order is
answered by its vendor: once, twice, twice and differently, about when its time is over, or never.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.faults.history import DIRECTORY, journal
from turnyard.client import Client, RedisClient
from turnyard.errors import NotFound, StoreUnavailable, TurnyardError
from turnyard.records.approvals import Approval, Decision
from turnyard.records.ids import body_hash, keyed_job_id, session_key
from turnyard.records.messages import UserMessage
from turnyard.state import approvals
from turnyard.state.ingress import accept_control, accept_message, accept_notice, accept_outcome, cancel_job
from turnyard.state.jobs import read_job
from turnyard.state.oracles.sessions import DONE
from turnyard.state.yard import Yard

HERE = Path(os.environ.get(DIRECTORY, "."))
BOOK = journal("load")
TENANTS = ("default", "acme", "zeta")
SESSIONS = 10  # of each tenant
MODES = ("steer",) * 6 + ("follow_up", "follow_up", "collect", "collect", "interrupt", "rollback", "reject")
UNANSWERED = 5  # messages of a session that may wait for their answers before the next is sent
DIRECTIVES = (
    *("say",) * 6,
    *("ponder", "add", "add,add", "linger", "again", "block", "wrong", "render", "burn", "polish", "flop", "order", "order"),
    *("pay", "ship", "doubt", "grow", "hold", "track", "watch", "pay+pay", "pay,add", "ship+pay+add", "grow+hold", "track+watch"),
    *("add+render", "order+order", "linger,linger", "polish+add", "render+burn+add", "broken"),
)
RARE = ("doom", "die")
LANE = "fake"
BARE = ("approve", "approve+par", "par+par+par", "par_again+par,approve", "par", "say")


@dataclass(frozen=True, slots=True)
class Doors:
    """The ways in."""

    yard: Yard
    clients: dict[str, RedisClient]
    http: Client


@dataclass
class Talk:
    """One session and what is done to it, one after the other."""

    doors: Doors
    tenant: str
    session: str
    agent: str
    rng: random.Random
    ends_s: float
    count: int = 0
    jobs: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """What it is called in histories and markers."""
        return f"{self.tenant}/{self.session}"

    async def run(self) -> None:
        """Do what the plan says until the time is over; a session that was paused goes on in the end."""
        await asyncio.sleep(self.rng.uniform(0.1, 3.0))
        while time.monotonic() < self.ends_s:
            draw = self.rng.random()
            if draw < 0.78:
                await self.say()
            else:
                await self.act(self.rng.choice(ACTS))
            await asyncio.sleep(self.rng.choice((0.02, 0.4, 1.0, 2.0, 4.0)))
            await self.patience()
        await self.control("resume")

    async def patience(self) -> None:
        """Wait while the last few messages are not answered: a slow machine gets less to do."""
        while len(self.jobs) >= UNANSWERED and time.monotonic() < self.ends_s:
            job = await until_known(lambda: read_job(self.doors.yard, self.jobs[-UNANSWERED], tenant=self.tenant))
            if job is None or job.state in DONE:
                return
            await asyncio.sleep(0.2)

    async def act(self, what: str) -> None:
        """Something other than a message."""
        if what == "pause":
            await self.control("pause")
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            await self.control("resume")
        elif what == "notice":
            await self.notice()
        elif what == "cancel job" and self.jobs:
            job = self.rng.choice(self.jobs[-5:])
            await until_known(lambda: cancel_job(self.doors.yard, job, tenant=self.tenant))
            BOOK.note("canceled", job=job)
        elif what in ("cancel", "new"):
            await self.control(what)

    async def control(self, what: str) -> None:
        """A control, known by its event however often it is sent."""
        self.count += 1
        event = f"{self.name}-{self.count}"
        await until_known(
            lambda: accept_control(self.doors.yard, tenant=self.tenant, session=self.session, control=what, event=event)  # pyright: ignore[reportArgumentType]
        )

    async def notice(self) -> None:
        """A notice that nobody waits for."""
        self.count += 1
        given: dict[str, Any] = {"agent": self.agent, "group": "g", "key": self.rng.choice("kl"), "body": {"text": "heed"}}
        event = f"{self.name}-{self.count}"
        clear = self.rng.random() < 0.2
        await until_known(
            lambda: accept_notice(self.doors.yard, tenant=self.tenant, session=self.session, event=event, clear=clear, **given)
        )

    async def say(self) -> None:
        """A message through one of the doors; every seventh is sent twice."""
        self.count += 1
        marker = f"m.{self.name}.{self.count}"
        mode = self.rng.choice(MODES)
        directive = self.rng.choice(BARE) if self.agent == "bare" else self.rng.choice(RARE if self.rng.random() < 0.004 else DIRECTIVES)
        door = self.rng.choice(("state", "state", "client", "http"))
        delay_ms = self.rng.choice((0,) * 9 + (700,)) if mode in ("steer", "follow_up") else 0
        if self.agent == "bare" or mode in ("collect", "rollback") or (door == "http" and self.tenant != "default"):
            door = "state"
        send = {"state": self._by_state, "client": self._by_client, "http": self._by_http}[door]
        text = f"{marker} {directive}"
        job = keyed_job_id(0, self.tenant, self.session, marker)
        asker = self.rng.random() < 0.8
        BOOK.note("sent", marker=text, session=self.name, mode=mode, job=job, delayed=delay_ms > 0)
        known_job, code = await send(marker, text, mode, delay_ms, asker)
        BOOK.note("answered", marker=text, session=self.name, code=code, job=known_job or job)
        self.jobs.append(known_job or job)
        if self.rng.random() < 0.15:
            _, again = await send(marker, text, mode, delay_ms, asker)
            BOOK.note("repeated", marker=text, code=again, first=code)

    async def _by_state(self, marker: str, text: str, mode: Any, delay_ms: int, asker: bool) -> tuple[str, str]:
        job = keyed_job_id(0, self.tenant, self.session, marker)
        message = UserMessage(
            self.tenant,
            self.session,
            self.agent,
            {"text": text},
            job,
            body_hash(text.encode()),
            mode=mode,
            user="ann" if asker else "bob",
            asker=asker,
            platform=LANE,
            pool="bare" if self.agent == "bare" else "default",
            delay_ms=delay_ms,
            window_ms=300,
            window_max_ms=1000,
        )
        accepted = await until_known(lambda: accept_message(self.doors.yard, message))
        return job, accepted.code

    async def _by_client(self, marker: str, text: str, mode: Any, delay_ms: int, asker: bool) -> tuple[str, str]:
        client = self.doors.clients[self.tenant]
        return await self._submitted(
            lambda: client.submit(self.agent, text, session=self.session, idempotency_key=marker, mode=mode, start_after=delay_ms / 1000)
        )

    async def _by_http(self, marker: str, text: str, mode: Any, delay_ms: int, asker: bool) -> tuple[str, str]:
        return await self._submitted(
            lambda: self.doors.http.submit(
                self.agent, text, session=self.session, idempotency_key=marker, mode=mode, start_after=delay_ms / 1000
            )
        )

    async def _submitted(self, send: Callable[[], Awaitable[Any]]) -> tuple[str, str]:
        try:
            handle = await until_known(send)
        except TurnyardError as error:
            return "", type(error).__name__
        return handle.id, "accepted"


ACTS = ("cancel", "cancel job", "cancel job", "new", "pause", "notice", "notice")


async def until_known(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until there is an answer; a refusal is one."""
    while True:
        try:
            return await ask()
        except (StoreUnavailable, NotFound, httpx.HTTPError, OSError):
            await asyncio.sleep(0.1)  # not found: no worker has published the agent yet


class People:
    """Those who are asked: some say yes, some no, some both, some give other arguments, some are strangers, some say nothing."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._seen: set[str] = set()

    async def run(self) -> None:
        """Decide what is asked until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for tenant in TENANTS:
                    page = await until_known(lambda tenant=tenant: approvals.pending(self._doors.yard, tenant, limit=100))
                    for approval in page.items:
                        if approval.id not in self._seen:
                            self._seen.add(approval.id)
                            group.create_task(self._decide(tenant, approval))
                await asyncio.sleep(0.05)

    async def _decide(self, tenant: str, approval: Approval) -> None:
        rng = random.Random(approval.id)
        await asyncio.sleep(rng.choice((0.0, 0.1, 0.4, 1.3, 1.5)))
        for word in rng.choice((("allow",), ("allow",), ("deny",), ("allow", "deny"), ("edit",), ("allow", "allow"), ("stranger",), ())):
            said = "deny" if word == "deny" else "allow"
            decision = Decision(said, "mallory" if word == "stranger" else "ann", input={"n": 77} if word == "edit" else None)
            told = await until_known(lambda decision=decision: approvals.decide(self._doors.yard, tenant, approval.id, decision))
            BOOK.note("decided", call=approval.call, word=word, code=told.code)


class Vendors:
    """Those who answer orders, and the people who decide the approvals of the bare worker."""

    def __init__(self, doors: Doors, rng: random.Random) -> None:
        self._doors = doors
        self._rng = rng
        self._seen: set[str] = set()

    async def run(self) -> None:
        """Answer what is ordered until cancelled."""
        async with asyncio.TaskGroup() as group, httpx.AsyncClient(timeout=5) as http:
            while True:
                for path in sorted((HERE / "orders").glob("*.json")):
                    if path.name not in self._seen:
                        self._seen.add(path.name)
                        group.create_task(self._serve(json.loads(path.read_text()), http))
                await asyncio.sleep(0.03)

    async def _serve(self, order: dict[str, Any], http: httpx.AsyncClient) -> None:
        rng = random.Random(f"{order['call']}")
        how = rng.choice(("once", "once", "twice", "differently", "race", "race", "late", "never"))
        left_s = order["made_s"] + order["park_s"] - time.monotonic()
        wait_s = {"race": left_s + rng.uniform(-0.12, 0.12), "late": left_s + 0.5}.get(how, rng.uniform(0, 0.5))
        if how == "never":
            return
        await asyncio.sleep(max(0.0, wait_s))
        first = self._answer(order, "first", http)
        if how in ("twice", "differently", "race"):
            await asyncio.gather(first, self._answer(order, "first" if how == "twice" else "second", http))
        else:
            await first

    async def _answer(self, order: dict[str, Any], word: str, http: httpx.AsyncClient) -> None:
        if "url" in order:
            response = await until_known(lambda: self._post(http, order["url"], word))
            BOOK.note("outcome", call=order["call"], code=response.status_code, word=word, how="url")
            return
        value, body = ("allow" if word == "first" else "deny", {}) if order["kind"] == "approval" else ("result", {"content": word})
        accepted = await until_known(
            lambda: accept_outcome(
                self._doors.yard, shard=0, store=order["store"], call=order["call"], outcome=value, body=body, secret_hash=order["secret"]
            )
        )
        BOOK.note("outcome", call=order["call"], code=accepted.code, word=word, how="state")

    async def _post(self, http: httpx.AsyncClient, url: str, word: str) -> httpx.Response:
        response = await http.post(url, json={"result": word})
        if response.status_code >= 500:
            raise StoreUnavailable(f"{response.status_code}")
        return response


async def main(url: str, http_url: str, seed: int, seconds: float, share: int, shares: int) -> None:
    """Run this process's share of the sessions to their end, then say so and go on answering orders."""
    yard = await until_known(lambda: Yard.open(url))
    async with contextlib.AsyncExitStack() as stack:
        clients = {tenant: await stack.enter_async_context(RedisClient(url, tenant=tenant)) for tenant in TENANTS}
        (HERE / f"load-{share}.ready").touch()
        while not (HERE / "go").exists():  # noqa: ASYNC110 - another process says when
            await asyncio.sleep(0.02)
        ends_s = time.monotonic() + seconds
        doors = Doors(yard, clients, await stack.enter_async_context(Client(http_url)))
        vendors = asyncio.create_task(Vendors(doors, random.Random(f"{seed} vendors")).run()) if share == 0 else None
        people = asyncio.create_task(People(doors).run()) if share == 0 else None
        names = [(tenant, f"s{i}", "bare" if i == 0 else "bot") for tenant in TENANTS for i in range(SESSIONS)]
        async with asyncio.TaskGroup() as group:
            for tenant, session, agent in names[share::shares]:
                rng = random.Random(f"{seed} {tenant} {session}")
                group.create_task(Talk(doors, tenant, session, agent, rng, ends_s).run())
        (HERE / f"load-{share}.done").touch()
        if vendors is not None and people is not None:
            await asyncio.gather(vendors, people)
    await yard.aclose()


__all__ = ["TENANTS", "session_key"]

if __name__ == "__main__":
    where, door, number, length, mine, of = sys.argv[1:]
    asyncio.run(main(where, door, int(number), float(length), int(mine), int(of)))
