"""One deployment on a real server with its clock held: the words in which tests tell what happens to a session.

Every word is one call of a typed function of `turnyard.state`. A scene ends with two checks: no invariant is broken, and every key
that is left has a lifetime.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import AsyncIterator
from typing import Any

import orjson
from redis import exceptions as rx

from turnyard.records.commit import Answer, Commit, NewCall, Park, Say, TurnView
from turnyard.records.ids import call_id, hash_secret, job_shard, new_job_id, new_owner_id, session_key, store_key
from turnyard.records.jobs import Job
from turnyard.records.log import LogRecord
from turnyard.records.messages import Accepted, UserMessage
from turnyard.state import calls, fleet, flows, ingress, turns, upkeep
from turnyard.state.audit import audit, inspect
from turnyard.state.fleet import Assignment, Lists, Registration, register
from turnyard.state.jobs import read_job
from turnyard.state.keys import LIFETIMES
from turnyard.state.log import read_log
from turnyard.state.oracles import LATE
from turnyard.state.schema import THIS_VERSION, Schemas
from turnyard.state.scripts import Library
from turnyard.state.yard import Shard, Yard

START_MS = 1_800_000_000_000
CLOCK = "local function now() return tonumber(call('GET', P .. 'test:now')) end\n"
DAY_MS = 86_400_000
SECRET = b"s" * 32
OK = {"content": "done", "is_error": False}


class Scene:
    """A yard, its sessions and its workers. Sessions are named by their readable id, `s` where none is said."""

    def __init__(self, yard: Yard, url: str) -> None:
        self.yard = yard
        self.url = url
        self.now_ms = START_MS
        self._lists: dict[str, Lists] = {}
        self._serials: dict[str, int] = {}
        self._taken: dict[tuple[str, str], Assignment] = {}
        self._owners: dict[tuple[str, int], str] = {}

    @classmethod
    async def open(cls, url: str, *, shards: int | None = None, schemas: Schemas = THIS_VERSION) -> Scene:
        scene = cls(await Yard.open(url, shards=shards, library=Library(clock_lua=CLOCK), schemas=schemas), url)
        await scene.pass_ms(0)
        return scene

    async def close(self) -> None:
        """Check what must hold whatever happened, and let go."""
        try:
            # Held time may jump by days, so that what is late says nothing here.
            found = [f for f in await audit(self.yard, limit=200, logs=2000) if f.invariant not in LATE]
            assert not found, found
            assert await self.leaks() == []
        finally:
            await self.yard.aclose()

    # -- time and the server

    async def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        for shard in self.yard.shards:
            await shard.redis.set(shard.keys.prefix + "test:now", self.now_ms)

    async def servers(self) -> list[Any]:
        """Return a client of each server that holds anything of this deployment."""
        clients = [self.yard.redis, *(shard.redis for shard in self.yard.shards)]
        return list({await client.connection_pool.address(): client for client in clients}.values())

    async def leaks(self) -> list[str]:
        """Return the keys that no row of LIFETIMES knows, or that should have a TTL and have none."""
        found: list[str] = []
        for redis in await self.servers():
            for key in [k.decode() for k in await redis.keys("*") if not k.endswith(b"test:now")]:
                row = next((life for pattern, life in LIFETIMES.items() if re.fullmatch(pattern, key)), None)
                if row is None or (row.startswith("TTL") and "end" not in row and await redis.ttl(key) < 0):
                    found.append(key)
        return found

    async def snapshot(self) -> dict[bytes, tuple[bytes, int]]:
        """Return every key as it is, for `rewind`."""
        found: dict[bytes, tuple[bytes, int]] = {}
        for redis in await self.servers():
            found |= {key: (await redis.dump(key), max(0, await redis.pexpiretime(key))) for key in await redis.keys("*")}
        return found

    async def rewind(self, snapshot: dict[bytes, tuple[bytes, int]]) -> None:
        """Bring the server back to a snapshot, as a failover that lost the last writes does; its clock goes on."""
        for redis in await self.servers():
            await redis.flushall()
        homes = {shard.keys.prefix.encode(): shard.redis for shard in self.yard.shards}
        for key, (value, ttl) in snapshot.items():
            home = homes.get(key.partition(b"}")[0] + b"}:", self.yard.redis)
            await home.restore(key, ttl, value, absttl=ttl > 0)
        await self.pass_ms(0)

    async def forget_scripts(self) -> None:
        """A server that was replaced by one without our functions."""
        await self.yard.redis.function_flush()

    @contextlib.asynccontextmanager
    async def full_server(self) -> AsyncIterator[None]:
        """A server at its memory limit."""
        await self.yard.redis.config_set("maxmemory", 1)
        try:
            yield
        finally:
            await self.yard.redis.config_set("maxmemory", 0)

    @contextlib.contextmanager
    def lost_reply(self, replies: int = 1) -> Any:
        """The next `replies` round trips reach the server, and their replies do not come back."""
        scripts = self.yard.shards[0].scripts
        send = scripts._send
        left = [replies]

        async def lossy(commands: Any) -> Any:
            got = await send(commands)
            if left[0] and commands[0][0] == "FCALL" and not any(isinstance(reply, rx.ResponseError) for reply in got):
                left[0] -= 1
                raise rx.ConnectionError("the connection broke")
            return got

        scripts._send = lossy  # type: ignore[method-assign]
        try:
            yield
            assert left == [0], "no reply was lost"
        finally:
            scripts._send = send  # type: ignore[method-assign]

    async def commands(self) -> int:
        """Return how many commands the server has carried out since its last reset, those inside scripts included."""
        stats = await self.yard.redis.info("commandstats")
        ignored = ("info", "config", "get", "set", "function", "fcall", "time")
        return sum(s["calls"] for name, s in stats.items() if name.removeprefix("cmdstat_").partition("|")[0] not in ignored)

    # -- what clients say

    async def say(self, text: str = "hello", *, session: str = "s", inbox_cap: int = ingress.INBOX_CAP, **more: Any) -> Accepted:
        return await ingress.accept_message(self.yard, self.message(text, session=session, **more), inbox_cap=inbox_cap)

    def message(self, text: str = "hello", *, session: str = "s", tenant: str = "default", agent: str = "bot", **more: Any) -> UserMessage:
        shard = self.shard(session, tenant)
        fields = {"job": new_job_id(shard.n), "body": {"text": text}, "body_hash": text, "user": "ann"} | more
        return UserMessage(tenant=tenant, session=session, agent=agent, **fields)

    async def control(self, control: Any, *, session: str = "s", event: str | None = None, turn: str | None = None) -> Accepted:
        event = event or secrets.token_hex(4)
        return await ingress.accept_control(self.yard, tenant="default", session=session, control=control, event=event, turn=turn)

    async def cancel(self, **more: Any) -> Accepted:
        """Cancel the session's open turn; `more` says why, and what else goes."""
        return await ingress.accept_control(self.yard, tenant="default", session="s", control="cancel", event=secrets.token_hex(4), **more)

    async def cancel_job(self, accepted: Accepted, **more: Any) -> Accepted:
        assert accepted.job is not None
        return await ingress.cancel_job(self.yard, accepted.job, tenant="default", **more)

    async def notice(self, text: str, *, session: str = "s", key: str = "k", clear: bool = False, event: str | None = None) -> Accepted:
        event = event or secrets.token_hex(4)
        return await ingress.accept_notice(
            self.yard,
            tenant="default",
            session=session,
            agent="bot",
            group="g",
            key=key,
            body={"text": text},
            event=event,
            clear=clear,
        )

    async def outcome(self, view: TurnView | str, call: str, value: str = "result", *, session: str = "s", **more: Any) -> Accepted:
        """Say how a call ended, as its callback does; without a secret where `owner` or `secret_hash=None` says so."""
        store = view if isinstance(view, str) else view.store
        fields: dict[str, Any] = {"body": OK, "secret_hash": None if "owner" in more else hash_secret(SECRET)} | more
        shard = self.shard(session).n
        return await ingress.accept_outcome(self.yard, shard=shard, store=store, call=call, outcome=value, **fields)

    # -- what the roles do

    async def dispatch(self, shard: Shard | None = None) -> flows.Dispatched:
        """Drain what was accepted, and admit; return what the last call answered."""
        while (done := await flows.dispatch(shard or self.yard.shards[0])).left:
            pass
        return done

    async def tick(self, *dead: str, who: Any = "dispatcher", shard: Shard | None = None, **more: Any) -> upkeep.Ticked:
        return await upkeep.tick(shard or self.yard.shards[0], dead=dead, who=who, **more)

    async def worker(self, *, capacity: int = 50, serial: int = 0, role: str = "worker", shard: Shard | None = None, **more: Any) -> str:
        """Start an incarnation, and return its id."""
        owner = new_owner_id()
        fields: dict[str, Any] = {"pools": ("default",), "agents": {"bot": serial}, "host": "host"} | more
        registration = Registration(owner=owner, role=role, pid=1, supervisor_pid=1, capacity=capacity, **fields)
        for each in [shard] if shard else self.yard.shards:
            await register(each, registration)
        self._lists[owner], self._serials[owner] = Lists(registration), serial
        return owner

    async def take(self, owner: str, session: str = "s", tenant: str = "default") -> Assignment | None:
        """Take the session's assignment off the lists this worker serves, if it lies there."""
        shard, sid = self.shard(session, tenant), session_key(tenant, session)
        while found := await shard.redis.lmpop(len(keys := self._lists[owner].keys(shard)[1:]), *keys, direction="LEFT", count=100):
            agent = found[0].decode().rpartition(":")[2].partition("@")[0]
            for raw in found[1]:
                who, _, epoch = raw.decode().partition(" ")
                self._taken[owner, who] = Assignment(who, int(epoch), agent)
        return self._taken.pop((owner, sid), None)

    async def begin(self, owner: str, session: str = "s", *, tenant: str = "default", known: TurnView | None = None) -> TurnView | None:
        """Take the session's assignment and begin it; None when there is none, or it is refused."""
        assignment = await self.take(owner, session, tenant)
        return None if assignment is None else await self.begin_as(owner, assignment.epoch, session, tenant=tenant, known=known)

    async def begin_as(
        self, owner: str, epoch: int, session: str = "s", *, tenant: str = "default", known: TurnView | None = None
    ) -> TurnView | None:
        shard, sid = self.shard(session, tenant), session_key(tenant, session)
        view = await turns.begin(shard, sid, epoch=epoch, owner=owner, serial=self._serials[owner], known=known)
        if view is not None:
            self._owners[sid, epoch] = owner
        return view

    async def start(self, owner: str, session: str = "s", *, tenant: str = "default", known: TurnView | None = None) -> TurnView:
        """Dispatch, take and begin: the session's turn runs at this worker."""
        await self.dispatch(self.shard(session, tenant))
        view = await self.begin(owner, session, tenant=tenant, known=known)
        assert view is not None, f"{session} was not admitted: {await self.head(session, tenant)}"
        return view

    async def open_turn(self, owner: str, text: str = "hello", *, session: str = "s", **more: Any) -> TurnView:
        """A message, and the turn it opens."""
        assert (await self.say(text, session=session, **more)).code == "accepted"
        return await self.start(owner, session, tenant=more.get("tenant", "default"))

    async def commit(self, view: TurnView, change: Commit | None = None, *, owner: str | None = None, **fields: Any) -> TurnView:
        shard = self.yard.shard_for(view.session)
        return await turns.commit(shard, view, owner or self._owners[view.session, view.epoch], change or Commit(**fields))

    async def ask(self, view: TurnView, *made: NewCall, **fields: Any) -> TurnView:
        """The model answers with calls."""
        return await self.commit(view, append=(Say({"text": ""}, made),), **fields)

    async def reply(self, view: TurnView, text: str = "bye", **fields: Any) -> TurnView:
        """The model answers in words, which ends the turn."""
        return await self.commit(view, append=(Say({"text": text}),), ending="finish", **fields)

    async def close_turn(self, view: TurnView, **fields: Any) -> TurnView:
        """What a worker does that hears of a cancel."""
        return await self.commit(view, ending="finish", closing=True, **fields)

    async def park(self, view: TurnView, *names: str, ending: Any = "park", **fields: Any) -> TurnView:
        """Park awaited calls, each with a token whose secret is SECRET."""
        parks = tuple(Park(name, DAY_MS, hash_secret(SECRET)) for name in names)
        return await self.commit(view, park=parks, ending=ending, **fields)

    async def launch(self, view: TurnView, call: str, *, deadline_ms: int = DAY_MS, secret: bool = True, **fields: Any) -> TurnView:
        """Park a detached call and answer it with its placeholder."""
        parked = Park(call, deadline_ms, hash_secret(SECRET) if secret else None)
        return await self.commit(view, append=(Answer(call, "placeholder", {"content": "later"}),), park=(parked,), **fields)

    async def begin_row(self, view: TurnView | str, call: str, *, owner: str, task: str = "task-1") -> calls.RowStart:
        store = view if isinstance(view, str) else view.store
        return await calls.begin_row(self.yard.shard_for(store.partition(".")[0]), store, call, owner=owner, task=task)

    async def told(self, owner: str) -> list[fleet.Cancelled]:
        """Return the cancels that were pushed to a worker."""
        found = await fleet.take(self.yard.shards[0], self._lists[owner], free=0, block_ms=1)
        return [item for item in found if isinstance(item, fleet.Cancelled)]

    # -- what can be seen

    @property
    def owners(self) -> list[str]:
        """Every incarnation this scene started, the first one first."""
        return list(self._lists)

    def hears(self, owner: str, lists: tuple[str, ...]) -> None:
        """Let a worker take from these lists, too, as its beat told it."""
        self._lists[owner].extra = lists

    def shard(self, session: str = "s", tenant: str = "default") -> Shard:
        return self.yard.shard_for(session_key(tenant, session))

    def sid(self, session: str = "s", tenant: str = "default") -> str:
        return session_key(tenant, session)

    async def head(self, session: str = "s", tenant: str = "default") -> dict[str, str]:
        shard = self.shard(session, tenant)
        raw = await shard.redis.hgetall(shard.keys.head(session_key(tenant, session)))
        return {k.decode(): v.decode() for k, v in raw.items()}

    async def state(self, session: str = "s", tenant: str = "default") -> str:
        return (await self.head(session, tenant)).get("st", "idle")

    async def facts(self, session: str = "s") -> dict[str, Any]:
        found = await inspect(self.shard(session), session_key("default", session))
        assert found is not None
        return found

    async def rows(self, session: str = "s", ordinal: int = 0) -> dict[str, dict[str, Any]]:
        shard = self.shard(session)
        raw = await shard.redis.hgetall(shard.keys.calls(store_key(session_key("default", session), ordinal)))
        return {k.decode(): orjson.loads(v) for k, v in raw.items() if k != b"_" and b":" not in k}

    async def job(self, accepted: Accepted, tenant: str = "default") -> Job:
        assert accepted.job is not None
        assert job_shard(accepted.job) is not None
        found = await read_job(self.yard, accepted.job, tenant=tenant)
        assert found is not None
        return found

    async def log(self, session: str = "s", ordinal: int = 0, *, tenant: str = "default") -> list[LogRecord]:
        return await read_log(self.shard(session, tenant), store_key(session_key(tenant, session), ordinal), limit=10_000)

    async def entries(self, session: str = "s", ordinal: int = 0) -> list[str]:
        """Return the entries of a log as words: what a user wrote, `=text` what the model said, `call:outcome` of a result."""
        return [word(record) for record in await self.log(session, ordinal) if record.is_entry]

    async def running(self, shard: Shard | None = None) -> int:
        home = shard or self.yard.shards[0]
        return await home.redis.zcard(home.keys.prefix + "running")

    async def ingress(self) -> int:
        home = self.yard.shards[0]
        return await home.redis.xlen(home.keys.ingress)

    async def dead(self) -> list[dict[bytes, bytes]]:
        home = self.yard.shards[0]
        return [fields for _, fields in await home.redis.xrange(home.keys.prefix + "dead")]


def word(record: LogRecord) -> str:
    """Return one entry in a word."""
    if record.type == "tool/result":
        return f"{record.call}:{record.outcome}"
    text = record.body.get("text", "")
    return {"user/message": text, "assistant/message": f"={text}", "notification": f"!{text}"}.get(record.type, f"?{record.call}")


def shown(view: TurnView) -> list[str]:
    """Return what a worker would show its model, in words."""
    return [word(record) for record in view.entries]


def call(view: TurnView, i: int = 0, kind: Any = "plain", *, awaited: bool = False, idempotent: bool = False, **more: Any) -> NewCall:
    """Return a call as the next commit on `view` would declare it."""
    name = call_id(view.store, view.turn, view.rev + 1, i)
    return NewCall(name, kind, {"name": f"tool{i}", "args": {"i": i}, "provider_id": f"p{i}"}, awaited, idempotent, **more)
