"""What a model reads where no tool has spoken: one sentence per outcome, always saying what to do now."""

from __future__ import annotations

_OUTCOMES = {
    "timeout": "No result: the call did not finish in time. Its effect is unknown; verify before repeating it.",
    "cancelled": "Cancelled: the call was stopped before it gave a result. Do not repeat it unless asked to.",
    "denied": "Denied: a person refused this call; it was not executed. Do not try it again; say so or find another way.",
    "superseded": "Not executed: the user wrote something new before the call was approved. Follow the newer message.",
    "unknown": "Outcome unknown: the worker that ran this call was lost. It may have taken effect; verify before repeating it.",
}
INTERRUPTED = "Interrupted: this call has no result. Its effect is unknown; verify before repeating it."


def outcome_text(outcome: str | None, name: str, call: str) -> str:
    """Return what stands for the result of a call whose record has no text."""
    if outcome == "placeholder":
        return pending_text(name, call)
    return _OUTCOMES.get(outcome or "", INTERRUPTED)


def pending_text(name: str, call: str, *, note: str = "", correlation: str | None = None, expires_in_ms: int | None = None) -> str:
    """Return the sentence that answers a parked call until its result is there."""
    which = f"call {call} of {name}" if name else f"call {call}"
    where = f" (correlation id {correlation})" if correlation else ""
    limit = f" It is given up after {expires_in_ms // 1000} s." if expires_in_ms else ""
    lead = f"{note}\n" if note else ""
    return f"{lead}Pending: {which}{where} is still running elsewhere. Do not retry it; its result will follow in a later message.{limit}"


def late_text(name: str, call: str, content: str, *, late: bool) -> str:
    """Return the user message that brings the result of a call which was answered before."""
    when = "late result for the call that was given up" if late else "result for the earlier pending call"
    return f"[{name or 'tool'} {call}] {when}: {content}"
