"""What must hold at every moment, looked at while faults strike: a few sessions and the shard, each read at one moment."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from tests.faults.cluster import CAP, TENANT_CAP, Cluster
from turnyard.state.oracles import LATE, session_findings, shard_findings
from turnyard.state.scripts import Library


class Watch:
    """Looks at some of the sessions (key parts) each time it is asked to; keeps what it finds."""

    def __init__(self, cluster: Cluster, sessions: Sequence[str]) -> None:
        self.findings: set[str] = set()
        self.amnesties: set[bytes] = set()
        self._cluster = cluster
        self._sessions = sessions
        self._library = Library()
        self._rng = random.Random()

    def look(self) -> None:
        """Look once, unless nobody would answer."""
        if self._cluster.stalled:
            return
        for sid in self._rng.sample(self._sessions, 3):
            if facts := self._read("inspect", sid):
                self.findings |= {f"{f.session}: {f.invariant}: {f.detail}" for f in session_findings(facts) if f.invariant not in LATE}
        if facts := self._read("census", 200):
            self.findings |= {f"shard: {f.invariant}: {f.detail}" for f in shard_findings(facts) if f.invariant not in LATE}
        self._limits()

    def _limits(self) -> None:
        keys = self._cluster.keys
        for key, most in ((keys.prefix + "running", CAP), (keys.prefix + "run:t/acme", TENANT_CAP)):
            used = self._cluster.ask("ZCARD" if most == CAP else "SCARD", key)
            if used is not None and used > most:
                self.findings.add(f"{key} holds {used} of {most}")
        self.amnesties.add(self._cluster.ask("HGET", keys.limits, "amnesty") or b"0")

    def _read(self, script: str, argument: Any) -> dict[str, Any] | None:
        function = self._library.function(script, oom=True)
        reply = self._cluster.ask("FCALL", function, 1, self._cluster.keys.ingress, argument)
        return json.loads(reply) if reply else None
