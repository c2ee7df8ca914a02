"""What all that was said of a call comes to: it is denied, or people are asked, or it is allowed.

Everything is consulted, and the strictest wins: deny before ask before allow. Several that ask become one question, which
is answered only in a way that each of them would take:

- Who may decide is named by all of them. An entry stays when the others name it, or cover it by a glob; where none does,
  nobody may decide and the call is denied.
- The shortest time counts. The asker may decide only if all let the asker; the session is remembered only if all would.
- A newer message of anyone takes the place of the question if one of them says so.
- Reasons are joined, each one once.

A session's grant turns a question into leave, if all would remember it. It never lifts a denial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from turnyard.engine.effects import Judgement
from turnyard.tools.approval import Ask, Deny, Verdict

ALLOWED = Judgement()
_GLOB = frozenset("*?[")
_DENIED = "this call is not allowed; not executed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An operator's rule: calls of tools that one of the globs names need approval."""

    tools: tuple[str, ...]
    approvers: tuple[str, ...] = ()
    expires_in_ms: int | None = None
    remember: Literal["session"] | None = None
    self_approve: bool = False

    def matches(self, tool: str) -> bool:
        """Tell whether the rule is about a tool of this name."""
        return any(fnmatchcase(tool, glob) for glob in self.tools)

    def ask(self) -> Ask:
        """Return what the rule says of a call that it is about."""
        expires_in = None if self.expires_in_ms is None else self.expires_in_ms / 1000
        return Ask(approvers=self.approvers, expires_in=expires_in, remember=self.remember, self_approve=self.self_approve)


def merged(said: Iterable[Verdict], *, granted: bool = False) -> Judgement:
    """Return what comes of all that was said of one call; with `granted` the session has leave to use its tool."""
    verdicts = [one for one in said if one is not None]
    denials = [one for one in verdicts if isinstance(one, Deny)]
    if denials:
        return _denied(denials)
    asks = [one for one in verdicts if isinstance(one, Ask)]
    return _asked(asks, granted=granted) if asks else ALLOWED


def judgement_of(ask: Ask) -> Judgement:
    """Return what one question comes to."""
    return _asked([ask], granted=False)


def common(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...] | None:
    """Return who may decide by both lists of approvers, where an empty one leaves it to anyone; None when nobody may."""
    if not first or not second:
        return tuple(first or second)
    kept = [one for one in first if any(_covers(other, one) for other in second)]
    kept += [one for one in second if one not in kept and any(_covers(other, one) for other in first)]
    return tuple(kept) or None


def _covers(glob: str, entry: str) -> bool:
    """Tell whether whoever `entry` names is named by `glob`, too. Of two globs that is told by what they begin with, or not at all."""
    if glob in (entry, "*"):
        return True
    if not _GLOB & set(entry):
        return fnmatchcase(entry, glob)
    return glob.endswith("*") and not _GLOB & set(glob[:-1]) and entry.startswith(glob[:-1])


def _denied(denials: Sequence[Deny]) -> Judgement:
    reason = _joined(one.reason for one in denials) or _DENIED
    guidance = _joined((one.guidance for one in denials), "\n")
    audit = {"decision": "deny", "reason": reason} | ({"guidance": guidance} if guidance else {})
    return Judgement(decision="deny", reason=reason, guidance=guidance, audit=_audit(denials) | audit)


def _asked(asks: Sequence[Ask], *, granted: bool) -> Judgement:
    approvers: tuple[str, ...] | None = ()
    for one in asks:
        approvers = common(approvers, one.approvers)
        if approvers is None:
            return _denied([Deny("nobody may approve this call: the rules that ask for approval name different people; not executed")])
    remember = "session" if all(one.remember == "session" for one in asks) else None
    if granted and remember:
        return Judgement(audit=_audit(asks) | {"decision": "allow", "granted": "session"})
    return Judgement(
        decision="ask",
        reason=_joined(one.reason for one in asks),
        approvers=approvers,
        expires_in_ms=min((ms for one in asks if (ms := one.expires_in_ms) is not None), default=None),
        scope="anyone" if any(one.scope == "anyone" for one in asks) else "asker",
        self_approve=all(one.self_approve for one in asks),
        remember=remember,
        audit=_audit(asks),
    )


def _joined(texts: Iterable[str], between: str = "; ") -> str:
    return between.join(dict.fromkeys(text for text in texts if text))


def _audit(said: Sequence[Ask | Deny]) -> dict[str, Any]:
    audit: dict[str, Any] = {}
    for one in said:
        audit |= dict[str, Any](one.audit) if isinstance(one.audit, Mapping) else {}  # pyright: ignore[reportUnnecessaryIsInstance]
    return audit
