"""Replies go out at least once and in order, each under an id of its own, whatever happens to those who send them.

Senders are played here: they take a session on loan, send its replies one by one to a receiver that may throttle them,
and note how far they came. They crash or stall at any moment; a stalled one goes on when its loan is long over.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from tests.protocol.scene import Scene
from turnyard.records.log import ASSISTANT, LogRecord
from turnyard.state import fleet
from turnyard.state.lanes import LEASE_MS, LaneItem, sent, take_lane

LANE = "chat"


@dataclass
class Receiver:
    """A chat that hears replies: what arrived first under each id, in order, per session."""

    heard: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    ids: set[str] = field(default_factory=set[str])
    repeats: int = 0

    def hear(self, store: str, record: LogRecord) -> None:
        """Take one reply; one whose id is known is dropped."""
        name = f"{store}:{record.seq}"
        if name in self.ids:
            self.repeats += 1
            return
        self.ids.add(name)
        self.heard.setdefault(store, []).append(record.body["text"])


@dataclass
class Sender:
    """One sender, in the middle of something or not."""

    item: LaneItem | None = None
    unsent: list[LogRecord] = field(default_factory=list[LogRecord])
    upto: int = 0

    async def act(self, scene: Scene, receiver: Receiver, rng: random.Random, *, faulty: bool = True) -> None:
        """Do the next thing; a faulty one may fail at it."""
        shard = scene.yard.shards[0]
        if self.item is None:
            if found := await take_lane(shard, LANE, limit=1):
                self.item, self.upto = found[0], found[0].cursor
                self.unsent = [r for r in found[0].records if r.type == ASSISTANT]
        elif faulty and rng.random() < 0.1:
            self.item = None  # it crashes with all that it knew
        elif faulty and self.unsent and rng.random() < 0.15:
            await sent(shard, LANE, self.item, upto=self.upto, delay_ms=rng.choice((0, 2000)))  # it is throttled
            self.item = None
        elif self.unsent:
            record = self.unsent.pop(0)
            receiver.hear(self.item.store, record)
            self.upto = record.seq
        else:
            await sent(shard, LANE, self.item)
            self.item = None


@pytest.mark.spec("I9", "trap-31")
@pytest.mark.parametrize("seed", range(4))
async def test_a_receiver_that_drops_repeats_hears_each_reply_once_and_in_order(scene: Scene, seed: int) -> None:
    rng = random.Random(seed)
    owner = await scene.worker()
    receiver, senders = Receiver(), [Sender() for _ in range(3)]
    said = dict.fromkeys(range(4), 0)
    stores: dict[int, str] = {}
    while sum(said.values()) < 40:
        await fleet.beat(scene.yard.shards[0], owner, held=-1)
        n = rng.randrange(4)
        view = await scene.open_turn(owner, session=f"s{n}")
        stores[n] = view.store
        await scene.reply(view, f"{said[n]}", lanes=(LANE,))
        said[n] += 1
        for _ in range(rng.randrange(8)):
            await rng.choice(senders).act(scene, receiver, rng)
        if rng.random() < 0.2:
            await scene.pass_ms(rng.choice((500, 5000)))
        if rng.random() < 0.1:
            # All loans end while somebody is in the middle of a session; he goes on later as if nothing had happened.
            await fleet.beat(scene.yard.shards[0], owner, held=-1, lease_ms=10 * LEASE_MS)
            await scene.pass_ms(LEASE_MS + 1)
    calm = Sender()
    while calm.item or await scene.yard.redis.zcard(f"{scene.yard.shards[0].keys.prefix}out:{LANE}"):
        await scene.pass_ms(0 if calm.item else LEASE_MS + 1)
        await calm.act(scene, receiver, rng, faulty=False)
    assert receiver.heard == {stores[n]: [str(i) for i in range(count)] for n, count in said.items() if count}
    assert receiver.repeats > 0, "nothing was ever sent twice, so this shows nothing"


@pytest.mark.spec("I9", "rival-43")
async def test_the_ids_of_replies_are_those_of_their_sessions_so_that_no_two_are_the_same(scene: Scene) -> None:
    owner = await scene.worker()
    for tenant in ("a", "b"):
        for session in ("x", "y"):
            await scene.reply(await scene.open_turn(owner, session=session, tenant=tenant), "same", lanes=(LANE,))
    items = await take_lane(scene.yard.shards[0], LANE)
    names = [f"{item.store}:{r.seq}" for item in items for r in item.records if r.type == ASSISTANT]
    assert len(names) == len(set(names)) == 4
