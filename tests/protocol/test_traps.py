"""Each trap is walked into, on the model and on a real server in step: both survive it, and agree after every step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.protocol.actors.actions import WRITES
from tests.protocol.differential import Differs, Twin
from tests.protocol.traps import TRAPS, Trap
from turnyard.state import scripts

Snapshot = dict[bytes, bytes]


class RewindingTwin(Twin):
    """A twin whose server can be brought back to where it was before one of the last writes, as a failover does."""

    def __init__(self, client: redis.Redis, trap: Trap) -> None:
        self.before: list[Snapshot] = []
        super().__init__(client, trap.config)

    def step(self, action: tuple) -> None:
        if self.env["keep"] and action[0] in WRITES:
            self.before = [self._snapshot(), *self.before][: self.env["keep"]]
        if action[0] == "rewind":
            self._rewind(self.before[action[1] - 1])
            self.before = self.before[action[1] :]
        super().step(action)

    def _snapshot(self) -> Snapshot:
        r = self.mirror.redis
        return {key: r.dump(key) for key in r.keys("*")}

    def _rewind(self, snapshot: Snapshot) -> None:
        r = self.mirror.redis
        r.flushall()
        for key, value in snapshot.items():
            r.restore(key, 0, value)
        self.mirror.clock(self.shard["now"])


def walk(client: redis.Redis, trap: Trap) -> None:
    """Walk the trap to rest on both sides."""
    twin = RewindingTwin(client, trap)
    for action in trap.actions():
        twin.step(action)
    trap.check(twin.shard, twin.env)


@pytest.fixture
def client(clean: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(clean, socket_timeout=10) as client:
        yield client


@pytest.mark.parametrize("trap", [pytest.param(trap, id=f"{trap.id} {trap.name}", marks=pytest.mark.spec(trap.id)) for trap in TRAPS])
def test_model_and_server_walk_into_the_trap_and_come_out(client: redis.Redis, trap: Trap) -> None:
    walk(client, trap)


# Each takes the rule that saves a trap out of the Lua; the walk into that trap must then go wrong.
BROKEN: dict[str, tuple[tuple[str, str], ...]] = {
    "trap-1": (("for i = 1, math.min(#batch, limit) do", "for i = math.min(#batch, limit), 1, -1 do"),),
    "trap-2": (("for i = 1, math.min(#batch, limit) do", "for i = math.min(#batch, limit), 1, -1 do"),),
    "trap-6": (("if h.st == 'assigned' then\n      release(h)\n      if h.tu", "if false then\n      release(h)\n      if h.tu"),),
    "trap-7": (("h.ow ~= owner or not lease", "not lease"),),
    "trap-8": (("if h.st == 'idle' and (wakes(h) or next_due(h)) then", "if wakes(h) or next_due(h) then"),),
    "trap-12": (("if not wakes(h) then\n    local it = due_item(h)", "if false then\n    local it = due_item(h)"),),
    "trap-17": (("if h.rv ~= k - 1 or h[le] ~= base then return {'DIVERGED'} end", ""),),
    "trap-18": (("if done == mark then return answer(h, 'ALREADY', how, base) end", ""),),
    "trap-21": (("elseif h.st == 'running' and h.ow == owner then", "elseif false then"),),
    "trap-23": (("r.tk and not (r.tk == owner and r.tj == task)", "false"),),
    "trap-24": (("elseif h.st == 'parked' and h.aw == 0 then", "elseif h.st == 'parked' then"),),
    "trap-25": (("and h.tu ~= '' and h.aw > 0 then overtake(h, {it}) end", "and false then overtake(h, {it}) end"),),
    "trap-26": (("r.s, r.aw = 'allowed', 0", "r.s, r.aw = 'started', 0"),),
    "trap-27": (("put(h, {k = 'note', c = e.c, o = r.o, st = e.st,", "put(h, {k = 'note', c = e.c, o = r.o, st = tostring(h.so),"),),
    "trap-29": (
        ("if turn == '' or h.tu ~= turn then return false end", "turn = h.tu"),
        ("return h.ct ~= '' and h.ct == h.tu", "return h.cc ~= ''"),
    ),
    "trap-30": (("elseif was_cancelled then", "elseif false then"),),
    "trap-33": (
        (
            "if not e.be and drop_notice(h, e.gr, e.ky, e.b, e.un) then return end",
            "if drop_notice(h, e.gr, e.ky, e.b, e.un) or h.tu ~= '' then return end",
        ),
    ),
    "trap-34": (("w = e.wk or '0'", "w = e.wk or '1'"),),
    "trap-35": (("    release(h)\n    to_ready(h)\n    leave_wake()\n    return 'yield'", "    return 'yield'"),),
    "trap-38": (("if h.st == 'assigned' then\n      release(h)\n      if h.tu", "if false then\n      release(h)\n      if h.tu"),),
    "trap-39": (("due = math.min(first + longest, NOW + window)", "due = NOW + window"),),
    "trap-43": (("if h.aw == 0 then\n    claim(h)\n    return 'none'\n  end\n", ""),),
    "trap-44": (
        (
            "      put_row(h, r)\n      calls[#calls + 1] = c.id",
            "    put_row(h, r)\n    if c.aw == 1 then add(h, 'aw', 1) end\n    calls[#calls + 1] = c.id",
        ),
        ("if r.aw == 1 and r.de ~= 1 then add(h, 'aw', 1) end", ""),
    ),
    "trap-45": (("if r.o then return false end\n  r.o = outcome", "r.o = outcome"),),
    "trap-46": (("if h.pe ~= '' then settled_rows(h) end\n", ""), ("if h.pe ~= '' then return end\n  if h.ib", "if h.ib")),
    "trap-47": (("if h.pe ~= '' then return end\n  if h.ib", "if h.ib"),),
    "trap-48": (("if not wakes(h) then\n    local it = due_item(h)", "if false then\n    local it = due_item(h)"),),
    "trap-49": (("wakes(h) and not closing and not tired", "wakes(h) and not tired"),),
    "trap-50": (("same = h.nj == 0 and (h.ib == '' or h.ib == it.st)", "same = true"),),
    "trap-51": (
        ("if h.st ~= 'running' or h.ep ~= epoch", "if h.ep ~= epoch"),
        ("set(h, 'ow', '')\n  set(h, 'sl', NOW)", "set(h, 'sl', NOW)"),
    ),
    "trap-52": (("if not lease or lease == '-inf' then return {'FENCED'} end\n  local h = load(sid)", "local h = load(sid)"),),
    "trap-53": (("if call('SCARD', key) == 0 then\n    call('ZREM', WORKERS, owner)", "if true then\n    call('ZREM', WORKERS, owner)"),),
    "trap-54": (
        ("  if not score or score == '-inf' then return {'LOST'} end\n  call('ZADD', WORKERS, 'XX', 'GT',", "  call('ZADD', WORKERS,"),
    ),
    "trap-55": (("r.s, r.aw = 'allowed', 0", "r.s, r.aw = 'started', 0"),),
    "trap-56": (("unstart_rows(a.unstart or {})", ""),),
    "trap-57": (
        (
            "for _, c in ipairs(waiting(h, h.ts)) do\n    local r = row(h, h.ts, c)\n    if r and r.aw == 1 and r.s == 'parked' then",
            "for _, c in ipairs(split(h.pe)) do\n    local r = row(h, h.ts, c)\n    if r and r.aw == 1 then",
        ),
    ),
    "trap-58": (("if turn == '' or h.tu ~= turn then return false end", "turn = h.tu"),),
    "trap-59": (("function(r) return r.t == turn end", "function(r) return true end"),),
    "trap-60": (("  job_open(r, -1)\n  finish_waiting(h, r, cause)\nend\nlocal function call_off", "end\nlocal function call_off"),),
    "trap-61": (("if h.st == 'ready' and h.tu == '' and not wakes(h) and not next_due(h) then", "if false then"),),
    "trap-64": (("r.re, r.nb = r.re + 1, nil", "r.nb = nil"),),
    "trap-65": (("  if not APPLY[e.kind] or e.v ~= '1' or not e.sid or #e.sid ~= 26 then return false end\n", ""),),
    "trap-69": (("r.tk and not (r.tk == owner and r.tj == task)", "r.tk and r.tk ~= owner"),),
    "trap-70": (("if due0 and due0 <= NOW then due = due0 end", ""),),
    "trap-71": (("r.s, r.aw = 'allowed', 0", "r.s = 'allowed'"),),
    "trap-72": (("settle_rows(a.settle or {})", ""),),
    "trap-73": (("set(h, 'ck', how.strike or again and h.ck or '')", "set(h, 'ck', how.strike or '')"),),
    "trap-74": (("return r and r.t == h.tu\nend\nlocal function give_back", "return true\nend\nlocal function give_back"),),
    "trap-75": (("if r and r.sk == 1 then", "if false then"),),
    "trap-76": (("if body and not replaced and x.st == store then", "if body and not replaced then"),),
    "trap-77": (("elseif h.st == 'assigned' and not cancelled(h) then", "elseif false then"),),
}


@pytest.mark.parametrize("row", BROKEN)
def test_without_its_rule_on_the_server_the_trap_snaps(client: redis.Redis, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = scripts.library_source()
    for was, becomes in BROKEN[row]:
        assert was in broken, f"the Lua no longer says {was!r}"
        broken = broken.replace(was, becomes)
    monkeypatch.setattr(scripts, "library_source", lambda: broken)
    for trap in (trap for trap in TRAPS if trap.id == row):
        try:
            walk(client, trap)
        except (Differs, redis.ResponseError, AssertionError):
            return
    pytest.fail("the broken server came out of it")
