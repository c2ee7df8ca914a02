"""Deciding what a session waits for at the terminal that shows it: /allow, /deny and /answer.

Without an id the oldest one that waits is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnyard.cli.output import say
from turnyard.errors import TurnyardError
from turnyard.records.approvals import APPROVAL_PREFIX

if TYPE_CHECKING:
    from turnyard.client import Client

HINTS = {"question": "(/answer TEXT answers it here)", "allow_deny": "(/allow or /deny [REASON] decides it here)"}
_WORDS = ("/allow", "/deny", "/answer")


class Deciding:
    """What waits for whoever sits here, learnt from the events that are shown. `user` is who decides."""

    def __init__(self, client: Client, user: str) -> None:
        self._client = client
        self._user = user
        self._waiting: dict[str, str] = {}

    def see(self, event: Mapping[str, Any]) -> None:
        """Take in an event; of something new that waits, say how to decide it here."""
        data: Mapping[str, Any] = event.get("data") or {}
        if event["type"] == "permission/request":
            self._waiting[str(data.get("id"))] = str(data.get("kind"))
            say(HINTS.get(str(data.get("kind")), HINTS["allow_deny"]))
        elif event["type"] == "permission/resolved":
            self._waiting.pop(str(data.get("id")), None)

    async def take(self, line: str) -> bool:
        """Do what a line says, if it decides something; False when it is for the agent."""
        word, _, rest = line.partition(" ")
        if word not in _WORDS:
            return False
        first, _, more = rest.strip().partition(" ")
        ident, said = (first, more.strip()) if first.startswith(APPROVAL_PREFIX) else (self._oldest(word), rest.strip())
        if ident is None:
            say("nothing waits for that")
            return True
        try:
            await self._decide(word, ident, said)
        except TurnyardError as error:
            say(f"not taken: {error}")
        return True

    def _oldest(self, word: str) -> str | None:
        wanted = "question" if word == "/answer" else "allow_deny"
        return next((ident for ident, kind in self._waiting.items() if kind == wanted), None)

    async def _decide(self, word: str, ident: str, said: str) -> None:
        approvals = self._client.approvals
        if word == "/allow":
            await approvals.allow(ident, user=self._user, reason=said or None)
        elif word == "/deny":
            await approvals.deny(ident, user=self._user, reason=said or None)
        else:
            await approvals.answer(ident, said, user=self._user)
