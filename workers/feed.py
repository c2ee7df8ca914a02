"""How followers hear an answer while it is being given.

Deltas may be lost, answers may not: what is said here is only ever a preview of a record that the next commit writes.
So nothing waits for it: pieces of all turns are gathered, joined, and written a few times a second while somebody
follows, and dropped when that cannot keep up. Who begins to follow in the middle of an answer hears it from its start.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from turnyard.errors import StoreUnavailable
from turnyard.records.live import Live
from turnyard.state import turns
from turnyard.text import scrub

if TYPE_CHECKING:
    from turnyard.ports import Clock, Delta
    from turnyard.records.commit import TurnView
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.workers")

_FLUSH_S = 0.04
_ASK_EVERY_S = 1.0
_MOST_CHARS = 32 * 1024  # of one turn, kept until it is written; longer previews have a hole
_AT_ONCE = 16


class Voice:
    """What one model call has said and nobody was told yet."""

    __slots__ = ("_chars", "_k", "_pending", "followed_until_s", "shard", "view")

    def __init__(self, shard: Shard, view: TurnView, *, now_s: float) -> None:
        self.shard = shard
        self.view = view
        self.followed_until_s = now_s + int(view.head.get("followed_for") or 0) / 1000
        self._k = 0
        self._pending: list[tuple[str, int, list[str]]] = []
        self._chars = 0

    def say(self, delta: Delta) -> None:
        """Take a piece; it joins the piece before it when both belong to one block."""
        if self._chars > _MOST_CHARS:
            return
        self._chars += len(delta.text)
        last = self._pending[-1] if self._pending else None
        if last is not None and delta.kind != "progress" and (last[0], last[1]) == (delta.kind, delta.index):
            last[2].append(delta.text)
        else:
            self._pending.append((delta.kind, delta.index, [delta.text]))

    def collect(self) -> list[Live]:
        """Return what was said since the last time, numbered on."""
        said, self._pending, self._chars = self._pending, [], 0
        first = self._k + 1
        self._k += len(said)
        view = self.view
        return [
            Live(seq=view.last_seq, k=k, turn=view.turn, step=view.rev + 1, kind=kind, index=index, text=scrub("".join(texts)))
            for k, (kind, index, texts) in enumerate(said, first)
        ]


class Feed:
    """The one writer of deltas of a child."""

    def __init__(self, yard: Yard, clock: Clock) -> None:
        self._yard = yard
        self._clock = clock
        self._voices: dict[str, Voice] = {}
        self._dirty: set[Voice] = set()
        self._due = asyncio.Event()
        self._asked_s = float("-inf")

    def say(self, view: TurnView, delta: Delta) -> None:
        """Take a piece of the answer that the turn of `view` is getting."""
        if not delta.text:
            return
        voice = self._voices.get(view.session)
        if voice is None or voice.view is not view:
            voice = self._voices[view.session] = Voice(self._yard.shard_for(view.session), view, now_s=self._clock.monotonic())
        voice.say(delta)
        self._dirty.add(voice)
        if not self._due.is_set():
            self._due.set()

    def forget(self, session: str) -> None:
        """Drop what was not told: the record says it all by now."""
        voice = self._voices.pop(session, None)
        if voice is not None:
            self._dirty.discard(voice)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._due.wait()
            await self._clock.sleep(_FLUSH_S)
            self._due.clear()
            await self._ask()
            now = self._clock.monotonic()
            due = [voice for voice in self._dirty if voice.followed_until_s > now]
            self._dirty.difference_update(due)
            for i in range(0, len(due), _AT_ONCE):
                await asyncio.gather(*(self._write(voice) for voice in due[i : i + _AT_ONCE]))

    async def _ask(self) -> None:
        """Ask now and then who follows by now; begin and commit tell it for the rest."""
        now = self._clock.monotonic()
        unheard = [v for v in self._dirty if v.followed_until_s <= now]
        if not unheard or now - self._asked_s < _ASK_EVERY_S:
            return
        self._asked_s = now
        for shard in self._yard.shards:
            here = {v.view.session: v for v in unheard if v.shard is shard}
            try:
                for session, left_ms in (await turns.followed(shard, list(here))).items():
                    here[session].followed_until_s = now + left_ms / 1000
            except StoreUnavailable:
                return

    async def _write(self, voice: Voice) -> None:
        try:
            await turns.write_live(voice.shard, voice.view, voice.collect())
        except StoreUnavailable:
            log.debug("deltas dropped", extra={"session": voice.view.session})
