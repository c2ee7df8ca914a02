"""Does what a shard lists agree with its sessions: slots, holdings, flows, and is somebody looking after it?

`facts` are what the script `census` reads at one moment, up to a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnyard.state.oracles.finding import Finding
from turnyard.state.oracles.sessions import STALE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHARD = "-"
_DISPATCHER = "start a dispatcher, or see in its log why it does not reach the server: turnyard dispatcher"


def shard_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield what is broken about the shard itself."""
    for where, who in facts["leaks"] or ():
        yield Finding(SHARD, "what is listed is what sessions say", f"{where}: {who}")
    yield from _unattended(facts)


def limit_findings(facts: Sequence[dict[str, Any]], whole: int | None) -> Iterator[Finding]:
    """Yield what is broken about the limit that all shards share: `whole`, None where one shard has it all."""
    running, parts = sum(f["running"] for f in facts), sum(f["max"] for f in facts)
    most = parts if whole is None else whole
    if running > most:
        detail = f"{running} of {most}"
        yield Finding(SHARD, "slots in use are within the limit", detail, "wait, if the limit was lowered a moment ago; else report it")
    if parts > most:
        detail = f"{parts} of {most}: {', '.join(str(f['max']) for f in facts)}"
        yield Finding(SHARD, "the parts of the limit are no more than the limit", detail, _DISPATCHER)


def _unattended(facts: dict[str, Any]) -> Iterator[Finding]:
    if facts["oldest_ms"] > STALE_MS:
        detail = f"{facts['ingress']} accepted events wait, the oldest for {facts['oldest_ms'] / 1000:.0f} s"
        yield Finding(SHARD, "what was accepted is dispatched", detail, _DISPATCHER)
    elif facts["overdue_ms"] > STALE_MS:
        detail = f"the oldest deadline passed {facts['overdue_ms'] / 1000:.0f} s ago"
        yield Finding(SHARD, "deadlines are met", detail, _DISPATCHER)
