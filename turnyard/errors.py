"""What can go wrong, one class per decision a caller can take.

Each class's docstring is the advice; the default message is that docstring. `code` is the stable word used in
problem+json bodies, CLI output and logs; `status` is the HTTP status the API answers with.
"""

from __future__ import annotations


class TurnyardError(Exception):
    """Something in Turnyard failed; the message says which thing, what happened and what to do."""

    code = "internal"
    status = 500

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class ConfigError(TurnyardError):
    """The configuration or the app is wrong: fix what the message names and start again."""

    code = "config-invalid"
    status = 500


class InvalidRequest(TurnyardError):
    """The request is malformed: correct what the message names and send it again."""

    code = "invalid-request"
    status = 400

    def __init__(self, message: str | None = None, *, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer


class TooLarge(InvalidRequest):
    """The body is over the limit: send less, or put large content in a file and refer to it."""

    code = "too-large"
    status = 413


class InvalidInput(InvalidRequest):
    """The request is well formed but a value is not acceptable: correct it and send it again."""

    code = "invalid-input"
    status = 422


class NotFound(TurnyardError):
    """No such thing, or it is not yours: check the id."""

    code = "not-found"
    status = 404


class UnknownAgent(NotFound):
    """No worker has ever published this agent: check its name, or start a worker that has it."""

    code = "unknown-agent"


class Conflict(TurnyardError):
    """The thing is in a state that does not allow this: read it again before deciding."""

    code = "conflict"
    status = 409


class SessionBusy(Conflict):
    """The session has an open turn and the message asked not to wait: send it later, or with another mode."""

    code = "session-busy"


class AlreadyDecided(Conflict):
    """Somebody decided this first; the first answer stands."""

    code = "already-decided"


class NotApprover(TurnyardError):
    """This user may not decide this call: ask one of those who may."""

    code = "not-approver"
    status = 403


class AlreadyFinished(Conflict):
    """The turn or job has ended; there is nothing left to cancel."""

    code = "already-finished"


class Expired(TurnyardError):
    """The call's time is over; its outcome can no longer be given."""

    code = "expired"
    status = 410


class IdempotencyMismatch(TurnyardError):
    """This idempotency key was used with another body: use a fresh key for a different request."""

    code = "idempotency-mismatch"
    status = 422


class InboxFull(TurnyardError):
    """The session has as many unread messages as it may hold: wait until it has caught up."""

    code = "inbox-full"
    status = 429


class QuotaExceeded(TurnyardError):
    """The tenant has as much waiting, or stored, as it may have: wait until some of it is done, or delete some."""

    code = "quota-exceeded"
    status = 429


class RateLimited(TurnyardError):
    """Too many wrong tokens came from this address: wait, and check the one that is used."""

    code = "rate-limited"
    status = 429

    def __init__(self, message: str | None = None, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreUnavailable(TurnyardError):
    """The Redis server did not answer, or refuses writes: nothing is known to be lost; try again in a moment."""

    code = "redis-unavailable"
    status = 503


class FilesUnavailable(TurnyardError):
    """The store of files did not answer, or takes no more: nothing else is harmed; try again in a moment."""

    code = "files-unavailable"
    status = 503


class Overloaded(TurnyardError):
    """This process serves as much as it may, or this reader does not keep up: try again in a moment, from the last id."""

    code = "overloaded"
    status = 503


class Unsupported(ConfigError):
    """The server cannot be used safely: the message names the version or setting to change."""

    code = "server-unsupported"


class FenceLost(TurnyardError):
    """Another worker owns the session now: drop the turn, write nothing."""

    code = "fence-lost"


class Diverged(TurnyardError):
    """The session moved on without this worker: drop what it knows and begin again."""

    code = "diverged"


class AgentVersionGone(TurnyardError):
    """The turn was begun by a version of its agent that this one cannot go on from: send the message again."""

    code = "agent_version_gone"
    status = 409


class StrategyError(TurnyardError):
    """The strategy of an agent decided what cannot be done: mend it; the message says what is wrong."""

    code = "strategy_error"


class StateTooLarge(TurnyardError):
    """What a strategy remembers of its turn is over the limit: keep what is large in the log or in a file, and a reference to it here."""

    code = "state_too_large"


class ToolError(TurnyardError):
    """A tool refuses or fails in a way the model should read; this is the only exception whose text the model sees."""

    code = "tool_failed"


class HookFailed(TurnyardError):
    """A hook of the app raised, which fails the turn: the log of its worker says what, under the reference."""

    code = "hook_failed"

    def __init__(self, message: str, *, ref: str, answer: str = "") -> None:
        super().__init__(message)
        self.ref = ref
        self.answer = answer


class SessionClosed(TurnyardError):
    """A tool ends the turn: its text is stored as the result, the rest of its batch runs, the model is not asked again."""

    code = "session_closed"

    def __init__(self, result: str = "") -> None:
        super().__init__(result)
        self.result = result


class OutboundRefused(TurnyardError):
    """The address must not be called from here, and nothing was sent: name a public host, or have the operator allow this one."""

    code = "outbound-refused"
    status = 422


class OutboundFailed(TurnyardError):
    """The other server did not give a usable answer: whether the request had its effect is unknown."""

    code = "outbound-failed"
    status = 502


class ModelError(TurnyardError):
    """The model did not give a usable answer; the turn ends with this reason."""

    code = "model_error"
    retryable = False

    def __init__(
        self, message: str | None = None, *, retryable: bool = False, retry_after_s: float | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class ContextOverflow(TurnyardError):
    """The request is over the model's budget, and nothing that may be left out is left: send less, or choose a model with a larger window."""

    code = "context_overflow"
    status = 422

    def __init__(self, floor: int, budget: int) -> None:
        super().__init__(
            f"the request cannot be made smaller than {floor:,} tokens, and the budget is {budget:,}: "
            "shorten the instructions or the last messages, offer fewer tools, or choose a model with a larger window"
        )
        self.floor = floor
        self.budget = budget


class JobFailed(TurnyardError):
    """The job ended without an answer; `code` says why and whether a retry makes sense."""

    def __init__(self, code: str, message: str, *, ref: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.ref = ref


class JobCancelled(TurnyardError):
    """The job was cancelled; `cause` says by what."""

    code = "cancelled"

    def __init__(self, cause: str) -> None:
        super().__init__(f"the job was cancelled ({cause})")
        self.cause = cause
