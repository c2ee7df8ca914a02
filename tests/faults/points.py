"""Which moments of a golden run there are, and what is done at one of them.

A point is `ROLE:COMMAND#N:MODE`: the Nth time that this role sends this command in a run, and what happens there.
Only commands that change something are counted, a transaction as its EXEC; of those that are sent whether or not there is anything to do, only
those that find something (dispatch, take), or the first two (tick, beat).
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import redis

from tests.faults.checks import Cost
from tests.faults.deployment import Deployment
from tests.faults.proxy import KILL, LOSE, Command, Fault, signal_to
from turnyard.state.keys import PROCESSES, Keys

# Commands that change nothing.
READS = frozenset(
    (
        "hello",
        "client",
        "ping",
        "info",
        "config",
        "get",
        "mget",
        "hget",
        "hgetall",
        "hmget",
        "hlen",
        "hscan",
        "exists",
        "ttl",
        "pttl",
        "type",
        "time",
        "command",
        "select",
        "auth",
        "watch",
        "unwatch",
        "xread",
        "xrange",
        "xrevrange",
        "xlen",
        "zcard",
        "zcount",
        "zscore",
        "zrange",
        "zrangebyscore",
        "zmscore",
        "scard",
        "smembers",
        "sismember",
        "scan",
        "llen",
        "lrange",
        "dbsize",
        "inspect",
        "subscribe",
        "unsubscribe",
    )
)
POPS = frozenset(("blmpop", "blpop"))
EMPTY = frozenset((b"*-1\r\n", b"$-1\r\n", b"*0\r\n"))
TIMED = frozenset(("tick", "beat"))
FROZEN_S = 1.7  # longer than a lease and the tick that notices
FULL_S = 0.7
SLOW_S = 0.2
WHOLE_RUN = "run"


_FREE = Cost()
_CRASH = Cost(repeats=1, unknown=1)


@dataclass(frozen=True, slots=True)
class Mode:
    """Something done at a point: `stage` is before the command is forwarded or after its effect.

    `heal_s` is when it is undone; `cost` is what it may cost. Stage "run" is no moment: the whole run is slow.
    """

    stage: str
    fault: Callable[[Deployment], Fault]
    cost: Cost = _FREE
    heal: Callable[[Deployment, int], None] | None = None
    heal_s: float = 0.0


def _hold(deployment: Deployment) -> Fault:
    return Fault(lambda command: deployment.proxy.hold(lambda pid: pid == command.pid), cut=False)


def _restart(deployment: Deployment) -> Fault:
    return Fault(lambda _: deployment.kill_server())


def _flush(deployment: Deployment) -> Fault:
    def strike(_: Command) -> None:
        deployment.peek.execute_command("FUNCTION", "FLUSH")
        deployment.peek.script_flush()

    return Fault(strike, cut=False)


def _full(deployment: Deployment) -> Fault:
    return Fault(lambda _: deployment.peek.config_set("maxmemory", 1), cut=False)


def _room(deployment: Deployment, _: int) -> None:
    deployment.peek.config_set("maxmemory", 0)


def _continue(_: Deployment, pid: int) -> None:
    signal_to(signal.SIGCONT)(Command(pid, 0, 0, "", ()))


def _release(deployment: Deployment, _: int) -> None:
    deployment.proxy.release()


MODES: dict[str, Mode] = {
    "before": Mode("before", lambda _: KILL, _CRASH),
    "after": Mode("after", lambda _: KILL, _CRASH),
    "lose": Mode("after", lambda _: LOSE),
    "stop": Mode("before", lambda _: Fault(signal_to(signal.SIGSTOP), cut=False), _CRASH, _continue, FROZEN_S),
    "half-open": Mode("before", _hold, _CRASH, _release, FROZEN_S),
    "term": Mode("before", lambda _: Fault(signal_to(signal.SIGTERM), cut=False)),
    "restart": Mode("after", _restart),
    "flush": Mode("before", _flush),
    "full": Mode("before", _full, _FREE, _room, FULL_S),
    "slow": Mode("run", lambda _: LOSE),
}


@dataclass(frozen=True, slots=True)
class Point:
    """A moment, and what happens there."""

    moment: str
    mode: str

    @classmethod
    def parse(cls, name: str) -> Point:
        """Read a point's name."""
        moment, _, mode = name.rpartition(":")
        if mode not in MODES:
            raise ValueError(f"{name}: the mode {mode!r} is none of {', '.join(MODES)}")
        return cls(moment, mode)

    def __str__(self) -> str:
        """Return its name."""
        return f"{self.moment}:{self.mode}"


@dataclass
class Watch:
    """The proxy's hook: it names each command of a run, and strikes where it is told to."""

    deployment: Deployment
    plan: list[Point] = field(default_factory=list[Point])
    seen: list[str] = field(default_factory=list[str])
    struck: list[tuple[Point, int]] = field(default_factory=list[tuple[Point, int]])
    active: set[int] = field(default_factory=set[int])
    _counts: Counter[str] = field(default_factory=Counter[str])
    _labels: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    _queueing: set[int] = field(default_factory=set[int])
    _on: bool = False

    def begin(self, plan: list[Point]) -> None:
        """Count from here."""
        self.plan, self.seen, self.struck = [point for point in plan if point.moment != WHOLE_RUN], [], []
        self.deployment.proxy.delay_s = SLOW_S if any(point.mode == "slow" for point in plan) else 0.0
        self._counts.clear()
        self._labels.clear()
        self._on = True

    def end(self) -> None:
        """Let everything pass."""
        self._on = False
        self.deployment.proxy.delay_s = 0.0

    def __call__(self, command: Command, reply: bytes | None) -> Fault | None:
        """Take note of a command or its reply; see `proxy.Hook`."""
        self.active.add(command.pid)
        if not self._on:
            return None
        moment = self._before(command) if reply is None else self._after(command, reply)
        if moment is None:
            return None
        return self._strike(command, moment, "before" if reply is None else "after")

    def _before(self, command: Command) -> str | None:
        if command.what in READS | POPS or self._queued(command) or not self._busy(command):
            return None
        return self._name(command)

    def _queued(self, command: Command) -> bool:
        """Tell whether a command only joins a transaction, which is nothing before its EXEC."""
        if command.what == "multi":
            self._queueing.add(command.link)
        elif command.what == "exec":
            self._queueing.discard(command.link)
        return command.link in self._queueing

    def _after(self, command: Command, reply: bytes) -> str | None:
        if command.what in POPS:
            return None if reply in EMPTY else self._name(command)
        return self._labels.pop((command.link, command.nth), None)

    def _name(self, command: Command) -> str | None:
        role = self.deployment.role_of(command.pid)
        if role is None:
            return None
        kind = f"{role}:{command.what}"
        self._counts[kind] += 1
        if command.what in TIMED and self._counts[kind] > 2:
            return None
        moment = f"{kind}#{self._counts[kind]}"
        self._labels[command.link, command.nth] = moment
        self.seen.append(moment)
        return moment

    def _busy(self, command: Command) -> bool:
        """Tell whether a command that is sent again and again finds anything this time."""
        keys = Keys("0")
        if command.words[1:2] == (PROCESSES.encode(),):
            return False  # every process says now and then that it is there
        try:
            if command.what == "take":
                now = self.deployment.peek.time()
                lane = f"{keys.prefix}out:{command.words[4].decode()}"
                return bool(self.deployment.peek.zcount(lane, "-inf", now[0] * 1000 + now[1] // 1000))
            if command.what == "dispatch":
                return bool(self.deployment.peek.xlen(keys.ingress))
        except (redis.RedisError, OSError):
            return False
        return True

    def _strike(self, command: Command, moment: str, stage: str) -> Fault | None:
        if not self.plan or self.plan[0].moment != moment or MODES[self.plan[0].mode].stage != stage:
            return None
        point = self.plan.pop(0)
        self.struck.append((point, command.pid))
        return MODES[point.mode].fault(self.deployment)


# What happens in one run: one point, or a first one whose recovery is harmed in turn.
Plan = tuple[Point, ...]


def parse_plan(name: str) -> Plan:
    """Read the name of a point or of several that are joined by +."""
    return tuple(Point.parse(part) for part in name.split("+"))


def name_of(plan: Plan) -> str:
    """Return a plan's name."""
    return "+".join(map(str, plan))


def plans_of(golden: list[str]) -> list[Plan]:
    """Return the plans of a golden run's moments: a kill before and after each, other modes at the first of its kind."""
    points = [point for moment in golden for point in kills(moment)]
    for moment in golden:
        if moment.endswith("#1") and not _pops(moment):
            points += [Point(moment, mode) for mode in MODES if mode not in ("before", "after", "slow")]
    return [(point,) for point in [*points, Point(WHOLE_RUN, "slow")]]


def recoveries(first: Point, seen: list[str], golden: list[str]) -> list[Plan]:
    """Return plans that harm the recovery from a first point: its commands (`seen`) of a kind that a golden run (`golden`) has not."""
    kinds = {moment.partition("#")[0] for moment in golden}
    fresh = {kind: moment for moment in reversed(seen) if (kind := moment.partition("#")[0]) not in kinds}
    return [(first, point) for moment in reversed(fresh.values()) for point in kills(moment)]


def kills(moment: str) -> list[Point]:
    """Return the kills at a moment; one that only brings something is nothing before it did."""
    return [Point(moment, mode) for mode in ("before", "after") if mode == "after" or not _pops(moment)]


def _pops(moment: str) -> bool:
    return moment.partition("#")[0].rpartition(":")[2] in POPS
