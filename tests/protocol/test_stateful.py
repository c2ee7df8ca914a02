"""Does the protocol hold on longer runs, with more sessions, more faults and deeper failovers than a search can reach?"""

import os

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.protocol.actors import CALLS, FAULTY, Action, Config, Event, act, enabled, message, new_world, plan_more, quiesce
from tests.protocol.model import Rules

SIDS = ("x", "y", "z")
MODES = ("steer", "steer", "follow_up", "interrupt", "collect", "later", "rollback")
CONTROLS = ("cancel", "new", "canceljob", "pause", "notice", "clear")
MAX_MESSAGES = 15
CALM_STEPS = 12


class Shard(RuleBasedStateMachine):
    """A fleet under hypothesis: it sends, lets things happen, breaks things, and in the end lets all come to rest."""

    @initialize(
        cap=st.integers(1, 2),
        capacity=st.integers(1, 2),
        approve=st.sampled_from(["allow", "deny"]),
        budget=st.integers(0, 5),
        rewinds=st.booleans(),
        events=st.booleans(),
        versions=st.booleans(),
    )
    def start(self, cap: int, capacity: int, approve: str, budget: int, rewinds: bool, events: bool, versions: bool) -> None:
        self.protocol = Rules()
        self.sent = 0
        config = Config(
            cap=cap,
            sids=SIDS,
            plan=[],
            workers=("A", "B", "C"),
            lifters=("L", "M"),
            capacity=capacity,
            budget=budget,
            hist=8 if rewinds else 0,
            approve=approve,
            events=events,
            vers={"A": 1, "B": 2, "C": 1} if versions else None,
        )
        self.shard, self.env = new_world(config)

    def do(self, action: Action) -> None:
        act(self.shard, self.env, self.protocol, action)

    @rule(sid=st.sampled_from(SIDS), does=st.sampled_from(sorted(CALLS)), mode=st.sampled_from(MODES), asker=st.booleans())
    def message(self, sid: str, does: str, mode: str, asker: bool) -> None:
        if self.sent < MAX_MESSAGES:
            self.sent += 1
            self.do(plan_more(self.env, message(sid, f"m{self.sent}", does, mode, asker=asker)))

    @rule(sid=st.sampled_from(SIDS), kind=st.sampled_from(CONTROLS), n=st.integers(1, MAX_MESSAGES))
    def control(self, sid: str, kind: str, n: int) -> None:
        event: Event = {"id": f"k{len(self.env['plan'])}", "kind": kind, "sid": sid, "group": sid + "g"}
        if kind == "canceljob":
            own = [queue[0] for queue in self.env["plan"] if queue[0].get("mid") == f"m{n}" and queue[0]["kind"] == "user"]
            if not own:
                return
            event.update(mid=f"m{n}", sid=own[0]["sid"])
        self.do(plan_more(self.env, event))

    @rule(data=st.data(), steps=st.integers(1, 6))
    def step(self, data: st.DataObject, steps: int) -> None:
        for _ in range(steps):
            actions = enabled(self.shard, self.env)
            if not actions:
                return
            self.do(data.draw(st.sampled_from(actions)))

    @rule(turn=st.integers(0, 20))
    def calm(self, turn: int) -> None:
        """Let the healthy actors get on, so that runs get deep."""
        for _ in range(CALM_STEPS):
            actions = [action for action in enabled(self.shard, self.env) if action[0] not in FAULTY]
            if not actions:
                return
            self.do(actions[turn % len(actions)])

    def teardown(self) -> None:
        if hasattr(self, "shard"):
            quiesce(self.shard, self.env, self.protocol)


# The quick profile tries the same examples each time; the thorough one looks for new ones.
THOROUGH = bool(os.environ.get("THOROUGH"))
TestShard = Shard.TestCase
TestShard.settings = settings(stateful_step_count=30, database=None, derandomize=not THOROUGH)
TestShard = pytest.mark.timeout(1800 if THOROUGH else 180)(TestShard)
