"""What the lane `session` carries: the starts of child sessions, their ends, and their cancels.

The relay keeps nothing: all it does may be done again, by itself or by another, and is then done once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from turnyard.records.children import MOST_DEEP
from turnyard.records.log import CALLED_OFF, JOB, PARKED, RELAYED
from turnyard.state.agents import AgentsCache
from turnyard.state.children import read_child_call, start_child, stop_child, tell_parent
from turnyard.state.sessions import read_by_key
from turnyard.tools.files import Files
from turnyard.tools.spill import shown_body

if TYPE_CHECKING:
    from turnyard.ports import Blobs
    from turnyard.records.log import LogRecord
    from turnyard.state.lanes import LaneItem
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.platforms")


class Children:
    """Carries what parents and their children have to tell each other.

    `most_deep` bounds how deep agents may call agents. `blobs` keeps answers that are too long for the parent's model whole.
    """

    lane = "session"

    def __init__(self, yard: Yard, *, most_deep: int = MOST_DEEP, blobs: Blobs | None = None) -> None:
        self._yard = yard
        self._agents = AgentsCache(yard)
        self._most_deep = most_deep
        self._blobs = blobs

    def wanted(self, item: LaneItem) -> list[LogRecord]:
        """Return what is to be carried, in the order in which it happened."""
        return [r for r in item.records if (r.kind == "child" and r.type in (PARKED, RELAYED, CALLED_OFF)) or _ended(r)]

    async def carry(self, shard: Shard, item: LaneItem, record: LogRecord) -> None:
        """Start a child, stop it, or tell its parent that it ended.

        Raises:
            StoreUnavailable: carry it again.
        """
        if record.type == JOB:
            await self._tell(shard, item, record)
            return
        asked = await read_child_call(shard, item.store, record.call or "")
        if asked is None:
            return
        fields = {"session": item.session, "call": asked.call, "child": asked.child, "agent": asked.agent}
        if record.type == CALLED_OFF:
            await stop_child(self._yard, asked, cause=record.extra.get("ca") or "user")  # pyright: ignore[reportArgumentType]
            log.info("child called off", extra=fields)
        elif not asked.settled:
            manifest = await self._agents.get(asked.agent)
            await start_child(self._yard, asked, manifest, now_ms=item.taken_ms, most_deep=self._most_deep)
            log.info("child started", extra=fields)

    async def _tell(self, shard: Shard, item: LaneItem, record: LogRecord) -> None:
        view = await read_by_key(shard, item.session)
        if view is None:
            return
        for job in record.jobs:
            await tell_parent(self._yard, job, tenant=view.tenant, parent=record.extra["pa"], bounded=self._bounded)
        log.info("child ended", extra={"session": item.session, "parent": record.extra["pa"], "outcome": record.outcome})

    async def _bounded(self, tenant: str, call: str, body: dict[str, Any]) -> dict[str, Any]:
        return await shown_body(body, Files(self._blobs, tenant), name=f"answer-{call}.txt")


def _ended(record: LogRecord) -> bool:
    return record.type == JOB and bool(record.extra.get("pa"))
