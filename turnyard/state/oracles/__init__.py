"""What must hold, as checks that change nothing: of sessions, of a shard, of a log, and of what processes wrote down.

Each oracle is a function of facts that somebody else has read, and yields what is broken; none asks the server, so the
same ones judge a live deployment (`turnyard doctor`), a test, and the histories of a run with faults.
"""

from __future__ import annotations

from turnyard.state.oracles.finding import LATE, Finding
from turnyard.state.oracles.sessions import session_findings
from turnyard.state.oracles.shards import limit_findings, shard_findings
from turnyard.state.oracles.transcript import transcript_findings

__all__ = ["LATE", "Finding", "limit_findings", "session_findings", "shard_findings", "transcript_findings"]
